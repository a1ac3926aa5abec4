import { once } from 'node:events';
import fast from '@node-rs/argon2';
import argon2 from 'argon2';
import t, { type Test } from 'tap';
import { createArgon2Verify, type HashingCost, hashArgon2 } from '../../src/passwords/argon2.js';
import { createPasswords } from '../../src/passwords/hasher.js';
import { CHEAP, PASSWORD } from '../kit/app.js';
import { countedRandom } from '../kit/random.js';

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
  // The last character holds two bits more than the hash has.
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
  t.match(warning.message, /half the speed.*Cannot find native binding/);
});
