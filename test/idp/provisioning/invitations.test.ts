import t, { type Test } from 'tap';
import { DAY } from '../../../src/core/kernel/clock.js';
import { memberCollection } from '../../../src/idp/groups/store.js';
import { addressCollection } from '../../../src/idp/provisioning/addresses.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { groupsIn } from '../../kit/groups.js';
import { ADMIN_TOKEN, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';
import { COMMAND_SOURCE, enterConsole, makeOperator } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { sentence } from '../../kit/sentences.js';
import { linksIn, mailedIdp } from './kit.js';

/** Invitations that are mailed, listed, withdrawn, repeated and purged. */

const INVITE_TOKEN = 'inviter-Wc5rNz8qKm2XvB7dLt4JhYp9';
const INVITATION = sentence('mail.invitation.subject');
const LEASE = { term: 1, signal: new AbortController().signal };

const invite = (idp: IdpApp, body: Record<string, unknown>) => idp.admin('POST', '/v1/invites', body);
const pathOf = (answer: { body: { invite_url: string } }) => new URL(answer.body.invite_url).pathname;
const accept = (idp: IdpApp, path: string) => idp.request('POST', path, { body: { password: PASSWORD } });

/** The links of another process on the store. */
async function linksOf(t: Test, idp: IdpApp, seed = 'links') {
  const store = await idpStore(t, idp);
  const deps = { clock: idp.clock, random: countedRandom(seed) };
  return linksIn(store, deps, groupsIn(store, deps));
}

t.test('the link is mailed if that is asked, and still returned', async (t) => {
  const idp = await mailedIdp(t);
  const client = await idp.createClient({
    name: 'Grafana',
    redirect_uris: ['https://grafana.example.test/cb'],
  });
  const names = { handle: 'ada', email: 'ada@example.test', name: 'Ada' };
  const answer = await invite(idp, { ...names, application: 'Grafana', send: true });
  t.match(answer, { status: 201, body: { handle: 'ada', sent_to: 'ada@example.test', days: 7 } });
  const mail = await idp.mail(INVITATION);
  t.same(mail.to, ['ada@example.test']);
  t.match(mail.text, answer.body.invite_url);
  t.match(mail.text, /Grafana/);
  const form = { password: PASSWORD, password_confirm: PASSWORD };
  const done = await idp.request('POST', pathOf(answer), { form });
  t.match(done, { status: 303, headers: { location: `/invite/done?client_id=${client.id}` } });
  const page = await idp.request('GET', `/invite/done?client_id=${client.id}`);
  t.match(page.text.replaceAll('&#x2F;', '/'), 'href="https://grafana.example.test/"');
  t.match(page.text, sentence('invite-done.application', { application: 'Grafana' }));
  for (const other of ['', '?client_id=cid_x', '?client_id=%00', `?client_id=${'x'.repeat(64)}`])
    t.notMatch((await idp.request('GET', `/invite/done${other}`)).text, 'grafana', other);
  t.notOk('sent_to' in (await invite(idp, { handle: 'kim@example.test' })).body, 'not unless asked');
  t.match(await invite(idp, { handle: 'mary', send: true }), {
    status: 400,
    body: { details: [{ path: 'send', message: /no e-mail address/ }] },
  });
  const unknown = await invite(idp, { handle: 'mary', application: 'Unknown' });
  t.match(unknown, { status: 400, body: { details: [{ path: 'application' }] } });
  const silent = await idpApp(t);
  t.match(await invite(silent, { handle: 'ada@example.test', send: true }), {
    status: 400,
    body: { details: [{ path: 'send', message: /no mail server/ }] },
  });
});

t.test('an application of the invitation admits the person by groups alone', async (t) => {
  const idp = await idpApp(t);
  await idp.admin('POST', '/v1/groups', { name: 'staff' });
  const client = await idp.createClient({ admitted_groups: ['staff'] });
  const path = pathOf(await invite(idp, { handle: 'ada@example.test', application: client.id }));
  await accept(idp, path);
  const ada = { sub: '', handle: 'ada@example.test', password: PASSWORD };
  t.match((await idp.authorize(client, ada)).headers['location'], /error=access_denied/);
});

t.test('invitations are listed without their links, and marked when they expire', async (t) => {
  const idp = await idpApp(t, { inviteToken: INVITE_TOKEN });
  const call = (body: object) => idp.request('POST', '/v1/invites', { token: INVITE_TOKEN, body });
  const open = await call({ handle: 'ada', email: 'ada@example.test', days: 2 });
  await call({ handle: 'mary', days: 1 });
  idp.clock.advance(DAY);
  const list = await idp.admin('GET', '/v1/invites');
  t.match(list.body, {
    invites: [
      { handle: 'ada', email: 'ada@example.test', state: 'open', expires_at: open.body.expires_at },
      { handle: 'mary', state: 'expired' },
    ],
    next: null,
  });
  t.notMatch(list.text, /invite\/|Hash/);
  const expired = (await idp.admin('GET', '/v1/invites?expired=true')).body.invites;
  t.match(expired, [{ handle: 'mary' }]);
  t.equal(expired.length, 1);
  const [{ sub }] = list.body.invites;
  for (const token of [undefined, ADMIN_TOKEN])
    t.equal((await idp.request('DELETE', `/v1/invites/${sub}`, { ...(token && { token }) })).status, 401);
  t.equal((await idp.request('GET', '/v1/invites', { token: INVITE_TOKEN })).status, 401);
  const withdraw = (id: string) => idp.request('DELETE', `/v1/invites/${id}`, { token: INVITE_TOKEN });
  t.equal((await withdraw(sub)).status, 204);
  for (const other of [sub, 'u_0', '%00', (await idp.makeHuman()).sub])
    t.equal((await withdraw(other)).status, 404);
  t.equal((await accept(idp, pathOf(open))).status, 404);
  const again = { handle: 'ada@example.test', password: PASSWORD, kind: 'human' };
  t.equal((await idp.request('POST', '/v1/accounts', { body: again })).status, 201, 'the names are free');
  const events = (await auditOf(await idpStore(t, idp))).map(({ event }) => event);
  t.equal(events.filter((event) => event === 'invitation.withdrawn').length, 1);
});

t.test('a repeated invitation keeps what it does not replace', async (t) => {
  const idp = await mailedIdp(t);
  const first = await invite(idp, { handle: 'ada', email: 'old@example.test', name: 'Ada' });
  const second = await invite(idp, { handle: 'ada', email: 'new@example.test', send: true });
  t.equal(second.body.sent_to, 'new@example.test');
  const third = await invite(idp, { handle: 'ada', send: true });
  t.equal(third.body.sent_to, 'new@example.test');
  t.match((await idp.admin('GET', '/v1/invites')).body.invites, [{ name: 'Ada', email: 'new@example.test' }]);
  t.match(await invite(idp, { handle: 'eve', email: 'new@example.test' }), {
    body: { error: 'email_taken' },
  });
  t.equal((await invite(idp, { handle: 'eve', email: 'old@example.test' })).status, 201);
  t.equal((await accept(idp, pathOf(first))).status, 404);
  t.equal((await accept(idp, pathOf(third))).status, 201);
});

t.test('an invitation is purged 30 days after its link, with its groups and names', async (t) => {
  const idp = await idpApp(t);
  await idp.admin('POST', '/v1/groups', { name: 'staff' });
  await invite(idp, { handle: 'ada', email: 'ada@example.test', groups: ['staff'], days: 1 });
  await invite(idp, { handle: 'mary@example.test', days: 30 });
  const store = await idpStore(t, idp);
  const links = await linksOf(t, idp);
  idp.clock.advance(31 * DAY);
  t.match(await links.purge.run(LEASE), { removed: 0 });
  idp.clock.advance(1);
  t.match(await links.purge.run(LEASE), { removed: 1, isComplete: true });
  t.same([await memberCollection(store).count(), await addressCollection(store).count()], [0, 1]);
  t.match((await idp.admin('GET', '/v1/invites')).body.invites, [{ handle: 'mary@example.test' }]);
  const body = { handle: 'ada', email: 'ada@example.test', password: PASSWORD, kind: 'human' };
  t.equal((await idp.request('POST', '/v1/accounts', { body })).status, 201);
});

t.test('of an acceptance, a withdrawal, a new link and a purge, exactly one decides', async (t) => {
  const idp = await idpApp(t, { limits: false });
  const principals = principalCollection(await idpStore(t, idp));
  for (const round of [1, 2, 3, 4, 5, 6]) {
    const handle = `race${round}@example.test`;
    const path = pathOf(await invite(idp, { handle, days: 1 }));
    const [found] = (await idp.admin('GET', `/v1/principals?prefix=race${round}@`)).body.principals;
    const links = await linksOf(t, idp, `links ${round}`);
    const [accepted, withdrawn, again] = await Promise.all([
      accept(idp, path),
      idp.admin('DELETE', `/v1/invites/${found.sub}`),
      links.invite({ handle, isRepeated: true }, COMMAND_SOURCE).then(
        () => true,
        () => false,
      ),
      links.purge.run(LEASE),
    ]);
    const left = await principals.findOne({ handle });
    const isAccepted = accepted.status === 201;
    t.not(isAccepted, withdrawn.status === 204, `${round}: ${accepted.status} ${withdrawn.status} ${again}`);
    t.equal(left?.state, isAccepted ? 'active' : undefined);
  }
});

t.test('the console sends, repeats and withdraws invitations', async (t) => {
  const idp = await mailedIdp(t, { publicUrl: undefined });
  const console = await enterConsole(idp, await makeOperator(t, idp, 'operator'));
  const fields = { handle: 'ada', email: 'ada@example.test', days: '1' };
  t.match((await console.act('/invitations/create', fields)).body, /The link is sent to ada@example\.test/);
  const older = await idp.linkIn(INVITATION);
  const [{ sub }] = (await idp.admin('GET', '/v1/invites')).body.invites;
  t.match((await console.get('/invitations')).body, />Open</);
  idp.clock.advance(DAY);
  const again = await enterConsole(idp, { handle: 'operator', password: PASSWORD });
  t.match((await again.get('/invitations?state=expired')).body, />Expired</);
  await again.act(`/invitations/${sub}/resend`);
  const newer = await idp.linkIn(INVITATION);
  t.equal((await accept(idp, older)).status, 404);
  t.equal((await accept(idp, newer)).status, 201);
  t.match((await again.get(`/principals/${sub}`)).body, 'ada@example.test');
});
