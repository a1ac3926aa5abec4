import { setImmediate } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { groupCollection } from '../../../src/idp/groups/store.js';
import { agentsIn } from '../../kit/agent-keys.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import { signInAt } from '../../kit/delegations.js';
import { addGroups } from '../../kit/groups.js';
import { idpApp, idpStore, search } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES, introspect } from '../../kit/resources.js';

/** An agent stops with whoever answers for it, and at its end. */

const DAY = 86_400_000;

async function start(t: Test) {
  const idp = await idpApp(t, { limits: false });
  const files = await addResource(t, idp);
  let count = 0;
  const mint = async (more: object) =>
    (await idp.admin('POST', '/v1/agents', { handle: `bot${++count}@example.test`, ...more })).body;
  const ask = (by: { sub: string; password: string }) =>
    idp.request('POST', '/token', {
      form: search({ grant_type: 'client_credentials', resource: FILES }),
      headers: { authorization: basic(by.sub, by.password) },
    });
  const isActive = async (token: string) => (await introspect(idp, files, token)).body.active;
  const get = async (sub: string) => (await idp.admin('GET', `/v1/principals/${sub}`)).body;
  return { idp, files, mint, ask, isActive, get };
}

t.test('an agent stops with the person who answers for it', async (t) => {
  const { idp, mint, ask, isActive, get } = await start(t);
  const [owner, other] = [await idp.makeHuman(), await idp.makeHuman()];
  const [agent, others] = [
    await mint({ owner: owner.sub, purpose: 'Weekly reports' }),
    await mint({ owner: other.sub }),
  ];
  t.match(await get(agent.sub), { owner: owner.sub, purpose: 'Weekly reports', self_registered: false });
  const [first, second] = [(await ask(agent)).body.access_token, (await ask(others)).body.access_token];
  await idp.admin('POST', `/v1/principals/${owner.sub}/disable`);
  t.same([(await ask(agent)).status, (await ask(others)).status], [401, 200]);
  t.same([await isActive(first), await isActive(second)], [false, true]);
  await idp.admin('POST', `/v1/principals/${owner.sub}/enable`);
  t.equal((await ask(agent)).status, 200, 'the person is back');
});

t.test('the person stops the agent on the account page, and no other one', async (t) => {
  const { idp, mint, ask, get } = await start(t);
  const [owner, stranger] = [await idp.makeHuman(), await idp.makeHuman()];
  const agent = await mint({ owner: owner.sub, name: 'Scout', purpose: 'Weekly reports' });
  const pageOf = async (person: typeof owner) => {
    const browser = await signInAt(idp, person);
    return { browser, page: await browser.open(`${await idp.listen()}/account`) };
  };
  const own = await pageOf(owner);
  t.match(own.page.body, /Scout[\s\S]*Weekly reports/);
  const other = await pageOf(stranger);
  t.notMatch(other.page.body, 'Scout');
  const action = '/account/agents/stop';
  const forged = { ...other.page.form('/account/name'), action: (await idp.listen()) + action };
  await other.browser.send({ ...other.page, form: () => forged }, { agent: agent.sub });
  t.equal((await ask(agent)).status, 200);
  t.match(await own.browser.submit(own.page, {}, action), { status: 200, body: /has stopped/ });
  t.equal((await ask(agent)).status, 401);
  t.match(await get(agent.sub), { state: 'disabled' });
});

t.test('an agent of a group stops with the group, and not with its members', async (t) => {
  const { idp, mint, ask, isActive, get } = await start(t);
  const person = await idp.makeHuman();
  await addGroups(t, idp, { research: [person.sub], staff: [] });
  const agents = [await mint({ owner: 'group:research' }), await mint({ owner: 'group:research' })];
  const other = await mint({ owner: 'group:staff' });
  await idp.admin('DELETE', `/v1/groups/research/members/${person.sub}`);
  await idp.admin('POST', `/v1/principals/${person.sub}/disable`);
  const tokens = await Promise.all(agents.map(async (agent) => (await ask(agent)).body.access_token));
  t.same(await Promise.all(tokens.map(isActive)), [true, true], 'the last member has left');

  const stopped = async () =>
    (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'agent.stopped');
  t.equal((await idp.admin('DELETE', '/v1/groups/research')).status, 204);
  t.same((await stopped()).map(({ subject }) => subject).sort(), agents.map(({ sub }) => sub).sort());
  t.match(await stopped(), [{ detail: 'owner group:research' }, { detail: 'owner group:research' }]);
  t.same(await Promise.all(tokens.map(isActive)), [false, false]);

  await idp.admin('POST', '/v1/groups', { name: 'research' });
  idp.clock.advance(1000);
  const answers = await Promise.all([...agents, other].map(ask));
  t.same(
    answers.map(({ status }) => status),
    [401, 401, 200],
    'another group of the same name has no agents',
  );
  t.match(await get(agents[0].sub), { state: 'active', owner: /^grp_/ });
});

