import { Secret, TOTP } from 'otpauth';
import t, { type Test } from 'tap';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createFactorService, type FactorService } from '../../../src/shared/factors/service.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { stepOfCode } from '../../../src/shared/factors/totp.js';
import { addAccount, notices, readAccountOf } from '../../kit/accounts.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { storeIn } from '../../kit/engine.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { processesOn } from '../processes.js';

/** Second factors beside each other, in several processes on one store. */

const KEY = 'Rk7tQ2vXw9ZbN4mLp6Jd3Hs8Fg1Yc5Ae';
const NEXT_KEY = 'Zx8cV4bN1mQ7wE3rT9yU5iO2pA6sD0fG';
const FROM = { ip: '192.0.2.1', isDisconnected: () => false };
const ADA = `u_${'1'.repeat(32)}`;

const clock = fakeClock();

function serviceOn(store: Store, ...keys: [string, ...string[]]): FactorService {
  return createFactorService({
    factors: factorCollection(store),
    keys,
    issuer: () => 'Example',
    throttle: { attempt: (_guess, evaluate) => evaluate(), trust: async () => undefined },
    audit: SILENT_AUDIT,
    readAccount: readAccountOf(store),
    commit: createCommit(store),
    clock,
    random: systemRandom,
  });
}

/** Services of several processes, and an account whose app is being set up. */
async function begun(t: Test) {
  // The next key is known everywhere before one process uses it.
  const uri = storeIn(temporaryFolder(t), 'saas');
  const { store, service, spread } = await processesOn(t, uri, (each) => serviceOn(each, KEY, NEXT_KEY));
  await addAccount(store, ADA);
  const secret = (await service.begin(ADA, 'ada')).secret.replaceAll(' ', '');
  return { store, service, spread, secret };
}

/** The same with a factor. */
async function enrolled(t: Test) {
  const opened = await begun(t);
  const codes = (await opened.service.confirm(ADA, codeOf(opened.secret), 'form', FROM)) ?? [];
  t.equal(codes.length, 10);
  clock.advance(60_000);
  return { ...opened, codes };
}

const codeOf = (secret: string): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: clock.now() });

t.test('of concurrent confirmations of one app one takes effect and is reported', async (t) => {
  const { store, service, spread, secret } = await begun(t);
  const forms = Array.from({ length: 20 }, (_, index) => `form ${index}`);
  const results = await spread(forms, (one, form) =>
    one.confirm(ADA, codeOf(secret), form, FROM).catch(({ code }) => code),
  );
  const given = results.filter((result) => result !== 'FACTOR_CHANGED');
  t.equal(given.length, 1);
  t.same(await notices(store), ['added']);
  for (const code of given[0]) t.equal(await service.verify(ADA, code, FROM), 'recovery');
});

t.test('of concurrent removals one takes effect and is reported, and no code is left', async (t) => {
  const { store, service, spread, secret, codes } = await enrolled(t);
  const results = await spread(Array(20).fill(null), (one) => one.remove(ADA, FROM));
  t.equal(results.filter(Boolean).length, 1);
  t.same(await notices(store), ['added', 'removed']);
  for (const code of [codeOf(secret), ...codes]) t.equal(await service.verify(ADA, code, FROM), null);
});

t.test('of 50 concurrent uses of one code one succeeds', async (t) => {
  const { secret, spread } = await enrolled(t);
  for (let round = 0; round < 3; round++) {
    clock.advance(60_000);
    const code = codeOf(secret);
    const used = await spread(Array(50).fill(code), (service, one) => service.verify(ADA, one, FROM));
    t.equal(used.filter((method) => method === 'otp').length, 1);
  }
});

t.test('of concurrent uses of each recovery code one succeeds, and none is lost', async (t) => {
  const { codes, spread, service } = await enrolled(t);
  const tries = codes.flatMap((code) => [code, code, code, code, code]);
  const used = await spread(tries, (one, code) => one.verify(ADA, code, FROM));
  for (const code of codes) {
    t.equal(used.filter((method, index) => tries[index] === code && method !== null).length, 1);
  }
  t.match(await service.stateOf(ADA), { recoveryCodesLeft: 0 });
});

t.test('a rotation of the key refuses no code, and afterwards the old key is not needed', async (t) => {
  const { store, secret, codes, spread } = await enrolled(t);
  const both = serviceOn(store, NEXT_KEY, KEY);
  const lease = { term: 1, signal: new AbortController().signal };
  const [used] = await Promise.all([
    spread(codes.slice(0, 8), (service, code) => service.verify(ADA, code, FROM)),
    both.encryptionJob.run(lease),
    both.encryptionJob.run(lease),
  ]);
  t.same(used, Array(8).fill('recovery'));
  await both.encryptionJob.run(lease);
  const renewed = serviceOn(store, NEXT_KEY);
  t.equal(await renewed.verify(ADA, codes[8] ?? '', FROM), 'recovery');
  t.equal(await renewed.verify(ADA, codeOf(secret), FROM), 'otp');
  await t.rejects(serviceOn(store, KEY).verify(ADA, codeOf(secret), FROM), /FACTOR_ENCRYPTION_KEY/);
});

t.test('an app that was begun before the factor was set up cannot replace it', async (t) => {
  const { service, secret } = await enrolled(t);
  await t.rejects(service.begin(ADA, 'ada'), { code: 'FACTOR_EXISTS' });
  const again = service.confirm(ADA, codeOf(secret), 'another form', FROM);
  await t.rejects(again, { code: 'FACTOR_CHANGED' });
});

t.test('codes are those of RFC 6238', (t) => {
  const secret = new Secret({ buffer: Uint8Array.from(Buffer.from('12345678901234567890')).buffer }).base32;
  // Appendix B, of whose eight digits apps show the last six.
  for (const [seconds, code] of [
    [59, '287082'],
    [1_111_111_109, '081804'],
    [1_111_111_111, '050471'],
    [1_234_567_890, '005924'],
    [2_000_000_000, '279037'],
    [20_000_000_000, '353130'],
  ] as const) {
    t.equal(stepOfCode(secret, code, seconds * 1000), Math.floor(seconds / 30));
  }
  t.equal(stepOfCode(secret, '287082', 89_000), 1, 'the previous step');
  t.equal(stepOfCode(secret, '287082', 29_000), 1, 'the next step');
  t.equal(stepOfCode(secret, '287082', 121_000), null);
  for (const code of ['', '28708', '2870822', '28708a', '٢٨٧٠٨٢'])
    t.equal(stepOfCode(secret, code, 59_000), null);
  t.end();
});
