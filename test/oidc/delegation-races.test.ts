import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { SECOND } from '../../src/kernel/clock.js';
import { createPushedAuthorization } from '../../src/oidc/authorize/pushed.js';
import { revocationCollection } from '../../src/oidc/revocations/service.js';
import { grantCollection, pushedRequestCollection } from '../../src/oidc/store.js';
import type { TokenResponse } from '../../src/oidc/tokens/issuance.js';
import type { Store } from '../../src/storage/collection.js';
import { openStore } from '../../src/storage/open.js';
import { holds, insist } from '../auth/explored-service.js';
import { fakeClock } from '../kit/clock.js';
import { explore, type Scenario } from '../kit/explore.js';
import { compiled } from '../kit/process.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';
import { onMongod } from '../storage/mongod.js';
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

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(
    `${engine}: fifty exchanges over four connections have one successor, and an end holds`,
    async (t) => {
      const uri = fresh(t);
      const stores = await Promise.all(Array.from({ length: 4 }, () => openStore(uri)));
      t.teardown(() => Promise.all(stores.map((store) => store.close())));
      const [first] = stores as [Store];
      await setup(first);
      const processes = stores.map((store, index) => processOn(store, String(index)));
      const spread = <T>(call: (one: (typeof processes)[number], index: number) => Promise<T>) =>
        Promise.allSettled(
          Array.from({ length: 50 }, (_, index) =>
            call(processes[index % 4] as (typeof processes)[number], index),
          ),
        );
      const answers = given(await spread(({ exchange }) => exchange()));
      t.equal(answers.length, 50);
      t.equal(new Set(answers.map((one) => one.delegation_token)).size, 1);
      const next = answers[0]?.delegation_token;
      const [found] = await idOf(first);
      await spread(async ({ exchange, delegations }, index) =>
        index === 25 ? delegations.end(found?.id ?? '', { ip: IP }) : exchange(next),
      );
      const later = await spread(({ exchange }) => exchange(next));
      t.equal(given(later).length, 0);
      t.notOk(await isDelegated(first));
      for (const { clock } of processes) clock.advance(31 * SECOND);
    },
  );
}

/** Kills a process (-9) at each of its calls, `moment` it, and checks what is left each time. */
function killsOn(engine: string, moment: 'before' | 'during', fresh: (t: Test) => string): void {
  t.test(`${engine}: kill -9 ${moment} any call of a delegation or a pushed request`, async (t) => {
    const codeOf = (error: { code: string }) => error.code;
    const checks: Record<string, (store: Store, requestUri: string, isDone: boolean) => Promise<void>> = {
      async exchange(store) {
        // A client without a response repeats the request, and its successor works.
        const again = await processOn(store, 'again').exchange();
        t.same((await processOn(store, 'third').exchange()).delegation_token, again.delegation_token);
        t.ok((await processOn(store, 'next').exchange(again.delegation_token)).access_token);
        t.equal(await isDelegated(store), true);
      },
      async end(store, _, isDone) {
        const isEnded = !(await isDelegated(store));
        if (isDone) t.equal(isEnded, true);
        const code = await processOn(store, 'later')
          .exchange()
          .then(() => 'issued', codeOf);
        t.equal(code, isEnded ? 'invalid_grant' : 'issued', 'an ended delegation stays ended');
        const { items } = await revocationCollection(store).page({ sort: 'id', limit: 9 });
        if (isEnded) t.equal(items.length, 1, 'resource servers learn of it');
      },
      async give(store, _, isDone) {
        const stored = await idOf(store);
        t.ok(stored.length <= 1 && (!isDone || stored.length === 1));
        const isFirst =
          (await grantCollection(store).findOne({ id: GRANT_ID }))?.delegation?.id === stored[0]?.id;
        const code = await processOn(store, 'later')
          .exchange()
          .then(() => 'issued', codeOf);
        t.equal(code, isFirst ? 'issued' : 'invalid_grant', 'what was replaced has ended');
        await processOn(store, 'again').delegations.give(PERMISSION, IP);
        t.equal(await isDelegated(store), true, 'and the person can repeat it');
      },
      async take(store, requestUri, isDone) {
        const pushed = createPushedAuthorization(pushedRequestCollection(store), {
          ...{ clock: fakeClock(), random: countedRandom() },
        });
        const take = () => pushed.take('cid_1', requestUri).then(() => 'taken', codeOf);
        const used = [isDone ? 'taken' : 'killed', await take(), await take()];
        t.ok(used.filter((one) => one === 'taken').length <= 1, used.join());
      },
    };
    for (const [work, check] of Object.entries(checks)) {
      for (let step = 1, isDone = false; !isDone; step++) {
        const uri = fresh(t);
        const store = await openStore(uri);
        await setup(store);
        const { request_uri: requestUri } = await createPushedAuthorization(pushedRequestCollection(store), {
          ...{ clock: fakeClock(), random: countedRandom('pushed') },
        }).push('cid_1', { scope: 'openid' });
        const args = [
          compiled('test/oidc/delegation-kill-worker.js'),
          uri,
          String(step),
          moment,
          work,
          requestUri,
        ];
        const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
        const [code, signal] = await once(child, 'exit');
        isDone = code === 0;
        if (!isDone) t.equal(signal, 'SIGKILL', `${work} ${step}`);
        await check(store, requestUri, isDone);
        await store.close();
        if (step > 30) throw new Error(`${work} never comes to an end`);
      }
    }
  });
}

killsOn('SQLite', 'during', (t) => `sqlite:${temporaryFolder(t)}/killed.db`);
forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/delegations.db`);
await onMongod((server) => {
  killsOn('MongoDB', 'before', (t) => server.fresh(t));
  forEngine('MongoDB', (t) => server.fresh(t));
});
