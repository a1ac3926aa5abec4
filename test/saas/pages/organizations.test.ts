import t, { type Test } from 'tap';
import type { OrganizationApi } from '../../../src/saas/organizations/host-api.js';
import { PASSWORD, saasApp } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { KEY, provider } from '../billing/kit.js';
import { INVITED, type Person, place } from '../organizations/kit.js';
import { HERE, isAt, MINUTE, titleOf, visit } from './kit.js';

const LIST = '/organization';

/** An organization of Olga with Adam, an admin, and Mary, a member. */
async function company(t: Test, options: object = {}) {
  const app = await place(t, { ...HERE, ...options });
  const [olga, adam, mary] = [await app.person('olga'), await app.person('adam'), await app.person('mary')];
  const { id } = await app.organize(olga);
  await app.join(olga, id, adam, 'admin');
  await app.join(olga, id, mary, 'member');
  const api = app.server.fastify.saas.organizations as OrganizationApi;
  const members = async () =>
    Object.fromEntries(
      (await api.members(id)).members.map(({ email, role }) => [email.replace(/@.*/, ''), role]),
    );
  const browse = async (person: Person) => {
    const visitor = await visit(app);
    await visitor.fill('/sign-in', { email: person.email, password: PASSWORD });
    return visitor;
  };
  return { app, api, id, page: `${LIST}/${id}`, olga, adam, mary, members, browse };
}

/** The labels of the options of the selects in a page. */
const optionsIn = (body: string) => [
  ...new Set([...body.matchAll(/<option[^>]*>([^<]*)</g)].map(([, label]) => label)),
];

t.test('a user creates an organization, chooses it and accepts invitations to others', async (t) => {
  const { app, id, browse } = await company(t);
  const eve = await app.person('eve');
  const visitor = await browse(eve);
  t.match(
    (await visitor.get()).body,
    /href="[^"]*account(\/|&#x2F;)organization"/,
    'the account page leads to it',
  );
  const empty = await visitor.get(LIST);
  t.match([empty.status, titleOf(empty)], [200, sentence('user-organizations.title')]);
  t.match(empty.body, sentence('user-organizations.none'));

  const wrong = await visitor.fill(LIST, { name: '   ' }, '/create');
  t.match(wrong, { status: 422, body: sentence('user-organization.problems.name') });
  const created = await visitor.fill(LIST, { name: 'Eve & Sons' }, '/create');
  t.match([created.status, titleOf(created)], [200, 'Eve &amp; Sons']);
  t.match(created.body, sentence('user-organization.done.created'));
  const own = new URL(created.url).pathname.split('/').at(-1);

  const chosen = await visitor.fill(LIST, {}, '/active');
  t.match(chosen.body, sentence('user-organizations.done.switched'));
  t.match(chosen.body, /class="status"/);
  t.equal(chosen.form('/active').fields['organization'], '', 'the same button ends the choice');
  const none = await visitor.fill(LIST, {}, '/active');
  t.equal(none.form('/active').fields['organization'], own);
  const foreign = await visitor.fill(LIST, { organization: id }, '/active');
  t.match(foreign, { status: 404, body: sentence('user-organization.problems.no-member') });

  const api = app.server.fastify.saas.organizations as OrganizationApi;
  const olga = (await api.members(id)).members.find(({ role }) => role === 'owner');
  t.ok(olga);
  const organizer = await visit(app);
  await organizer.fill('/sign-in', { email: 'olga@example.test', password: PASSWORD });
  const invited = await organizer.fill(`${LIST}/${id}`, { email: eve.email, role: 'member' }, '/invite');
  t.match(invited.body, sentence('user-organization.done.invited'));
  const listed = await visitor.get(LIST);
  t.match(listed.body, sentence('user-organizations.received'));
  const joined = await visitor.fill(LIST, {}, '/accept');
  t.ok(isAt(joined, `/account${LIST}/${id}`));
  t.match(joined.body, sentence('user-organization.done.joined'));
  t.notMatch((await visitor.get(LIST)).body, sentence('user-organizations.received'));
});

