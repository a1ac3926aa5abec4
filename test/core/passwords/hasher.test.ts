import { randomBytes, scryptSync } from 'node:crypto';
import { once } from 'node:events';
import fast from '@node-rs/argon2';
import argon2 from 'argon2';
import t, { type Test } from 'tap';
import { Semaphore } from '../../../src/core/ops/semaphore.js';
import { createArgon2Verify, type HashingCost, hashArgon2 } from '../../../src/core/passwords/argon2.js';
import { createPasswords, type Passwords } from '../../../src/core/passwords/hasher.js';
import { CHEAP, PASSWORD } from '../../kit/app.js';
import { countedRandom } from '../../kit/random.js';

const make = (cost = CHEAP): Passwords => createPasswords(countedRandom(), cost);

/** Slow enough for a queue to build up. */
const SLOWER = { ...CHEAP, memoryCost: 1024 };

t.test('a hash is argon2id at the configured cost, with its own salt', async (t) => {
  const passwords = make({ memoryCost: 16, timeCost: 2, parallelism: 1 });
  const [one, two] = await Promise.all([passwords.hash(PASSWORD), passwords.hash(PASSWORD)]);
  t.match(one, /^\$argon2id\$v=19\$m=16,t=2,p=1\$/);
  t.not(one, two);
  t.same(await passwords.verify(one, PASSWORD), { ok: true, outdated: false });
  t.same(await passwords.verify(one, `${PASSWORD} `), { ok: false, outdated: false });
  t.same(await make().verify(one, PASSWORD), { ok: true, outdated: true });
  t.same(await make().verify(one, 'wrong'), { ok: false, outdated: false });
});

t.test(
  'the first verification waits for the placeholder hash, whether the account is known or not',
  async (t) => {
    const known = await make().hash(PASSWORD);
    for (const stored of [known, null]) {
      let salts = 0;
      const random = {
        bytes(size: number) {
          if (++salts === 1) throw new Error('on purpose');
          return Buffer.alloc(size, salts);
        },
      };
      const passwords = createPasswords(random, CHEAP);
      t.equal(salts, 0);
      passwords.prepare();
      t.equal(salts, 1);
      await t.rejects(passwords.verify(stored, PASSWORD), { message: 'on purpose' });
      for (const _ of [1, 2]) {
        t.same(await passwords.verify(stored, PASSWORD), { ok: stored !== null, outdated: false });
        t.equal(salts, 2, 'made anew after a failure, and once');
      }
    }
  },
);

t.test('Unicode spellings of a password are equivalent, and invalid ones are refused', async (t) => {
  const passwords = make();
  const [composed, decomposed] = ['Fu\u00dfg\u00e4nger', 'Fu\u00dfga\u0308nger'];
  t.equal((await passwords.verify(await passwords.hash(composed), decomposed)).ok, true);
  const stored = await passwords.hash('secret \ufffd secret');
  t.equal((await passwords.verify(stored, 'secret \ud800 secret')).ok, false);
  t.match(passwords.problem('secret \ud800 secret'), /Unicode/);
});

t.test('a password has at least 8 characters of any kind, and at most 1,024 bytes', async (t) => {
  const passwords = make();
  for (const good of [
    '12345678',
    '        ',
    'üüüüüüüü',
    '💶'.repeat(8),
    'x'.repeat(1024),
    'ü'.repeat(512),
  ]) {
    t.equal(passwords.problem(good), null, good.slice(0, 10));
  }
  for (const short of ['1234567', 'äöüß', 'пароль', '密码吗', '💶💶', 'u\u0308'.repeat(7)]) {
    t.match(passwords.problem(short), /at least 8/, short);
  }
  t.match(passwords.problem('x'.repeat(1025)), /at most 1024/);
  t.match(passwords.problem('ü'.repeat(513)), /at most 1024/);
  t.equal((await passwords.verify(await passwords.hash(PASSWORD), 'x'.repeat(100_000))).ok, false);
});

