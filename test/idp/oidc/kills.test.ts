import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t, { type Test } from 'tap';
import type { Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { revocationCollection } from '../../../src/idp/oidc/revocations/service.js';
import { grantCollection } from '../../../src/idp/oidc/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { countCalls } from '../../kit/killed-at.js';
import { compiled } from '../../kit/process.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { GRANT_ID, HANDLE, IP, idOf, PERMISSION, processOn } from './explored-delegations.js';
import { decide, flowOn, ownerOf, poll } from './explored-devices.js';
import { pushedOn, WORKS, type Work } from './killed-works.js';

/** kill -9 of a process that works with a delegation, a pushed request or a device code. */

/** `npm run test:kills` kills at each call; otherwise each work is killed once, at a call that its name decides. */
const IS_FULL = process.env['KILL_ROUNDS'] !== undefined;

type Name = keyof typeof WORKS;

interface Left {
  store: Store;
  token: string;
  /** Whether the process came to its end. */
  isDone: boolean;
}

const outcomeOf = (result: Promise<unknown>): Promise<string> =>
  result.then(
    () => 'done',
    (error: { code: string }) => error.code,
  );

const isDelegated = async (store: Store): Promise<boolean> =>
  (await idOf(store)).some(({ revokedAt }) => revokedAt === undefined);

/** A client without a response repeats the request, and its successor works. */
const repeats =
  (presented: (token: string) => string) =>
  async (t: Test, { store, token }: Left) => {
    const again = await processOn(store, 'again').exchange(presented(token));
    const third = await processOn(store, 'third').exchange(presented(token));
    t.same(third.delegation_token, again.delegation_token, 'there is one successor');
    t.ok((await processOn(store, 'next').exchange(again.delegation_token)).access_token);
    t.equal(await isDelegated(store), true);
  };

/** What must hold afterwards. */
const CHECKS: Record<Name, (t: Test, left: Left) => Promise<void>> = {
  'an exchange of the token of a delegation': repeats(() => HANDLE),
  async 'an exchange of its successor'(t, left) {
    await repeats((token) => token)(t, left);
    t.equal(await outcomeOf(processOn(left.store, 'late').exchange()), 'invalid_grant');
    t.equal(await isDelegated(left.store), false, 'a token before the previous one ends the delegation');
  },
  async 'the end of a delegation'(t, { store, isDone }) {
    const isEnded = !(await isDelegated(store));
    if (isDone) t.equal(isEnded, true);
    const later = await outcomeOf(processOn(store, 'later').exchange());
    t.equal(later, isEnded ? 'invalid_grant' : 'done', 'an ended delegation stays ended');
    const { items } = await revocationCollection(store).page({ sort: 'id', limit: 9 });
    if (isEnded) t.equal(items.length, 1, 'resource servers learn of it');
  },
  async 'a permission in place of another'(t, { store, isDone }) {
    const stored = await idOf(store);
    t.ok(stored.length <= 1 && (!isDone || stored.length === 1), 'there is one at most');
    const grant = await grantCollection(store).findOne({ id: GRANT_ID });
    const isFirst = grant?.delegation?.id === stored[0]?.id;
    const later = await outcomeOf(processOn(store, 'later').exchange());
    t.equal(later, isFirst ? 'done' : 'invalid_grant', 'what was replaced has ended');
    await processOn(store, 'again').delegations.give(PERMISSION, IP);
    t.equal(await isDelegated(store), true, 'and the person can repeat it');
  },
  async 'the use of a pushed request'(t, { store, token, isDone }) {
    const use = async () => ((await pushedOn(store).use(token)) ? 'done' : 'used');
    const uses = [isDone ? 'done' : 'killed', await use(), await use()];
    t.ok(uses.filter((use) => use === 'done').length <= 1, uses.join());
  },
  async 'the approval of a device'(t, { store, isDone }) {
    // Another person submits the form afterwards.
    const isOpen = await decide('approve', 'u_eve')(store);
    t.notOk(isDone && isOpen, 'a decision holds');
    t.equal(await outcomeOf(poll('later')(store)), 'done');
    t.equal(await ownerOf(store), isOpen ? 'u_eve' : 'u_ada');
  },
  async 'the redemption of a device code'(t, { store, isDone }) {
    const answers = await Promise.allSettled([poll('again')(store)]);
    const [again] = answers;
    if (again?.status === 'fulfilled') await flowOn(store, 'check').tokens.userinfo(again.value.access_token);
    const first = again?.status === 'fulfilled' ? 'done' : again?.reason.code;
    const uses = [isDone ? 'done' : 'killed', first, await outcomeOf(poll('third')(store))];
    t.ok(uses.filter((use) => use === 'done').length <= 1, uses.join());
    t.equal(uses[2], 'invalid_grant', 'the code is used');
    t.equal(await ownerOf(store), 'u_ada');
  },
};

/** @param moments of a call at which the process is killed */
function forEngine(engine: string, moments: readonly string[], fresh: (t: Test) => string): void {
  for (const [name, work] of Object.entries(WORKS) as [Name, Work][]) {
    t.test(`${engine}: ${name}, killed at any call, holds or can be repeated`, async (t) => {
      const prepared = async (use: (uri: string, store: Store, token: string) => Promise<void>) => {
        const uri = fresh(t);
        const store = await openStore(uri);
        try {
          await use(uri, store, await work.prepare(store));
        } finally {
          await store.close();
        }
      };
      let calls = 0;
      await prepared(async (_uri, store, token) => {
        calls = await countCalls(store, (counted) => work.run(counted, token));
        await CHECKS[name](t, { store, token, isDone: true });
      });
      const [one = 0] = countedRandom(engine + name).bytes(1);
      const steps = IS_FULL ? Array.from({ length: calls }, (_, index) => index + 1) : [1 + (one % calls)];
      for (const moment of moments) {
        for (const step of steps) {
          await prepared(async (uri, store, token) => {
            const args = [compiled('test/idp/oidc/kill-worker.js'), uri, String(step), moment, name, token];
            const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
            const [, signal] = await once(child, 'exit');
            t.equal(signal, 'SIGKILL', `${moment} call ${step} of ${calls}`);
            await CHECKS[name](t, { store, token, isDone: false });
          });
        }
      }
    });
  }
}

forEngine(
  'SQLite',
  IS_FULL ? ['before', 'during'] : ['during'],
  (t) => `sqlite:${temporaryFolder(t)}/killed.db`,
);
await onMongod((server) => {
  // Not during a call: a write of a killed process could reach the server in the middle of the checks.
  forEngine('MongoDB', ['before'], (t) => server.fresh(t));
});
