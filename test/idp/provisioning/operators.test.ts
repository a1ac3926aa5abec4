import t, { type Test } from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { ADMIN_TOKEN, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';
import { rolesOf } from '../../kit/operator.js';

/** The role of operators and the links that grant it. */

const HOST = { ip: 'cli', isDisconnected: () => false };

/** What the commands of the host use, on the store of `idp`. */
async function onTheHost(t: Test, idp: IdpApp) {
  const store = await idpStore(t, idp);
  const principals = principalCollection(store);
  const roles = await rolesOf(t, idp);
  const isOperator = async (sub: string) =>
    (await principals.findOne({ id: sub }))?.operatorSince !== undefined;
  return { roles, isOperator, principals, store };
}

const linkOf = (idp: IdpApp) => idp.server.fastify.idp.createFirstOperatorLink();

const accept = (idp: IdpApp, url: string, body: Record<string, unknown>) =>
  idp.request('POST', new URL(url).pathname, { body });

t.test('only active people become operators, and the role ends with the account', async (t) => {
  const idp = await idpApp(t);
  const { roles, isOperator } = await onTheHost(t, idp);
  const [ada, bob, agent] = [await idp.makeHuman(), await idp.makeHuman(), await idp.mintAgent()];
  await idp.admin('POST', '/v1/invites', { handle: 'invited@example.test' });
  const [invited] = (await idp.admin('GET', '/v1/principals?prefix=invited')).body.principals;
  t.ok((await roles.grant(ada.sub, HOST))?.operatorSince);
  t.equal((await roles.grant(ada.sub, HOST))?.operatorSince, idp.clock.now(), 'twice is once');
  await roles.grant(bob.sub, HOST);
  t.same((await roles.list()).items.map(({ id }) => id).sort(), [ada.sub, bob.sub].sort());
  for (const sub of [agent.sub, invited.sub]) {
    await t.rejects(roles.grant(sub, HOST), { code: 'wrong_state' });
    t.notOk(await isOperator(sub));
  }
  t.equal(await roles.grant('u_0', HOST), null);

  await idp.admin('POST', `/v1/principals/${ada.sub}/disable`);
  await t.rejects(roles.grant(ada.sub, HOST), { code: 'wrong_state' });
  await idp.admin('POST', `/v1/principals/${ada.sub}/enable`);
  t.notOk(await isOperator(ada.sub), 'no request restores the role');
  await roles.revoke(bob.sub, HOST);
  await roles.revoke(bob.sub, HOST);
  t.notOk(await isOperator(bob.sub));
  t.same((await roles.list()).items, []);
});

t.test('the first operator of an empty store chooses a name and a password, once', async (t) => {
  const idp = await idpApp(t);
  const { isOperator, store } = await onTheHost(t, idp);
  const link = await linkOf(idp);
  t.ok(link);
  const { url = '', expiresAt } = link ?? {};
  t.equal(expiresAt, idp.clock.now() + 3_600_000);
  t.equal(await linkOf(idp), null, 'one link at a time');
  const page = await idp.request('GET', new URL(url).pathname, { headers: { accept: 'text/html' } });
  t.match(page, { status: 200, text: /Create the first operator/ });
  t.match(page.text, /name="handle"/);

  const rejected = [
    [{ password: PASSWORD }, 400],
    [{ password: PASSWORD, handle: 'a' }, 400],
    [{ password: 'short', handle: 'ada' }, 422],
    [{ password: PASSWORD, password_confirm: 'x', handle: 'ada' }, 422],
  ] as const;
  for (const [body, status] of rejected) t.equal((await accept(idp, url, body)).status, status);
  const agent = await idp.mintAgent();
  const taken = await accept(idp, url, { password: PASSWORD, handle: agent.handle });
  t.match(taken, { status: 409, body: { error: 'handle_taken' } });
  const made = await accept(idp, url, { password: PASSWORD, handle: 'Ada' });
  t.match(made, { status: 201, body: { handle: 'ada', kind: 'human' } });
  t.ok(await isOperator(made.body.sub));
  t.equal((await accept(idp, url, { password: PASSWORD, handle: 'bob' })).status, 410, 'once');
  idp.clock.advance(7_200_000);
  t.equal(await linkOf(idp), null, 'a store with a principal gets no link');
  const events = (await auditOf(store)).filter(({ subject }) => subject === made.body.sub);
  t.match(JSON.stringify(events), /operator\.granted/);
});

t.test('the link of the first operator works for an hour, and another one follows it', async (t) => {
  const idp = await idpApp(t);
  const first = await linkOf(idp);
  idp.clock.advance(3_600_000);
  const input = { password: PASSWORD, handle: 'ada' };
  t.equal((await accept(idp, first?.url ?? '', input)).status, 410);
  const links = await Promise.all([linkOf(idp), linkOf(idp), linkOf(idp)]);
  const [second, ...others] = links.filter((link) => link !== null);
  t.same(others, []);
  t.equal((await accept(idp, first?.url ?? '', input)).status, 404);
  t.equal((await accept(idp, `${second?.url.slice(0, -1)}x`, input)).status, 404);
  const answers = await Promise.all(
    ['ada', 'bob', 'eve'].map((handle) => accept(idp, second?.url ?? '', { ...input, handle })),
  );
  t.same(answers.map(({ status }) => status).sort(), [201, 410, 410]);
  const { principals } = (await idp.admin('GET', '/v1/principals')).body;
  t.equal(principals.length, 1);
});

t.test('an invitation over HTTP grants no role, not even to a person invited as operator', async (t) => {
  const idp = await idpApp(t);
  const { isOperator, principals } = await onTheHost(t, idp);
  const { body } = await idp.admin('POST', '/v1/invites', { handle: 'ada' });
  const invited = await principals.findOne({ handle: 'ada' });
  // As the command `idp operator invite` leaves it.
  await principals.updateOne(
    { id: invited?.id ?? '' },
    { set: { operatorLinkHash: invited?.linkHash ?? '' } },
  );
  const again = await idp.request('POST', '/v1/invites', { token: ADMIN_TOKEN, body: { handle: 'ada' } });
  t.equal((await accept(idp, body.invite_url, { password: PASSWORD })).status, 404);
  const made = await accept(idp, again.body.invite_url, { password: PASSWORD, handle: 'ignored' });
  t.match(made, { status: 201, body: { handle: 'ada' } });
  t.notOk(await isOperator(made.body.sub));
});