t.test('a stored hash that is invalid or too expensive never verifies', async (t) => {
  const passwords = make();
  const good = await passwords.hash(PASSWORD);
  const withParameters = (parameters: string) => good.replace('m=8,t=1,p=1', parameters);
  t.equal((await passwords.verify(good, PASSWORD)).ok, true, 'control');
  for (const stored of [
    '',
    'plain text',
    PASSWORD,
    good.slice(0, -30),
    good.replace('argon2id', 'argon2x'),
    good.replace('v=19', 'v=16'),
    `${good}$`,
    ` ${good}`,
    good.replace(/\$[^$]+$/, '$****************'),
    good.replace(/\$[^$]+$/, `$${'A'.repeat(17)}`),
    good.replace(/[^$]+(\$[^$]+)$/, 'AAAAAAAAA$1'),
    withParameters('m=4194304,t=1,p=1'),
    withParameters('m=8,t=4000000,p=1'),
    withParameters('m=128,t=1,p=16'),
    withParameters('m=0,t=1,p=1'),
    withParameters('m=8,t=0,p=1'),
    withParameters('m=8,t=1,p=0'),
    withParameters('m=8,t=1,p=8'),
    '$2b$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy',
  ]) {
    t.same(await passwords.verify(stored, PASSWORD), { ok: false, outdated: false }, stored);
  }
});

t.test('hashing waits in a queue of bounded length', async (t) => {
  const passwords = make(SLOWER);
  const results = await Promise.allSettled(Array.from({ length: 200 }, () => passwords.hash(PASSWORD)));
  const refused = results.filter((result) => result.status === 'rejected');
  // All calls are in one turn of the event loop: one runs per core, and 128 wait.
  t.ok(refused.length > 0 && refused.length < 200 - 128, `${refused.length} refused`);
  for (const { reason } of refused) {
    t.match(reason, { code: 'OVERLOADED', statusCode: 503, headers: { 'retry-after': /^\d+$/ } });
  }
  t.match(await passwords.hash(PASSWORD), /^\$argon2id/, 'and the gate opens again');
});

t.test('refusals of a full queue are delayed, unless there are too many', async (t) => {
  const pauses: (() => void)[] = [];
  const gate = new Semaphore(1, 1, () => new Promise<void>((resolve) => pauses.push(resolve)));
  const work = () => new Promise<never>(() => undefined);
  void gate.run(work);
  await gate.ensureCapacity();
  void gate.run(work);
  const rejections: string[] = [];
  const refused = Array.from({ length: 1025 }, (_, index) =>
    (index % 2 ? gate.run(work) : gate.ensureCapacity()).catch(({ code }) =>
      rejections.push(`${index} ${code}`),
    ),
  );
  await refused.at(-1);
  t.strictSame(rejections, ['1024 OVERLOADED']);
  t.equal(pauses.length, 1024);
  for (const end of pauses) end();
  await Promise.all(refused);
  t.equal(rejections.length, 1025);
});

t.test('a client that disconnects while waiting costs no hashing', async (t) => {
  const passwords = make();
  await t.rejects(
    passwords.hash(PASSWORD, () => true),
    { code: 'OVERLOADED' },
  );
  await t.rejects(
    passwords.verify(null, PASSWORD, () => true),
    { code: 'OVERLOADED' },
  );
});

t.test('an unknown account costs the same hashing work as a known one', async (t) => {
  let verified = 0;
  const { verify } = fast;
  t.intercept(fast, 'verify', {
    value: (...args: Parameters<typeof verify>) => {
      verified++;
      t.match(args[0], '$m=16,t=2,p=1$', 'at the cost in force');
      return verify(...args);
    },
  });
  const passwords = make({ memoryCost: 16, timeCost: 2, parallelism: 1 });
  const stored = await passwords.hash(PASSWORD);
  await passwords.verify(stored, 'wrong');
  await passwords.verify(null, 'wrong');
  t.equal(verified, 2);
});

