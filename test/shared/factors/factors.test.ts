import { Secret, TOTP } from 'otpauth';
import t, { type Test } from 'tap';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createFactorService, type FactorService } from '../../../src/shared/factors/service.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { stepOfCode } from '../../../src/shared/factors/totp.js';
import { onMongod } from '../../core/storage/mongod.js';
import { addAccount, readAccountOf } from '../../kit/accounts.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
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

/** Services of several processes, and an account with a factor. */
async function enrolled(t: Test, uri: string) {
  // The next key is known everywhere before one process uses it.
  const {
    store,
    service: first,
    spread,
  } = await processesOn(t, uri, (each) => serviceOn(each, KEY, NEXT_KEY));
  await addAccount(store, ADA);
  const secret = (await first.begin(ADA, 'ada')).secret.replaceAll(' ', '');
  const codes = (await first.confirm(ADA, codeOf(secret), 'form', FROM)) ?? [];
  t.equal(codes.length, 10);
  clock.advance(60_000);
  return { store, first, secret, codes, spread };
}

const codeOf = (secret: string): string =>
  new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: clock.now() });

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(`${engine}: of 50 concurrent uses of one code one succeeds`, async (t) => {
    const { secret, spread } = await enrolled(t, fresh(t));
    for (let round = 0; round < 3; round++) {
      clock.advance(60_000);
      const code = codeOf(secret);
      const used = await spread(Array(50).fill(code), (service, one) => service.verify(ADA, one, FROM));
      t.equal(used.filter((method) => method === 'otp').length, 1);
    }
  });

  t.test(`${engine}: of concurrent uses of each recovery code one succeeds, and none is lost`, async (t) => {
    const { codes, spread, first } = await enrolled(t, fresh(t));
    const tries = codes.flatMap((code) => [code, code, code, code, code]);
    const used = await spread(tries, (service, code) => service.verify(ADA, code, FROM));
    for (const code of codes) {
      t.equal(used.filter((method, index) => tries[index] === code && method !== null).length, 1);
    }
    t.match(await first.stateOf(ADA), { recoveryCodesLeft: 0 });
  });

  t.test(
    `${engine}: a rotation of the key refuses no code, and afterwards the old key is not needed`,
    async (t) => {
      const { store, secret, codes, spread } = await enrolled(t, fresh(t));
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
    },
  );
}

forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/factors.db`);
await onMongod((server) => forEngine('MongoDB', server.fresh));

t.test('an app that was begun before the factor was set up cannot replace it', async (t) => {
  const store = await openStore(`sqlite:${temporaryFolder(t)}/factors.db`);
  t.teardown(() => store.close());
  await addAccount(store, ADA);
  const service = serviceOn(store, KEY);
  const { secret } = await service.begin(ADA, 'ada');
  await service.confirm(ADA, codeOf(secret.replaceAll(' ', '')), 'form', FROM);
  await t.rejects(service.begin(ADA, 'ada'), { code: 'FACTOR_EXISTS' });
  const again = service.confirm(ADA, codeOf(secret.replaceAll(' ', '')), 'another form', FROM);
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
