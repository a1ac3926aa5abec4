import t, { type Test } from 'tap';
import { createClaims, createIsVerified } from '../../../src/idp/oidc/claims.js';
import { addressCollection } from '../../../src/idp/provisioning/addresses.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, PASSWORD } from '../../kit/app.js';
import { type Credentials, claimsOf, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { sentence } from '../../kit/sentences.js';
import { arrived, RESET, VERIFY } from '../../saas/auth/kit.js';
import { linkOf, mailedIdp } from './kit.js';

/** A person may have an address beside the user name. */

const ADA = 'ada@example.test';
const ADDRESS_CHANGED = sentence('mail.email-changed.subject');

const signUp = (idp: IdpApp, body: Record<string, unknown>) =>
  idp.request('POST', '/v1/accounts', { body: { password: PASSWORD, kind: 'human', ...body } });

async function person(idp: IdpApp, names: { handle: string; email?: string }): Promise<Credentials> {
  const { status, text, body } = await signUp(idp, names);
  if (status !== 201) throw new Error(text);
  return { sub: body.sub, handle: names.handle, password: PASSWORD };
}

async function claims(idp: IdpApp, who: Credentials, scope = 'openid profile email groups') {
  const client = await idp.createClient();
  const code = await idp.codeFor(client, who, { scope });
  const { id_token: token, access_token: access } = (await idp.redeem(client, code)).body;
  const { email, email_verified: verified, preferred_username: name, groups } = claimsOf(token);
  const { body } = await idp.userinfo(access);
  if (body.email !== email || body.email_verified !== verified)
    throw new Error('userinfo says something else');
  return { email, verified, name, groups };
}

/** Changes the address as an operator does in the console. */
async function changeEmail(t: Test, idp: IdpApp, sub: string, email: string) {
  const console = await enterConsole(idp, await makeOperator(t, idp, `operator-${sub.slice(-8)}`));
  return console.act(`/principals/${sub}/email`, { email });
}

t.test('the user name and the address are two claims, and the address is verified by its link', async (t) => {
  const idp = await mailedIdp(t);
  const created = await signUp(idp, { handle: 'Ada', email: ' Ada@Example.TEST' });
  t.match(created, { status: 201, body: { handle: 'ada', email: ADA } });
  const ada = { sub: created.body.sub, handle: 'ada', password: PASSWORD };
  t.match(await claims(idp, ada), { email: ADA, verified: false, name: 'ada' });
  const mail = await idp.mail(VERIFY);
  t.same(mail.to, [ADA]);
  const path = linkOf(mail.text);
  t.equal((await idp.request('POST', path, { form: { password: PASSWORD } })).status, 303);
  t.match(await claims(idp, ada), { email: ADA, verified: true, name: 'ada' });
  t.match((await idp.admin('GET', `/v1/principals/${ada.sub}`)).body, { handle: 'ada', email: ADA });
  const same = await person(idp, { handle: 'mary@example.test', email: 'MARY@example.test' });
  t.equal((await idp.admin('GET', `/v1/principals/${same.sub}`)).body.email, undefined);
  t.match(await signUp(idp, { handle: 'bot', kind: 'agent', email: 'bot@example.test' }), {
    status: 400,
    body: { details: [{ path: 'email' }] },
  });
  for (const email of ['ada', 'a b@example.test', '@example.test', 'ada@', 'ada@[127.0.0.1]', ''])
    t.equal((await signUp(idp, { handle: 'eve', email })).status, 400, email);
});

t.test('people sign in and recover with either name, and failures count once', async (t) => {
  const idp = await mailedIdp(t);
  const client = await idp.createClient();
  const ada = await person(idp, { handle: 'ada', email: ADA });
  const { browser, page } = await idp.visit(client);
  const end = await browser.submit(page, { handle: 'ADA@example.test ', password: PASSWORD });
  t.match(end.location, /code=ac_/);
  for (const name of ['ada', ADA]) {
    t.equal((await idp.authorize(client, { ...ada, handle: name })).status, 302, name);
    const mails = await idp.forget(name);
    t.match(mails, { status: 303, headers: { location: '/account/forgot-password/sent' } });
    t.same((await idp.mail(RESET)).to, [ADA], name);
    idp.clock.advance(15 * 60_000);
  }
  const wrong = (handle: string) => idp.authorize(client, { sub: '', handle, password: 'a wrong password' });
  for (let count = 0; count < 5; count++)
    for (const name of ['ada', ADA]) t.equal((await wrong(name)).status, 401);
  for (const name of ['ada', ADA]) t.equal((await wrong(name)).status, 429, name);
  const [known, unknown] = [await wrong('nobody@example.test'), await wrong('nobody')];
  t.same([known.status, known.text], [unknown.status, unknown.text]);
});

t.test('no name is the handle or the address of two principals, in either spelling', async (t) => {
  const idp = await idpApp(t, { limits: false });
  await person(idp, { handle: 'ada', email: 'ada@münchen.example' });
  const mary = await person(idp, { handle: 'mary@example.test' });
  const taken = [
    [{ handle: 'ada@münchen.example' }, 'handle_taken'],
    [{ handle: 'ADA@xn--mnchen-3ya.example' }, 'handle_taken'],
    [{ handle: 'eve', email: 'ada@xn--mnchen-3ya.example' }, 'email_taken'],
    [{ handle: 'eve', email: 'Ada@MÜNCHEN.example' }, 'email_taken'],
    [{ handle: 'eve', email: 'MARY@example.test' }, 'email_taken'],
    [{ handle: 'ada', email: 'eve@example.test' }, 'handle_taken'],
  ] as const;
  for (const [names, error] of taken) {
    t.match(await signUp(idp, names), { status: 409, body: { error } }, JSON.stringify(names));
    t.match(await idp.admin('POST', '/v1/invites', names), { status: 409, body: { error } });
    if (!('email' in names)) t.equal((await idp.admin('POST', '/v1/agents', names)).status, 409);
  }
  t.equal((await signUp(idp, { handle: 'eve', email: 'eve@example.test' })).status, 201, 'nothing is left');
  // A principal of an earlier version has reserved nothing.
  const store = await idpStore(t, idp);
  await addressCollection(store).deleteMany({ sub: mary.sub });
  t.match(await signUp(idp, { handle: 'kim', email: mary.handle }), { status: 409 });
});

t.test('of concurrent sign-ups with one name, as handle or as address, one succeeds', async (t) => {
  const idp = await idpApp(t, { limits: false });
  for (const round of [1, 2, 3]) {
    const name = `race${round}@example.test`;
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        signUp(idp, index % 2 ? { handle: name } : { handle: `user${round}-${index}`, email: name }),
      ),
    );
    const statuses = answers.map(({ status }) => status).toSorted();
    t.same(statuses, [201, ...Array(11).fill(409)]);
  }
});