t.test('after a flood, passwords of unknown accounts are still verified', async (t) => {
  const passwords = make(SLOWER);
  const flood = Array.from({ length: 200 }, () => passwords.hash(PASSWORD));
  await Promise.allSettled([...flood, passwords.verify(null, PASSWORD)]);
  t.same(await passwords.verify(null, PASSWORD), { ok: false, outdated: false });
});

const SALT = Buffer.alloc(16, 1);

/** The calls of both libraries, by name. */
function watch(t: Test): string[] {
  const calls: string[] = [];
  const verifyFast = fast.verify;
  const verifyAny = argon2.verify;
  t.intercept(fast, 'verify', {
    value: (...args: Parameters<typeof verifyFast>) => {
      calls.push('fast');
      return verifyFast(...args);
    },
  });
  t.intercept(argon2, 'verify', {
    value: (...args: Parameters<typeof verifyAny>) => {
      calls.push('any');
      return verifyAny(...args);
    },
  });
  return calls;
}

t.test('the fast library verifies hashes of the other one', async (t) => {
  const calls = watch(t);
  const verify = createArgon2Verify();
  const costs: HashingCost[] = [CHEAP, { ...CHEAP, memoryCost: 1000, timeCost: 3 }];
  const passwords = [PASSWORD, 'Fußgänger 💶', '\0\u0001', ' '.repeat(8), 'x'.repeat(4096)];
  for (const cost of costs) {
    for (const password of passwords) {
      const stored = await hashArgon2(password, SALT, cost);
      t.equal(await verify(stored, password), true);
      t.equal(await verify(stored, `${password} `), false);
      t.equal(await argon2.verify(stored, password), true, 'as does the one that made it');
      t.equal(calls.splice(0).join(), 'fast,fast,any');
    }
  }
});

t.test('other hash variants are left to the library that knows every kind', async (t) => {
  const calls = watch(t);
  const verify = createArgon2Verify();
  const passwords = createPasswords(countedRandom(), CHEAP);
  const made = { ...CHEAP, salt: SALT };
  for (const [what, options] of Object.entries({
    'of another kind': { ...made, type: argon2.argon2i },
    'in two lanes': { ...made, parallelism: 2, memoryCost: 16 },
    'with a short salt': { ...made, salt: Buffer.alloc(8, 1) },
    'longer than ours': { ...made, hashLength: 64 },
  })) {
    const stored = await argon2.hash(PASSWORD, options);
    t.equal(await verify(stored, PASSWORD), true, what);
    t.equal(await verify(stored, 'wrong'), false, what);
    const expected = { ok: true, outdated: true };
    t.same(await passwords.verify(stored, PASSWORD), expected, 'until its owner signs in once');
  }
  t.same([...new Set(calls)], ['any']);
  const severalLanes = { ...CHEAP, parallelism: 2, memoryCost: 16 };
  const own = createPasswords(countedRandom(), severalLanes);
  const stored = await own.hash(PASSWORD);
  t.same(await own.verify(stored, PASSWORD), { ok: true, outdated: false }, 'unless we make such ourselves');
});

t.test('hashes that the fast library refuses to parse are verified by the other one', async (t) => {
  const verify = createArgon2Verify();
  const stored = await hashArgon2(PASSWORD, SALT, { ...CHEAP, memoryCost: 16 });
  // The last character contains two bits more than the hash has.
  const spare = stored.slice(0, -1) + String.fromCharCode(stored.charCodeAt(stored.length - 1) + 1);
  for (const odd of [stored.replace('m=16', 'm=016'), spare]) {
    await t.rejects(fast.verify(odd, PASSWORD), 'control');
    t.equal(await verify(odd, PASSWORD), true);
    t.equal(await verify(odd, 'wrong'), false);
  }
});

