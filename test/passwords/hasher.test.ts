import argon2 from '@node-rs/argon2';
import t from 'tap';
import { userCollection } from '../../src/auth/store.js';
import { Gate } from '../../src/ops/gate.js';
import { createPasswords, type Passwords } from '../../src/passwords/hasher.js';
import { CHEAP, PASSWORD, saasApp, storeOf } from '../kit/app.js';
import { countedRandom } from '../kit/random.js';

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

t.test('a password has 8 to 1,024 bytes of any kind', async (t) => {
  const passwords = make();
  for (const good of ['12345678', '        ', 'üüüü', '💶💶', 'x'.repeat(1024), 'ü'.repeat(512)]) {
    t.equal(passwords.problem(good), null, good.slice(0, 10));
  }
  t.match(passwords.problem('1234567'), /at least 8/);
  t.match(passwords.problem('üüü'), /at least 8/);
  t.match(passwords.problem('x'.repeat(1025)), /at most 1024/);
  t.match(passwords.problem('ü'.repeat(513)), /at most 1024/);
  t.equal((await passwords.verify(await passwords.hash(PASSWORD), 'x'.repeat(100_000))).ok, false);
});

t.test('a stored hash that is invalid or too expensive never verifies', async (t) => {
  const passwords = make();
  const good = await passwords.hash(PASSWORD);
  const spoilt = (parameters: string) => good.replace('m=8,t=1,p=1', parameters);
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
    spoilt('m=4194304,t=1,p=1'),
    spoilt('m=8,t=4000000,p=1'),
    spoilt('m=128,t=1,p=16'),
    spoilt('m=0,t=1,p=1'),
    spoilt('m=8,t=0,p=1'),
    spoilt('m=8,t=1,p=0'),
    spoilt('m=8,t=1,p=8'),
    '$2b$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy',
  ]) {
    t.same(await passwords.verify(stored, PASSWORD), { ok: false, outdated: false }, stored);
  }
});

t.test('hashing waits in a queue of bounded length', async (t) => {
  const passwords = make(SLOWER);
  const results = await Promise.allSettled(Array.from({ length: 200 }, () => passwords.hash(PASSWORD)));
  const refused = results.filter((result) => result.status === 'rejected');
  // All ask in one turn of the loop: 128 wait, and as many run as there are cores to run them.
  t.ok(refused.length > 0 && refused.length < 200 - 128, `${refused.length} refused`);
  for (const { reason } of refused) {
    t.match(reason, { code: 'OVERLOADED', statusCode: 503, headers: { 'retry-after': /^\d+$/ } });
  }
  t.match(await passwords.hash(PASSWORD), /^\$argon2id/, 'and the gate opens again');
});

t.test('refusals of a full queue are delayed, unless there are too many', async (t) => {
  const pauses: (() => void)[] = [];
  const gate = new Gate(1, 1, () => new Promise<void>((resolve) => pauses.push(resolve)));
  const work = () => new Promise<never>(() => undefined);
  void gate.run(work);
  await gate.ensureRoom();
  void gate.run(work);
  const heard: string[] = [];
  const refused = Array.from({ length: 1025 }, (_, index) =>
    (index % 2 ? gate.run(work) : gate.ensureRoom()).catch(({ code }) => heard.push(`${index} ${code}`)),
  );
  await refused.at(-1);
  t.strictSame(heard, ['1024 OVERLOADED']);
  t.equal(pauses.length, 1024);
  for (const end of pauses) end();
  await Promise.all(refused);
  t.equal(heard.length, 1025);
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
  const { verify } = argon2;
  t.intercept(argon2, 'verify', {
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

t.test('a full queue is answered 503 with Retry-After, and nothing is stored', async (t) => {
  const app = await saasApp(t, { hashing: SLOWER });
  const answers = await Promise.all(
    Array.from({ length: 200 }, (_, index) =>
      app.request('POST', '/api/auth/register', {
        body: { email: `p${index}@example.test`, password: PASSWORD },
      }),
    ),
  );
  const made = answers.filter(({ status }) => status === 201);
  const refused = answers.filter(({ status }) => status !== 201);
  t.ok(refused.length > 0, `${refused.length} refused`);
  for (const { status, body, headers } of refused) {
    t.equal(`${status} ${body.error.code}`, '503 OVERLOADED');
    t.match(headers['retry-after'], /^\d+$/);
  }
  t.equal(await userCollection(await storeOf(t, app)).count(), made.length);
});