t.test('an address of an operator is unverified, and gets no link for a password until it is', async (t) => {
  const idp = await mailedIdp(t, { limits: false, publicUrl: undefined });
  const ada = await person(idp, { handle: 'ada', email: ADA });
  await idp.mail(VERIFY);
  await idp.forget('ada');
  const older = await idp.linkIn(RESET);
  const page = await changeEmail(t, idp, ada.sub, 'New@example.test');
  t.match(page.body, 'Saved.');
  t.match(await claims(idp, ada), { email: 'new@example.test', verified: false });
  const either = new RegExp(`${ADDRESS_CHANGED.source}|${VERIFY.source}`);
  const mails = [await idp.mail(either), await idp.mail(either)];
  const mailTo = (address: string) => mails.find(({ to }) => to[0] === address);
  t.match(mailTo(ADA)?.subject, ADDRESS_CHANGED);
  const mail = mailTo('new@example.test') ?? { text: '' };
  t.equal((await idp.request('GET', older)).status, 404, 'the link that the old mailbox got has ended');
  await idp.forget('ada');
  await idp.forget('new@example.test');
  const path = linkOf(mail.text);
  t.equal((await idp.request('POST', path, { form: { password: PASSWORD } })).status, 303);
  t.match(await claims(idp, ada), { email: 'new@example.test', verified: true });
  idp.clock.advance(15 * 60_000);
  await idp.forget('ada');
  t.same((await idp.mail(RESET)).to, ['new@example.test']);
  t.equal((await signUp(idp, { handle: 'eve', email: ADA })).status, 201, 'the old address is free');
  const agent = await idp.mintAgent();
  t.match((await changeEmail(t, idp, agent.sub, 'x@example.test')).body, 'is for people');
  const events = await auditOf(await idpStore(t, idp));
  const changed = events.filter(({ event }) => event === 'principal.email_changed');
  t.equal(changed.length, 1);
  t.notMatch(JSON.stringify(changed), /example\.test"/, 'the audit has no address');
  const links = idp.sink.mails.map(arrived).filter(({ to, subject }) => RESET.test(subject) && to[0] !== ADA);
  t.equal(links.length, 1, 'no link for a password before the address was confirmed');
});

t.test('an empty address removes it, and deleting the account frees it', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined });
  const ada = await person(idp, { handle: 'ada', email: ADA });
  await changeEmail(t, idp, ada.sub, '');
  t.match(await claims(idp, ada), { email: undefined, verified: undefined, name: 'ada' });
  const mary = await person(idp, { handle: 'mary', email: ADA });
  const console = await enterConsole(idp, await makeOperator(t, idp, 'operator'));
  await console.act(`/principals/${mary.sub}/delete`, { confirm: 'mary' });
  t.equal((await signUp(idp, { handle: 'mary' })).status, 409, 'the handle stays taken');
  t.equal((await signUp(idp, { handle: 'kim', email: ADA })).status, 201);
  const { items } = await principalCollection(await idpStore(t, idp)).page({ sort: 'id', limit: 9 });
  t.equal(items.filter(({ email }) => email === ADA).length, 1);
});