t.test('without a build for the platform the fallback is logged once and verifies the same', async (t) => {
  const calls = watch(t);
  const warned = once(process, 'warning');
  const verify = createArgon2Verify(() => Promise.reject(new Error('Cannot find native binding.')));
  const stored = await hashArgon2(PASSWORD, SALT, CHEAP);
  t.same(await Promise.all([verify(stored, PASSWORD), verify(stored, 'wrong')]), [true, false]);
  t.equal(await verify(stored, PASSWORD), true);
  t.same(calls, ['any', 'any', 'any']);
  const [warning] = await warned;
  t.match(warning.message, /half speed.*Cannot find native binding/);
});

const passwords = createPasswords(countedRandom(), CHEAP);

/** Created by the systems themselves, at their lowest cost. */
const FOREIGN = {
  'bcrypt, Python': '$2b$04$gibEioNbSfg5jYeo2zREPue/mlelbkNF7eHwzKqjZtN1n.7vYh/k6',
  'bcrypt, as Supabase has it': '$2a$04$XTuyIS99hkwY2e8/7K7RlefGboJb28bSlZlN.9r6HA6faaFfv0H06',
  'passlib scrypt':
    '$scrypt$ln=10,r=8,p=1$611LqXVuLYVQKiXk3HvPWQ$xz8i2euLt9W1cSzVoTItNZB0T9F1GSjaxMu4zAD8sYs',
  'passlib pbkdf2-sha256':
    '$pbkdf2-sha256$1000$KAVg7J0TIqRU6n1PaW2N8Q$drDOQVcRz5FZOe1vG3w0Og75jzE1Cdv5.jcVq1rpDV4',
  'PHC pbkdf2-sha256':
    '$pbkdf2-sha256$i=1000,l=32$KAVg7J0TIqRU6n1PaW2N8Q$drDOQVcRz5FZOe1vG3w0Og75jzE1Cdv5+jcVq1rpDV4',
  'passlib pbkdf2-sha512':
    '$pbkdf2-sha512$1000$K8XYe0.JkVJqTQkhZIyR0g$ZA1CG/9cr0u62gTsGZUXHhK5OBAAPh8D4hx2qmSaNdFtlv4WvHM8jT5nGp732YBK7HzyPfXEygOsrc2grs6qnQ',
  'passlib pbkdf2': '$pbkdf2$1000$4VwLYexdy5kTYgxhbO1dSw$joYf32tvDCoc0D4LRVU6IO9crlE',
  'Django pbkdf2_sha256': 'pbkdf2_sha256$1000$Zq3kXw9pLm2Tn7Rv$uIBGJyPvAI24y79H1Pz4NodXtYZeM0TOwOaVf9tdcs8=',
  'Django pbkdf2_sha1': 'pbkdf2_sha1$1000$Zq3kXw9pLm2Tn7Rv$UWtT7UBEKOLOJB/qvKHg8uAtcN4=',
  'Django scrypt':
    'scrypt$1024$Zq3kXw9pLm2Tn7Rv$8$1$R+pSBIeatgfvtIz3izxfTOrhYvcoyw+C6grZISKVEH6X8RwcWBiWrSfvn7ca4TzBsZ2BQNHeNwOaNM1zmYdMGw==',
};

t.test('a hash of another system verifies its password and asks for a rehash', async (t) => {
  for (const [name, stored] of Object.entries(FOREIGN)) {
    t.ok(passwords.accepts(stored), name);
    t.same(await passwords.verify(stored, PASSWORD), { ok: true, outdated: true }, name);
    t.same(await passwords.verify(stored, `${PASSWORD}!`), { ok: false, outdated: false }, name);
    t.same(await passwords.verify(stored, ''), { ok: false, outdated: false }, name);
    // Not the last letters, some of whose bits are unused.
    const [tail = ''] = /.{5}$/.exec(stored) ?? [];
    const flipped = stored.slice(0, -5) + (tail.startsWith('Q') ? 'Z' : 'Q') + tail.slice(1);
    t.equal((await passwords.verify(flipped, PASSWORD)).ok, false, `${name}, one letter changed`);
  }
});

