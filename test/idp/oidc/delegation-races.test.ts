import t from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { revocationCollection } from '../../../src/idp/oidc/revocations/service.js';
import { grantCollection } from '../../../src/idp/oidc/store.js';
import type { TokenResponse } from '../../../src/idp/oidc/tokens/issuance.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { holds, insist } from '../../saas/auth/explored-service.js';
import { GRANT_ID, IP, idOf, PERMISSION, PERSON, processOn, setup } from './explored-delegations.js';

/** Exchanges, permissions and ends of delegations beside each other, killed at any call. */

const isDelegated = async (store: Store): Promise<boolean> =>
  (await idOf(store)).some(({ revokedAt }) => revokedAt === undefined);

const given = (results: (PromiseSettledResult<unknown> | undefined)[]): TokenResponse[] =>
  results.flatMap((result) =>
    result?.status === 'fulfilled' && result.value !== undefined ? [result.value as TokenResponse] : [],
  );

t.test('two exchanges of one token: in every order and with a crash, they have one successor', async (t) => {
  const actors = ['one', 'two'].map((seed) => (store: Store) => processOn(store, seed).exchange());
  const check: Scenario['check'] = async (store, results) => {
    const answers = given(results);
    insist(
      results.every((result) => result?.status !== 'rejected'),
      'one was refused',
    );
    insist(new Set(answers.map((one) => one.delegation_token)).size <= 1, 'two successors');
    insist(await isDelegated(store), 'the delegation has ended');
    // A client without a response repeats the request.
    const again = await processOn(store, 'again').exchange();
    const [first = again] = answers;
    insist(again.delegation_token === first.delegation_token, 'another successor');
  };
  holds(t, await explore({ setup, actors, crash: true, check }));
});

t.test('an exchange whose writes get lost is repeated without ending the delegation', async (t) => {
  const actor = async (store: Store) => {
    const { exchange } = processOn(store, 'one');
    for (let times = 0; ; times++) {
      try {
        return await exchange();
      } catch (error) {
        if ((error as { code?: string }).code === 'invalid_grant' || times > 4) throw error;
      }
    }
  };
  const check: Scenario['check'] = async (store, [result]) => {
    insist(result?.status === 'fulfilled', String(result?.status === 'rejected' && result.reason));
    insist(await isDelegated(store), 'the delegation has ended');
  };
  holds(t, await explore({ setup, actors: [actor], losses: 2, check }));
});

t.test('an end beside an exchange: afterwards nothing is issued, whatever crashes', async (t) => {
  const actors = [
    (store: Store) => processOn(store, 'one').exchange(),
    async (store: Store) => {
      const [found] = await idOf(store);
      return processOn(store, 'two').delegations.endOwn(PERSON, found?.id ?? '', { ip: IP });
    },
  ];
  const check: Scenario['check'] = async (store, [, ended]) => {
    const isEnded = ended?.status === 'fulfilled';
    insist(!isEnded || !(await isDelegated(store)), 'it has not ended');
    const later = await processOn(store, 'later')
      .exchange()
      .then(
        () => 'issued',
        (error: { code: string }) => error.code,
      );
    insist((later === 'issued') === (await isDelegated(store)), later);
    const { items } = await revocationCollection(store).page({ sort: 'id', limit: 9 });
    insist((await isDelegated(store)) || items.length > 0, 'resource servers do not learn of it');
  };
  holds(t, await explore({ setup, actors, crash: true, check }));
});

t.test('permissions and an end beside each other: there is one delegation at most', async (t) => {
  const give = (seed: string) => (store: Store) => processOn(store, seed).delegations.give(PERMISSION, IP);
  const end = async (store: Store) => {
    const [found] = await idOf(store);
    return processOn(store, 'end').delegations.end(found?.id ?? '', { ip: IP });
  };
  const check: Scenario['check'] = async (store, results) => {
    const stored = await idOf(store);
    insist(stored.length <= 1, 'two delegations');
    insist(results.includes(undefined) || stored.length === 1, 'none');
    const { exchange } = processOn(store, 'later');
    const code = await exchange().then(
      () => 'issued',
      (error: { code: string }) => error.code,
    );
    const isFirst =
      (await grantCollection(store).findOne({ id: GRANT_ID }))?.delegation?.id === stored[0]?.id;
    insist(isFirst || code === 'invalid_grant', 'the token of a replaced delegation works');
  };
  holds(t, await explore({ setup, actors: [give('one'), give('two'), end], crash: true, check }));
});