t.test(
  'a verified address, or an invitation to a trusted domain, counts for groups of domains',
  async (t) => {
    const idp = await mailedIdp(t, { trustedEmailDomains: ['example.test'], publicUrl: undefined });
    await idp.admin('POST', '/v1/groups', { name: 'staff' });
    await idp.admin('POST', '/v1/groups/staff/members', { member: '@example.test' });
    const { body } = await idp.admin('POST', '/v1/invites', { handle: 'ada', email: ADA });
    const path = new URL(body.invite_url).pathname;
    await idp.request('POST', path, { body: { password: PASSWORD } });
    const { sub } = (await idp.admin('GET', '/v1/principals?prefix=ada')).body.principals[0];
    const ada = { sub, handle: 'ada', password: PASSWORD };
    t.same(await claims(idp, ada), { email: ADA, verified: true, name: 'ada', groups: ['staff'] });
    await changeEmail(t, idp, sub, 'other@example.test');
    t.match(await claims(idp, ada), { verified: false, groups: [] }, 'the invitation was to another address');
    const self = await person(idp, { handle: 'self', email: 'self@example.test' });
    t.match(await claims(idp, self), { verified: false, groups: [] });
  },
);

t.test('an address that was given later is not trusted because the handle was invited', async (t) => {
  const isVerified = createIsVerified(['example.test']);
  const invited = { handle: 'ada@example.test', invitedAt: 1 };
  t.equal(isVerified(invited), true);
  t.equal(isVerified({ ...invited, email: 'eve@example.test' }), false);
  t.equal(isVerified({ ...invited, email: 'eve@example.test', vouchedAt: 1 }), true);
  const claimsFor = createClaims(isVerified);
  const principal = {
    ...{
      id: 'u_1',
      kind: 'human' as const,
      state: 'active' as const,
      groups: [],
      createdAt: 1,
      updatedAt: 1,
    },
    ...{ ...invited, email: 'eve@example.test' },
  } satisfies Parameters<typeof claimsFor>[0];
  t.match(claimsFor(principal, 'openid email'), { email: 'eve@example.test', email_verified: false });
});
