import t, { type Test } from 'tap';
import { openStore } from '../../../src/core/storage/open.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { PASSWORD } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { type IdpApp, idpApp } from '../../kit/idp.js';
import { COMMAND_SOURCE, enterConsole, rolesOf } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** Two processes while operators are made and removed. */

const ROUNDS = 10;

/** Providers on one store, as several processes would run them. */
async function providers(t: Test, uri: string, count = 2): Promise<IdpApp[]> {
  const clock = fakeClock(Date.now());
  const apps: IdpApp[] = [];
  for (let index = 0; index < count; index++) {
    apps.push(
      await idpApp(t, {
        ...{ databaseUri: uri, clock, limits: false, publicUrl: undefined },
        // So that two processes never choose the same ID.
        random: countedRandom(`process ${index}`),
        folder: temporaryFolder(t),
      }),
    );
  }
  return apps;
}

async function principalsIn(t: Test, uri: string) {
  const store = await openStore(uri);
  t.teardown(() => store.close());
  return principalCollection(store);
}

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(`${engine}: of concurrent uses of the link of the first operator one succeeds`, async (t) => {
    const uri = fresh(t);
    const apps = await providers(t, uri);
    const principals = await principalsIn(t, uri);
    const offers = await Promise.all(apps.map(({ server }) => server.fastify.idp.createFirstOperatorLink()));
    const [link, ...more] = offers.filter((offer) => offer !== null);
    t.same(more, [], 'one process prints a link');
    const path = new URL(link?.url ?? '').pathname;
    const handles = Array.from({ length: 20 }, (_, index) => `operator${index}`);
    const answers = await Promise.all(
      handles.map((handle, index) =>
        (apps[index % 2] as IdpApp).request('POST', path, { body: { handle, password: PASSWORD } }),
      ),
    );
    t.same(answers.map(({ status }) => status).sort(), [201, ...Array(19).fill(410)]);
    const { items } = await principals.page({ sort: 'id', limit: 10 });
    t.equal(items.length, 1);
    t.ok(items[0]?.operatorSince);
    const offered = await Promise.all(apps.map(({ server }) => server.fastify.idp.createFirstOperatorLink()));
    t.same(offered, [null, null]);
  });

  t.test(`${engine}: a grant and a disabling at once leave no disabled operator`, async (t) => {
    const uri = fresh(t);
    const [idp] = (await providers(t, uri, 1)) as [IdpApp];
    const principals = await principalsIn(t, uri);
    const roles = await rolesOf(t, idp, uri);
    for (let round = 0; round < ROUNDS; round++) {
      const { sub } = await idp.makeHuman();
      await Promise.allSettled([
        roles.grant(sub, COMMAND_SOURCE),
        idp.admin('POST', `/v1/principals/${sub}/disable`),
      ]);
      const { state, operatorSince } = (await principals.findOne({ id: sub })) ?? {};
      t.same([state, operatorSince], ['disabled', undefined]);
    }
  });

  t.test(`${engine}: a session that ends in one process ends its open forms in the other`, async (t) => {
    const uri = fresh(t);
    const [one, other] = (await providers(t, uri)) as [IdpApp, IdpApp];
    const principals = await principalsIn(t, uri);
    const operator = await one.makeHuman();
    await principals.updateOne({ id: operator.sub }, { set: { operatorSince: 1 } });
    const { get, browser } = await enterConsole(one, operator);
    const form = await get('/agents/create');
    t.equal(form.status, 200);
    const ending = other.admin('POST', `/v1/principals/${operator.sub}/disable`);
    const [, submitted] = await Promise.all([ending, browser.send(form, { handle: 'scout' })]);
    const made = await principals.findOne({ handle: 'scout' });
    t.equal(made !== null, submitted.status === 200, 'the answer says what happened');
    t.equal((await browser.send(form, { handle: 'another' })).status, 401);
    t.equal(await principals.findOne({ handle: 'another' }), null);
  });
}

forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/idp.db`);
await onMongod((server) => forEngine('MongoDB', server.fresh));