t.test('each member is offered what the role permits', async (t) => {
  const { page, olga, adam, mary, browse } = await company(t);
  const owner = await (await browse(olga)).get(page);
  t.same(optionsIn(owner.body), ['Admin', 'Member', 'accountant', 'guest', 'Owner']);
  t.equal(owner.body.match(/action="[^"]*members(?:\/|&#x2F;)remove"/g)?.length, 2, 'all but herself');
  for (const key of ['invitations', 'settings', 'billing-email', 'ownership'])
    t.match(owner.body, sentence(`user-organization.${key}`), key);

  const admin = await (await browse(adam)).get(page);
  t.same(optionsIn(admin.body), ['Admin', 'Member', 'guest'], 'no role that permits more');
  t.equal(admin.body.match(/action="[^"]*members(?:\/|&#x2F;)remove"/g)?.length, 1, 'not the owner');
  t.match(admin.body, sentence('user-organization.slug'));
  for (const key of ['billing-email', 'ownership'])
    t.notMatch(admin.body, sentence(`user-organization.${key}`), key);

  const member = await (await browse(mary)).get(page);
  t.same(optionsIn(member.body), []);
  t.match(member.body, /olga@example\.test/);
  t.same(
    [...member.body.matchAll(/action="[^"]*?(\w+)"/g)].map(([, action]) => action),
    ['leave'],
  );
});

t.test('the services decide, and the page says why they refuse', async (t) => {
  const { app, id, page, olga, adam, mary, members, browse } = await company(t);
  const before = await members();
  const [owner, admin, member] = [await browse(olga), await browse(adam), await browse(mary)];
  /** Submits a form that the page does not offer. */
  const forge = async (visitor: typeof owner, action: string, fields: Record<string, string>) => {
    const from = await visitor.get(page);
    const { form = '' } = from.form('/leave').fields;
    const forged = {
      ...from,
      form: () => ({ method: 'post' as const, action: `${from.url}/${action}`, fields: { form } }),
    };
    return visitor.browser.submit(forged, fields);
  };
  const refused = sentence('user-organization.problems.role-required');
  t.match(await forge(member, 'members/role', { user: mary.id, role: 'owner' }), {
    status: 403,
    body: refused,
  });
  t.match(await forge(member, 'members/remove', { user: adam.id }), { status: 403, body: refused });
  t.match(await forge(member, 'invite', { email: 'x@example.test', role: 'member' }), {
    status: 403,
    body: refused,
  });
  t.match(await forge(member, 'settings', { name: 'Taken' }), { status: 403, body: refused });
  t.match(await forge(admin, 'members/role', { user: adam.id, role: 'owner' }), {
    status: 403,
    body: refused,
  });
  t.match(await forge(admin, 'members/remove', { user: olga.id }), { status: 403, body: refused });
  t.match(await forge(admin, 'settings', { billingEmail: 'me@example.test' }), {
    status: 403,
    body: refused,
  });
  t.match(await forge(admin, 'transfer', { user: adam.id }), {
    status: 403,
    body: sentence('user-organization.owners-only'),
  });
  t.match(await forge(admin, 'delete', { confirm: 'Analytical Engines' }), { status: 403 });
  t.match(await forge(owner, 'members/role', { user: adam.id, role: 'emperor' }), {
    status: 422,
    body: sentence('user-organization.problems.role'),
  });
  t.match(await owner.fill(page, {}, '/leave'), {
    status: 409,
    body: sentence('user-organization.problems.last-owner'),
  });
  t.match(await owner.fill(page, { email: adam.email, role: 'member' }, '/invite'), {
    status: 409,
    body: sentence('user-organization.problems.already-member'),
  });
  t.match(await owner.fill(page, { email: 'nobody', role: 'member' }, '/invite'), {
    status: 422,
    body: sentence('user-sign-up.email-invalid'),
  });
  t.equal(
    (
      await owner.fill(
        page,
        { form: 'of another session', email: 'x@example.test', role: 'member' },
        '/invite',
      )
    ).status,
    403,
  );
  t.same(await members(), before);
  for (const path of [page, LIST])
    t.notMatch((await owner.get(`${path}?done=constructor`)).body, /role="status"/, 'no such notice');

  const eve = await browse(await app.person('eve'));
  for (const path of [page, `${page}/ownership`, `${LIST}/no-such-one`])
    t.match(await eve.get(path), { status: 404, body: sentence('user-organization.problems.no-member') });
  t.notMatch((await eve.get(page)).body, /Analytical/, 'a stranger does not learn of it');
  t.equal(id.startsWith('org_'), true);
});

t.test('members, roles, invitations and settings are changed', async (t) => {
  const { app, page, olga, mary, members, browse } = await company(t);
  const visitor = await browse(olga);
  const changed = await visitor.fill(page, { user: mary.id, role: 'accountant' }, '/members/role');
  t.match(changed.body, sentence('user-organization.done.role'));
  t.equal((await members())['mary'], 'accountant');

  await visitor.fill(page, { email: 'new@example.test', role: 'admin' }, '/invite');
  const first = await app.mail(INVITED);
  const sent = await visitor.get(page);
  t.match(sent.body, /<strong>new@example\.test<\/strong>/);
  t.equal(sent.form('/invite').fields['email'], 'new@example.test');
  const again = await visitor.fill(page, {}, '/invite');
  t.match(again.body, sentence('user-organization.done.invited'));
  t.not((await app.mail(INVITED)).token, first.token, 'a new link');
  const withdrawn = await visitor.fill(page, {}, '/withdraw');
  t.match(withdrawn.body, sentence('user-organization.done.withdrawn'));
  t.notMatch(withdrawn.body, /<strong>new@example/);

  const settings = { name: 'Engines', slug: 'engines', logoUrl: 'https://example.test/logo.svg' };
  const saved = await visitor.fill(page, settings, '/settings');
  t.match([titleOf(saved), saved.body], ['Engines', sentence('user-organization.done.saved')]);
  t.match(saved.form('/settings').fields, { ...settings, billingEmail: olga.email });
  t.match((await visitor.fill(page, { logoUrl: '' }, '/settings')).form('/settings').fields, { logoUrl: '' });
  t.equal(titleOf(await visitor.get(`${LIST}/engines`)), 'Engines', 'the slug is a path, too');
  for (const [field, value, key] of [
    ['slug', 'admin', 'slug-taken'],
    ['slug', 'No Slug', 'slug'],
    ['logoUrl', 'http://example.test', 'logo'],
    ['name', ' ', 'name'],
  ] as const) {
    const answer = await visitor.fill(page, { [field]: value }, '/settings');
    t.match(answer.body.replaceAll('&#x2F;', '/'), sentence(`user-organization.problems.${key}`), key);
    t.equal(answer.form('/settings').fields[field], value, 'what was typed is kept');
    t.match(answer.body, new RegExp(`name="${field}"[^>]*autofocus aria-invalid="true"`));
  }
  const removed = await visitor.fill(page, {}, '/members/remove');
  t.match(removed.body, sentence('user-organization.done.removed'));
  t.equal(Object.keys(await members()).length, 2);
});

t.test('a member leaves; an owner transfers and deletes with a recent sign-in', async (t) => {
  const { app, api, id, page, olga, adam, mary, members, browse } = await company(t);
  const left = await (await browse(mary)).fill(page, {}, '/leave');
  t.ok(isAt(left, `/account${LIST}`));
  t.match(left.body, sentence('user-organizations.done.left'));

  const visitor = await browse(olga);
  app.clock.advance(11 * MINUTE);
  const asked = await visitor.get(`${page}/ownership`);
  t.match([asked.status, titleOf(asked)], [401, sentence('user-sign-in.title')]);
  const back = await visitor.browser.submit(asked, { email: olga.email, password: PASSWORD });
  t.ok(isAt(back, `/account${page}/ownership`), 'and returns to the page');
  const differs = await visitor.fill(`${page}/ownership`, { confirm: 'another' }, '/delete');
  t.match(differs, { status: 422, body: sentence('user-organization.problems.confirm') });
  const transferred = await visitor.fill(`${page}/ownership`, { user: adam.id }, '/transfer');
  t.match(transferred.body, sentence('user-organization.done.transferred'));
  t.same(await members(), { olga: 'admin', adam: 'owner' });
  t.match((await visitor.get(`${page}/ownership`)).body, sentence('user-organization.owners-only'));

  const heir = await browse(adam);
  const deleted = await heir.fill(`${page}/ownership`, { confirm: 'Analytical Engines' }, '/delete');
  t.match(
    [isAt(deleted, `/account${LIST}`), deleted.body],
    [true, sentence('user-organizations.done.deleted')],
  );
  await t.rejects(api.get(id), { code: 'NOT_FOUND' });
});

t.test('members are listed in pages', async (t) => {
  const { app, api, id, page, olga, browse } = await company(t);
  for (let count = 0; count < 50; count++) {
    const { id: userId } = await app.server.fastify.saas.users.create({ email: `m${count}@example.test` });
    app.clock.advance(1);
    await api.addMember(id, userId);
  }
  const visitor = await browse(olga);
  const first = await visitor.get(page);
  t.notMatch(first.body, /m49@/);
  const [, next = ''] = /href="([^"]*)" rel="next"/.exec(first.body) ?? [];
  const href = next.replaceAll('&#x2F;', '/').replaceAll('&#x3D;', '=').replaceAll('&amp;', '&');
  const second = await visitor.browser.open(visitor.origin + href);
  t.match([second.status, second.body], [200, /m49@/]);
  t.match(second.body, sentence('user-organization.first'));
  const refused = await visitor.fill(`${page}/ownership`, { confirm: 'another' }, '/delete');
  const [, others = ''] = /href="([^"]*)" rel="next"/.exec(refused.body) ?? [];
  t.match(others.replaceAll('&#x2F;', '/'), `${page}/ownership?`, 'also after a refusal');
});

t.test('without organizations there is no such page', async (t) => {
  const app = await saasApp(t, HERE);
  await app.signUp({ email: 'ada@example.test' });
  const visitor = await visit(app);
  await visitor.fill('/sign-in', { email: 'ada@example.test', password: PASSWORD });
  t.equal((await visitor.get(LIST)).status, 404);
  t.notMatch((await visitor.get()).body, /\/organization/);
});

t.test('who may manage its payments buys a plan for the organization', async (t) => {
  const api = await provider(t);
  const { app, id, page, olga, mary, browse } = await company(t, {
    ...{ paymentSecretKey: KEY, paymentApiUrl: api.url },
    billing: { plans: { pro: { prices: ['price_pro'], seats: 'members' } } },
  });
  const billing = `${page}/billing`;
  const visitor = await browse(olga);
  t.match((await visitor.get(page)).body, sentence('user-billing.open'));
  const empty = await visitor.get(billing);
  t.match([empty.status, empty.body], [200, sentence('user-billing.no-plan')]);
  t.match(empty.body, /Analytical Engines/, 'says whose plan it is');
  await visitor.browser.submit(empty, {}, '/checkout');
  const order = api.calls.find(({ path, method }) => path === '/v1/checkout/sessions' && method === 'POST');
  const [sessionId = ''] = api.sessions.keys();
  const returned = order?.form.get('success_url')?.replace('{CHECKOUT_SESSION_ID}', sessionId) ?? '';
  t.equal(returned, `${visitor.origin}/account${billing}?checkout=success&session_id=${sessionId}`);
  t.equal(order?.form.get('line_items[0][quantity]'), '3', 'a seat for each member');

  const customer = String([...api.sessions.values()][0]?.['customer']);
  Object.assign(api.world.subscribe(customer, id, true), {
    ...{ status: 'active', price: 'price_pro', quantity: 3, trialEnd: null },
  });
  const subscribed = await visitor.browser.open(returned);
  t.match([subscribed.status, subscribed.body], [200, sentence('user-billing.renews')]);
  t.notMatch(
    (await visitor.get('/billing')).body,
    sentence('user-billing.renews'),
    'it is not that of the person',
  );
  t.equal(await app.server.fastify.saas.entitles(id, 'pro'), true);
  await visitor.browser.send(subscribed, {}, '/portal');
  const portal = api.calls.find(({ path }) => path === '/v1/billing_portal/sessions');
  t.equal(portal?.form.get('return_url'), `${visitor.origin}/account${billing}`);
  t.match((await visitor.browser.submit(subscribed, {}, '/cancel')).body, sentence('user-billing.ends'));

  const member = await browse(mary);
  t.notMatch((await member.get(page)).body, sentence('user-billing.open'));
  t.equal((await member.get(billing)).status, 403);
  const from = await member.get(page);
  const fields = { form: from.form('/leave').fields['form'] ?? '', price: 'price_pro' };
  const action = `${visitor.origin}/account${billing}/checkout`;
  const forged = { ...from, form: () => ({ method: 'post' as const, action, fields }) };
  t.equal((await member.browser.submit(forged)).status, 403);
  t.equal((await (await browse(await app.person('eve'))).get(billing)).status, 404);
});

t.test('the seats of a plan are chosen and changed on the page', async (t) => {
  const api = await provider(t);
  const { id, page, olga, browse } = await company(t, {
    ...{ paymentSecretKey: KEY, paymentApiUrl: api.url },
    billing: { plans: { pro: { prices: ['price_pro'], seats: 'limit' } } },
  });
  const billing = `${page}/billing`;
  const visitor = await browse(olga);
  t.match((await visitor.get(billing)).form('/checkout').fields, { quantity: '3' }, 'one for each member');
  const few = await visitor.fill(billing, { quantity: '2' }, '/checkout');
  t.match(few, { status: 400, body: sentence('user-billing.problems.quantity') });
  await visitor.browser.send(await visitor.get(billing), { quantity: '5' }, '/checkout');
  const order = api.calls.find(({ path, method }) => path === '/v1/checkout/sessions' && method === 'POST');
  t.equal(order?.form.get('line_items[0][quantity]'), '5');
  const customer = String([...api.sessions.values()][0]?.['customer']);
  Object.assign(api.world.subscribe(customer, id, true), {
    ...{ status: 'active', price: 'price_pro', quantity: 5, trialEnd: null },
  });
  const [sessionId = ''] = api.sessions.keys();
  const subscribed = await visitor.get(`${billing}?session_id=${sessionId}`);
  t.match(subscribed.form('/change').fields, { quantity: '5' });
  const preview = await visitor.browser.submit(subscribed, { quantity: '6' }, '/change');
  t.match([preview.status, preview.body], [200, / × 6/]);
  const changed = await visitor.browser.submit(preview);
  t.match([changed.status, changed.body], [200, sentence('user-billing.changed')]);
  t.match(changed.form('/change').fields, { quantity: '6' });
});
