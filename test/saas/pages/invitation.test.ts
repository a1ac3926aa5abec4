import t, { type Test } from 'tap';
import type { OrganizationApi } from '../../../src/saas/organizations/host-api.js';
import { PASSWORD, saasApp } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { INVITED, place } from '../organizations/kit.js';
import { EMAIL, HERE, isAt, signIn, titleOf, visit } from './kit.js';

const DAY = 86_400_000;
const PAGE = '/organization/invitation';

/** An organization that has invited Ada, and the path of the link. */
async function invited(t: Test, options: object = {}) {
  const app = await place(t, { ...HERE, ...options });
  const owner = await app.person('owner');
  const { id } = await app.organize(owner);
  const path = `/organizations/${id}/invitations`;
  t.equal((await owner.call('POST', path, { email: EMAIL, role: 'admin' })).status, 201);
  const { text, token } = await app.mail(INVITED);
  t.match(text, `/account${PAGE}?token=${token}`, 'the mail leads to the page');
  const api = app.server.fastify.saas.organizations as OrganizationApi;
  const members = async () => (await api.members(id)).members.map(({ email, role }) => `${email} ${role}`);
  const remove = (user: string) => api.removeMember(id, user);
  /** Another member becomes the owner. Returns the ID of the former one. */
  const makeOwner = async (name: string) => {
    const { id: user } = await app.person(name);
    await api.addMember(id, user, 'owner');
    return owner.id;
  };
  return { app, link: `${PAGE}?token=${token}`, members, remove, makeOwner };
}

t.test('a user reads an invitation, which changes nothing, and accepts it', async (t) => {
  const { app, link, members, remove } = await invited(t);
  const ada = await app.signUp({ email: EMAIL });
  const visitor = await visit(app);
  await signIn(visitor);
  for (let times = 0; times < 2; times++) {
    const page = await visitor.get(link);
    t.match([page.status, titleOf(page)], [200, sentence('user-invitation.title')]);
    t.match(page.body, /<strong>Analytical Engines<\/strong>.*<strong>Admin<\/strong>/);
    t.match(page.body, `<strong>${EMAIL}</strong>`, 'who is signed in');
    t.notMatch(page.body, /<script|(?:src|href)="http/, 'nothing of another site learns the token');
    t.same(await members(), ['owner@example.test owner']);
  }
  const answer = await visitor.fill(link, { form: 'of another session' });
  t.equal(answer.status, 403, 'a form without its token');
  t.same(await members(), ['owner@example.test owner']);

  const accepted = await visitor.fill(link, {});
  t.match([accepted.status, accepted.body], [200, sentence('user-invitation.accepted')]);
  t.match(accepted.body, /class="button" href=/);
  t.same((await members()).sort(), [`${EMAIL} admin`, 'owner@example.test owner']);
  t.match((await visitor.get(link)).body, sentence('user-invitation.accepted'), 'the link still says so');

  await remove(ada.id);
  const used = await visitor.get(link);
  t.match([used.status, used.body], [400, sentence('user-invitation.invalid')], 'a used link');
  t.notMatch(used.body, /<form/);
});

t.test('an invitation whose sender has left is not offered', async (t) => {
  const { app, link, remove, makeOwner } = await invited(t);
  const ada = await app.signUp({ email: EMAIL });
  const visitor = await visit(app);
  await signIn(visitor);
  t.equal((await visitor.get(link)).status, 200);
  await remove(await makeOwner('other'));
  const page = await visitor.get(link);
  t.match([page.status, page.body], [400, sentence('user-invitation.invalid')], ada.email);
  t.notMatch(page.body, /<form/);
});

t.test('who is not signed in comes back to the link', async (t) => {
  const { app, link } = await invited(t);
  const visitor = await visit(app);
  const closed = await visitor.get(link);
  t.match([closed.status, titleOf(closed)], [401, sentence('user-sign-in.title')]);
  t.notMatch(closed.body, /Analytical/);
  t.match(await app.request('GET', `/account${link}`, { headers: { accept: 'text/html' } }), {
    headers: { 'referrer-policy': 'same-origin' },
  });

  const [, target = ''] = /href="([^"]*sign-up[^"]*)"/.exec(closed.body) ?? [];
  const href = target.replaceAll('&#x2F;', '/').replaceAll('&#x3D;', '=');
  const form = await visitor.browser.open(visitor.origin + href);
  const account = { email: EMAIL, name: 'Ada', password: PASSWORD, password_confirm: PASSWORD };
  const signedUp = await visitor.browser.submit(form, account);
  t.ok(isAt(signedUp, `/account${PAGE}`), 'after a sign-up');
  t.match(signedUp.body, /Analytical Engines/);

  const another = await visit(app);
  const back = await another.browser.submit(await another.get(link), { email: EMAIL, password: PASSWORD });
  t.ok(isAt(back, `/account${PAGE}`), 'after a sign-in');
  t.match(back.body, /Analytical Engines/);
  t.match((await another.browser.submit(back)).body, sentence('user-invitation.accepted'));
});

t.test('the page says why an invitation cannot be accepted', async (t) => {
  const { app, link, members } = await invited(t, { organizationMaxMembers: 1 });
  await app.signUp({ email: EMAIL });
  await app.signUp({ email: 'eve@example.test' });
  const eve = await visit(app);
  await eve.fill('/sign-in', { email: 'eve@example.test', password: PASSWORD });
  t.match(await eve.get(link), { status: 403, body: sentence('user-invitation.other') });
  t.notMatch((await eve.get(link)).body, /Analytical/);

  const ada = await visit(app);
  await signIn(ada);
  t.match(await ada.fill(link, {}), { status: 409, body: sentence('user-invitation.members') });
  for (const wrong of [PAGE, `${link}x`])
    t.match(await ada.get(wrong), { status: 400, body: sentence('user-invitation.invalid') });
  app.clock.advance(7 * DAY);
  await signIn(ada);
  t.match(await ada.get(link), { status: 400, body: sentence('user-invitation.invalid') }, 'expired');
  t.same((await members()).length, 1);
});

t.test('without organizations there is no such page', async (t) => {
  const app = await saasApp(t, HERE);
  await app.signUp({ email: EMAIL });
  const visitor = await visit(app);
  await signIn(visitor);
  t.equal((await visitor.get(`${PAGE}?token=x`)).status, 404);
});
