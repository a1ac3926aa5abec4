import t from 'tap';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createFactorService, type FactorService } from '../../../src/shared/factors/service.js';
import { factorCollection } from '../../../src/shared/factors/store.js';
import { addAccount, noticeCollection, notices, readAccountOf } from '../../kit/accounts.js';
import { fakeClock } from '../../kit/clock.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { countedRandom } from '../../kit/random.js';
import { codes, holds, insist } from '../../saas/auth/explored-service.js';

/** Changes of a second factor in every order of the calls to the store, with a crash at any of them. */

const ADA = 'usr_ada';
const FROM = { ip: '192.0.2.1', isDisconnected: () => false };

/** The service of one process. */
function serviceOn(store: Store, seed: string): FactorService {
  return createFactorService({
    factors: factorCollection(store),
    keys: [FACTOR_KEY],
    issuer: () => 'Example',
    throttle: { attempt: (_guess, evaluate) => evaluate(), trust: async () => undefined },
    audit: SILENT_AUDIT,
    readAccount: readAccountOf(store),
    commit: createCommit(store),
    clock: fakeClock(),
    random: countedRandom(seed),
  });
}

/** The app that was shown in the set-up, whose code is always the same: the clock stands still. */
let code = '';
let recoveryCodes: string[] = [];

const begun = async (store: Store): Promise<void> => {
  await addAccount(store, ADA);
  const { secret } = await serviceOn(store, 'setup').begin(ADA, 'ada');
  code = codeAt(secret, fakeClock().now());
};

/** With a factor, of whose app no code was used since. */
const enrolled = async (store: Store): Promise<void> => {
  await begun(store);
  recoveryCodes = (await serviceOn(store, 'setup').confirm(ADA, code, 'form', FROM)) ?? [];
  await factorCollection(store).updateOne({ id: ADA }, { set: { lastStep: 0 } });
  await noticeCollection(store).deleteMany({});
};

const confirm = (form: string) => (store: Store) => serviceOn(store, form).confirm(ADA, code, form, FROM);
const verify = (typed: () => string, seed: string) => (store: Store) =>
  serviceOn(store, seed).verify(ADA, typed(), FROM);
const remove = (store: Store) => serviceOn(store, 'remove').remove(ADA, FROM);

const resultOf = <T>(result: PromiseSettledResult<unknown> | undefined): T | undefined =>
  result?.status === 'fulfilled' ? (result.value as T) : undefined;

/** Whether each change is reported, and nothing else. */
async function checkMails(store: Store, changes: number): Promise<void> {
  const told = await notices(store);
  insist(told.length === changes, `${told} for ${changes} changes`);
}

const isEnrolled = async (store: Store) => (await serviceOn(store, 'check').stateOf(ADA)) !== null;

t.test(
  'two confirmations of one app: in every order and with a crash, one takes effect and is reported',
  async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      const given = results.flatMap((result) => resultOf<string[]>(result)?.join() ?? []);
      insist(given.length <= 1, 'two sets of recovery codes');
      insist(
        codes(results).every((one) => ['done', 'FACTOR_CHANGED'].includes(one)),
        codes(results).join(),
      );
      const isSet = await isEnrolled(store);
      insist(isSet || given.length === 0, 'codes of no factor');
      await checkMails(store, isSet ? 1 : 0);
      for (const one of given[0]?.split(',') ?? [])
        insist(
          (await serviceOn(store, 'check').verify(ADA, one, FROM)) === 'recovery',
          'a code is not valid',
        );
    };
    const actors = [confirm('one'), confirm('two')];
    holds(t, await explore({ setup: begun, actors, crash: true, check }));
  },
);

t.test('two uses of one code: in every order and with a crash, at most one is accepted', async (t) => {
  for (const typed of [() => code, () => recoveryCodes[0] ?? '']) {
    const actors = [verify(typed, 'one'), verify(typed, 'two')];
    const isOnce: Scenario['check'] = async (_store, results) => {
      const accepted = results.filter((result) => resultOf(result) != null).length;
      insist(accepted <= 1, 'accepted twice');
      insist(accepted === 1 || results.includes(undefined), 'refused although nobody used it');
    };
    holds(t, await explore({ setup: enrolled, actors, crash: true, check: isOnce }));
  }
});

t.test(
  'a removal beside uses and a removal: it is reported if it happened, and nothing survives it',
  async (t) => {
    for (const other of [verify(() => code, 'use'), verify(() => recoveryCodes[0] ?? '', 'use'), remove]) {
      const check: Scenario['check'] = async (store, results) => {
        insist(
          codes(results).every((one) => one === 'done'),
          codes(results).join(),
        );
        const isSet = await isEnrolled(store);
        insist(isSet || !(await factorCollection(store).findOne({ id: ADA }))?.recoveryKey, 'codes are left');
        insist(!isSet || results.includes(undefined), 'it was not removed');
        await checkMails(store, isSet ? 0 : 1);
      };
      holds(t, await explore({ setup: enrolled, actors: [remove, other], crash: true, check }));
    }
  },
);
