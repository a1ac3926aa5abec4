import t from 'tap';
import { clientCollection } from '../../../src/idp/provisioning/store.js';
import { decodeEntities } from '../../kit/agent.js';
import { basic, PASSWORD } from '../../kit/app.js';
import { delegationWorld } from '../../kit/delegations.js';
import { begin, deviceApp, enterCode, poll } from '../../kit/device.js';
import { addGroups, memberOf } from '../../kit/groups.js';
import {
  authorizePath,
  type Credentials,
  claimsOf,
  type IdpApp,
  idpApp,
  idpStore,
  type RegisteredClient,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { addResource, FILES } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';

/** Which groups may use an application or an API: in every grant. */

const SCOPE = 'openid offline_access';

/** A member of the group that an application admits, a member of another group, and a person in none. */
async function world(t: Parameters<typeof idpApp>[0], options = {}) {
  const idp = await idpApp(t, options);
  const [member, other, none] = [await idp.makeHuman(), await idp.makeHuman(), await idp.makeHuman()];
  const groups = await addGroups(t, idp, { admins: [member.sub], staff: [other.sub] });
  const client = await idp.createClient({ admitted_groups: ['admins'] });
  const leave = async ({ sub }: Credentials) =>
    groups.removeMember('admins', await memberOf(idp, sub), COMMAND_SOURCE);
  const join = async ({ sub }: Credentials) =>
    groups.addMember('admins', await memberOf(idp, sub), COMMAND_SOURCE);
  return { idp, member, other, none, client, groups, leave, join };
}

const errorOf = async (idp: IdpApp, client: RegisteredClient, who: Credentials) => {
  const { headers } = await idp.authorize(client, who);
  return new URL(headers['location'] ?? 'none:').searchParams.get('error');
};

t.test('only members of an admitted group get a code, and lose it with the membership', async (t) => {
  const { idp, member, other, none, client, groups, leave } = await world(t);
  const agent = { handle: 'bot@example.test', password: PASSWORD };
  const { sub } = (await idp.request('POST', '/v1/accounts', { body: agent })).body;
  const bot = { ...agent, sub };
  for (const who of [other, none, bot]) t.equal(await errorOf(idp, client, who), 'access_denied', who.handle);
  const [first, second] = [
    await idp.codeFor(client, member),
    await idp.codeFor(client, member, { scope: SCOPE }),
  ];
  const { body } = await idp.redeem(client, second);
  await leave(member);
  t.match(await idp.redeem(client, first), { status: 400, body: { error: 'invalid_grant' } });
  t.match(await idp.refresh(client, body.refresh_token), { status: 400, body: { error: 'invalid_grant' } });
  t.equal(await errorOf(idp, client, member), 'access_denied');
  await groups.addMember('admins', await memberOf(idp, member.sub), COMMAND_SOURCE);
  t.equal((await idp.refresh(client, body.refresh_token)).status, 200, 'a member again');
  await groups.remove('admins', COMMAND_SOURCE);
  idp.clock.advance(1000);
  t.equal(await errorOf(idp, client, member), 'access_denied', 'a group that does not exist admits nobody');
  await groups.add({ name: 'admins' }, COMMAND_SOURCE);
  idp.clock.advance(1000);
  t.equal(
    await errorOf(idp, client, member),
    'access_denied',
    'nor does a new one of its name without members',
  );
});

t.test('a page says that the person has no access and whom to ask', async (t) => {
  const options = { publicUrl: undefined, supportContact: 'help@example.com' };
  const { idp, member, other, client, leave, join } = await world(t, options);
  const origin = await idp.listen();
  const { browser, page } = await idp.visit(client);
  t.notMatch(page.body, 'prompt=create', 'sign-up would lead to nothing');
  const refused = await browser.submit(page, { handle: other.handle, password: PASSWORD });
  t.equal(refused.status, 403);
  t.match(refused.body, sentence('not-admitted.title'));
  t.match(refused.body, '<a href="mailto:help@example.com">help@example.com</a>');
  t.match(decodeEntities(refused.body), 'error=access_denied', 'the way back to the application');
  // Signed in elsewhere.
  const elsewhere = await browser.open(origin + authorizePath(await idp.createClient()));
  await browser.submit(elsewhere, { handle: other.handle, password: PASSWORD });
  const again = await browser.open(origin + authorizePath(client));
  t.match([again.status, again.body], [403, sentence('not-admitted.title')]);
  const silent = await browser.get(origin + authorizePath(client, { prompt: 'none' }));
  t.match(silent.location, /error=access_denied/, 'a request that forbids pages gets the error');
  const [, href = ''] = /<p class="aside"><a href="([^"]*)"/.exec(again.body) ?? [];
  const form = await browser.open(origin + decodeEntities(href));
  const entered = await browser.submit(form, { handle: member.handle, password: PASSWORD });
  t.match(entered.location, /code=ac_/, 'another account');
  await leave(member);
  t.equal((await browser.open(origin + authorizePath(client))).status, 403, 'the session does not help');
  await join(member);
  t.match((await browser.get(origin + authorizePath(client))).location, /code=ac_/);
});