t.test('the permissions of a removed group are not those of the next one', async (t) => {
  const { idp, files, mint, ask } = await start(t);
  await files.permissions.withdraw('*', files, COMMAND_SOURCE);
  const agent = await mint({});
  const join = async () => {
    await addGroups(t, idp, { research: [agent.sub] });
    idp.clock.advance(1000);
  };
  await join();
  await files.permissions.allow('group:research', FILES, {}, COMMAND_SOURCE);
  t.equal((await ask(agent)).status, 200);
  t.equal((await idp.admin('DELETE', '/v1/groups/research')).status, 204);
  await join();
  t.equal((await ask(agent)).status, 400);
});

t.test('an agent that was given to a group during its removal is not that of the next one', async (t) => {
  const { idp, mint, ask } = await start(t);
  await addGroups(t, idp, { research: [] });
  const agent = await mint({ owner: 'group:research' });
  const store = await idpStore(t, idp);
  await groupCollection(store).deleteOne({ name: 'research' });
  idp.clock.advance(1000);
  t.equal((await ask(agent)).status, 401);
  await idp.admin('POST', '/v1/groups', { name: 'research' });
  idp.clock.advance(1000);
  t.equal((await ask(agent)).status, 401);
});

t.test('an agent ends at its time, and the time can be moved', async (t) => {
  const { idp, mint, ask, get } = await start(t);
  const end = new Date(idp.clock.now() + DAY).toISOString();
  const agent = await mint({ expires_at: end });
  const client = await idp.createClient();
  const agents = agentsIn(await idpStore(t, idp), idp);
  t.match(await get(agent.sub), { expires_at: end });
  t.equal((await ask(agent)).status, 200);
  // The use is stored after the response.
  while (!('last_used_at' in (await get(agent.sub)))) await setImmediate();
  t.equal((await get(agent.sub)).last_used_at, new Date(idp.clock.now()).toISOString());
  idp.clock.advance(DAY);
  t.equal((await ask(agent)).status, 401);
  t.not((await idp.authorize(client, agent)).status, 302, 'neither with HTTP Basic');
  await agents.change(agent.sub, { expiresAt: null }, COMMAND_SOURCE);
  t.equal((await ask(agent)).status, 200);
});

t.test('an agent that registered itself ends without a use', async (t) => {
  const { idp, get } = await start(t);
  const register = async (handle: string) => {
    const body = { handle, password: PASSWORD };
    return { ...body, sub: (await idp.request('POST', '/v1/accounts', { body })).body.sub };
  };
  const [used, unused] = [await register('used@example.test'), await register('unused@example.test')];
  const client = await idp.createClient();
  const signsIn = async (agent: typeof used) =>
    new URL((await idp.authorize(client, agent)).headers['location'] ?? 'none:').searchParams.has('code');
  t.match(await get(used.sub), { self_registered: true });
  idp.clock.advance(20 * DAY);
  t.equal(await signsIn(used), true);
  // The use is stored after the response.
  while (!('last_used_at' in (await get(used.sub)))) await setImmediate();
  idp.clock.advance(20 * DAY);
  t.same([await signsIn(used), await signsIn(unused)], [true, false]);
});

t.test('an owner or an end that is not possible is refused', async (t) => {
  const { idp } = await start(t);
  const agent = await idp.mintAgent();
  const cases = [
    { owner: `u_${'0'.repeat(32)}` },
    { owner: 'ada' },
    { owner: agent.sub },
    { owner: 'group:nothing' },
    { expires_at: '2020-01-01T00:00:00Z' },
    { purpose: '' },
  ];
  for (const [index, more] of cases.entries()) {
    const { status } = await idp.admin('POST', '/v1/agents', { handle: `b${index}@example.test`, ...more });
    t.equal(status, 400, JSON.stringify(more));
  }
});
