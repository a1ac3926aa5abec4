import t from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { codes, holds, insist } from '../../saas/auth/explored-service.js';
import { approved, CLIENT, DEVICE_CODE, decide, flowOn, ownerOf, poll, setup } from './explored-devices.js';

/** Decisions and polls beside each other, killed at any call. */

const resultOf = (result: PromiseSettledResult<unknown> | undefined) =>
  result?.status === 'fulfilled' ? result.value : undefined;

t.test('two polls of an approved code: in every order and with a crash, one gets valid tokens', async (t) => {
  const check: Scenario['check'] = async (store, results) => {
    const given = results.flatMap((result) => (resultOf(result) as { access_token: string }) ?? []);
    insist(given.length <= 1, 'tokens twice');
    const isCrashed = results.includes(undefined);
    insist(isCrashed || given.length === 1, 'no tokens');
    for (const { access_token: token } of given) await flowOn(store, 'check').tokens.userinfo(token);
    // Without tokens, the crashed poll has either used the code, or the next poll gets them.
    const later = await poll('later')(store).catch((error: { code: string }) => error.code);
    insist(given.length === 0 || later === 'invalid_grant', 'tokens for a used code');
    insist(
      codes(results.filter((one) => one !== undefined)).every((one) =>
        ['done', 'invalid_grant'].includes(one),
      ),
      codes(results).join(),
    );
  };
  holds(t, await explore({ setup: approved, actors: [poll('one'), poll('two')], crash: true, check }));
});

t.test('a poll whose writes get lost in an outage gets tokens with its repetition', async (t) => {
  const actor = async (store: Store) => {
    const { flow } = flowOn(store, 'one');
    for (let times = 0; ; times++) {
      try {
        return await flow.poll(CLIENT, { deviceCode: DEVICE_CODE, resources: [] });
      } catch (error) {
        if ((error as { code?: string }).code !== 'STORE_UNAVAILABLE' && times > 4) throw error;
        if ((error as { code?: string }).code === 'invalid_grant') throw error;
      }
    }
  };
  const check: Scenario['check'] = async (_store, [result]) => {
    insist(result?.status === 'fulfilled', String(result?.status === 'rejected' && result.reason));
  };
  holds(t, await explore({ setup: approved, actors: [actor], losses: 2, check }));
});

t.test('approvals and a denial: in every order and with a crash, one decision holds', async (t) => {
  const actors = [decide('approve', 'u_ada'), decide('approve', 'u_eve'), decide('deny', 'u_bob')];
  const check: Scenario['check'] = async (store, results) => {
    const [ada, eve, bob] = results.map((result) => resultOf(result) === true);
    insist([ada, eve, bob].filter(Boolean).length <= 1, 'two decisions');
    insist(results.includes(undefined) || ada || eve || bob || false, 'no decision');
    const outcome = await poll('later')(store).then(
      () => 'tokens',
      (error: { code: string }) => error.code,
    );
    const owner = await ownerOf(store);
    if (ada || eve)
      insist(outcome === 'tokens' && owner === (ada ? 'u_ada' : 'u_eve'), `${owner} ${outcome}`);
    if (bob) insist(outcome === 'access_denied' && owner === undefined, outcome);
  };
  holds(t, await explore({ setup, actors, crash: true, check }));
});

t.test('a poll beside an approval and a denial never gets the tokens of a denied request', async (t) => {
  const actors = [poll('one'), decide('approve', 'u_ada'), decide('deny', 'u_bob')];
  const check: Scenario['check'] = async (store, [polled, ada, bob]) => {
    if (resultOf(bob) === true) insist(resultOf(polled) === undefined, 'tokens after a denial');
    if (resultOf(polled))
      insist((await ownerOf(store)) === 'u_ada' && resultOf(ada) !== false, 'of somebody else');
  };
  holds(t, await explore({ setup, actors, crash: true, check }));
});