t.test('without a contact, the page names the operator', async (t) => {
  const { idp, none, client } = await world(t, { publicUrl: undefined });
  const { browser, page } = await idp.visit(client);
  const refused = await browser.submit(page, { handle: none.handle, password: PASSWORD });
  t.match(refused.body, /Ask the operator of <code>/);
  t.notMatch(refused.body, /mailto:/);
});

t.test('a device signs in members only', async (t) => {
  const { idp, client, human } = await deviceApp(t, { publicUrl: undefined });
  const stranger = await idp.makeHuman();
  const groups = await addGroups(t, idp, { viewers: [human.sub] });
  const clients = clientCollection(await idpStore(t, idp));
  await clients.updateOne({ id: client.id }, { set: { admittedGroups: ['viewers'] } });
  const ask = async () => (await begin(idp, client, { scope: 'openid' })).body;
  const first = await ask();
  t.equal((await enterCode(idp, stranger, first.user_code)).page.status, 403);
  const { browser, page } = await enterCode(idp, human, first.user_code);
  await groups.removeMember('viewers', await memberOf(idp, human.sub), COMMAND_SOURCE);
  await browser.submit(page, { decision: 'allow' });
  t.match((await poll(idp, client, first.device_code)).body, { error: 'authorization_pending' });
  await groups.addMember('viewers', await memberOf(idp, human.sub), COMMAND_SOURCE);
  const second = await ask();
  const opened = await enterCode(idp, human, second.user_code);
  await opened.browser.submit(opened.page, { decision: 'allow' });
  await groups.removeMember('viewers', await memberOf(idp, human.sub), COMMAND_SOURCE);
  t.match(
    (await poll(idp, client, second.device_code)).body,
    { error: 'invalid_grant' },
    'removed after the decision',
  );
});

t.test('an API admits members only: agents for themselves, applications and refreshes', async (t) => {
  const idp = await idpApp(t);
  const [member, other] = [await idp.mintAgent(), await idp.mintAgent()];
  const groups = await addGroups(t, idp, { robots: [member.sub], staff: [other.sub] });
  const files = await addResource(t, idp, FILES, { admittedGroups: ['robots'] });
  const direct = ({ sub, password }: Credentials) =>
    idp.request('POST', '/token', {
      form: { grant_type: 'client_credentials', resource: FILES, scope: 'files:read' },
      headers: { authorization: basic(sub, password) },
    });
  const client = await idp.createClient();
  const asks = { resource: FILES, scope: 'openid files:read offline_access' };
  t.equal((await direct(member)).status, 200);
  t.match(await direct(other), {
    status: 400,
    body: { error: 'invalid_target', error_description: /none of the groups/ },
  });
  t.match((await idp.authorize(client, other, asks)).headers['location'], /error=access_denied/);
  const { body } = await idp.redeem(client, await idp.codeFor(client, member, asks));
  t.equal(claimsOf(body.access_token).aud, FILES);
  await groups.removeMember('robots', await memberOf(idp, member.sub), COMMAND_SOURCE);
  t.equal((await direct(member)).status, 400);
  t.match(await idp.refresh(client, body.refresh_token), { status: 400, body: { error: 'invalid_target' } });
  await files.update(FILES, { admittedGroups: [] }, COMMAND_SOURCE);
  t.equal((await direct(other)).status, 200, 'an empty list admits all');
});

t.test('a delegation is worth nothing once the person or the agent has left the group', async (t) => {
  const { idp, files, human, agent, allow, redeem, delegate, exchange } = await delegationWorld(t);
  const groups = await addGroups(t, idp, { robots: [human.sub, agent.sub] });
  await files.update(FILES, { admittedGroups: ['robots'] }, COMMAND_SOURCE);
  for (const who of [human, agent]) {
    const { delegation_token: token } = await delegate();
    const member = await memberOf(idp, who.sub);
    const code = await allow();
    await groups.removeMember('robots', member, COMMAND_SOURCE);
    t.match(await redeem(code), { status: 400, body: { error: 'invalid_target' } }, 'the code');
    t.equal((await exchange(token, { resource: FILES })).status, 400, 'the token');
    await groups.addMember('robots', member, COMMAND_SOURCE);
  }
});