t.test('a Better Auth hash of an NFKC password is verified', async (t) => {
  const stored =
    'e49cca85615942848bb3776c70c59355:43a6e0549e55d81d8b58057e8f59f8f19b84f77271b51e952986a09dc05cf25a4d66a1281de38329bf0015f9c809bcf939ce6db01fcbca8982de97c65a0c7b9a';
  t.ok(passwords.accepts(stored));
  for (const spelling of [
    'pässwörd ﬁne horse',
    'pässwörd fine horse',
    'pässwörd ﬁne horse'.normalize('NFD'),
  ]) {
    t.same(await passwords.verify(stored, spelling), { ok: true, outdated: true });
  }
  t.equal((await passwords.verify(stored, 'passwörd fine horse')).ok, false);
});

t.test('a hash of Firebase is verified with the parameters of its project', async (t) => {
  // The example of https://github.com/firebase/scrypt.
  const key = 'jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==';
  const hash = 'lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==';
  const stored = `$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=${key}$42xEC+ixf3L2lw==$${hash}`;
  t.ok(passwords.accepts(stored));
  t.same(await passwords.verify(stored, 'user1password'), { ok: true, outdated: true });
  t.equal((await passwords.verify(stored, 'user2password')).ok, false);
  t.equal((await passwords.verify(stored.replace('Bw==', 'Bg=='), 'user1password')).ok, false);
  t.equal(passwords.accepts(stored.replace('n=14', 'n=24')), false, 'too costly');
  t.equal(passwords.accepts(stored.slice(0, -20)), false, 'cut off');
});

t.test('hashes of excessive cost are refused before any work', async (t) => {
  const key = 'A'.repeat(43);
  const greedy = [
    FOREIGN['bcrypt, Python'].replace('$04$', '$31$'),
    FOREIGN['bcrypt, Python'].replace('$04$', '$15$'),
    FOREIGN['bcrypt, Python'].replace('$04$', '$03$'),
    `$scrypt$ln=30,r=8,p=1$c2FsdA$${key}`,
    `$scrypt$ln=22,r=8,p=1$c2FsdA$${key}`,
    `$scrypt$ln=1,r=9999,p=999$c2FsdA$${key}`,
    `$scrypt$ln=10,r=0,p=1$c2FsdA$${key}`,
    `$scrypt$ln=0,r=8,p=1$c2FsdA$${key}`,
    `scrypt$1000$salt$8$1$${key}=`,
    `scrypt$999999999$salt$8$1$${key}=`,
    `$pbkdf2-sha512$999999999$c2FsdA$${key}`,
    `$pbkdf2-sha256$0$c2FsdA$${key}`,
    `$pbkdf2-sha256$1000$c2FsdA$${'A'.repeat(200)}`,
    '$pbkdf2-sha256$1000$c2FsdA$AAAA',
    `$pbkdf2-md5$1000$c2FsdA$${key}`,
    `pbkdf2_sha512$1000$salt$${key}=`,
    'md5$salt$9e107d9d372bb6826bd81d3542a419d6',
    '$1$salt$qJH7.N4xYta3aEG/dfqo/0',
  ];
  for (const stored of greedy) {
    t.notOk(passwords.accepts(stored), stored);
    t.same(await passwords.verify(stored, PASSWORD), { ok: false, outdated: false }, stored);
  }
});

t.test('OpenSSL accepts the highest accepted cost', async (t) => {
  const salt = randomBytes(16);
  const cost = { N: 2 ** 17, r: 8, p: 2 };
  const key = scryptSync(PASSWORD, salt, 32, { ...cost, maxmem: 2 ** 30 });
  const bare = (bytes: Buffer) => bytes.toString('base64').replaceAll('=', '');
  const stored = `$scrypt$ln=17,r=8,p=2$${bare(salt)}$${bare(key)}`;
  t.same(await passwords.verify(stored, PASSWORD), { ok: true, outdated: true });
});
