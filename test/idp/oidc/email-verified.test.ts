import t from 'tap';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { createIdentityServer } from '../../../src/idp/server.js';
import { PASSWORD } from '../../kit/app.js';
import {
  type Credentials,
  claimsOf,
  type IdpApp,
  ISSUER,
  idpApp,
  idpOptions,
  idpStore,
} from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

const TRUSTED = ['example.com', 'Mail.Example.ORG', 'münchen.example', 'xn--fa-hia.example'];

async function invite(idp: IdpApp, handle: string): Promise<Credentials> {
  const { body } = await idp.admin('POST', '/v1/invites', { handle });
  const path = body.invite_url.slice(ISSUER.length);
  const accepted = await idp.request('POST', path, { body: { password: PASSWORD } });
  return { sub: accepted.body.sub, handle: accepted.body.handle, password: PASSWORD };
}

/** The address as the application receives it, the same in the id_token and at userinfo. */
async function emailClaims(idp: IdpApp, who: Credentials, scope = 'openid email offline_access') {
  const client = await idp.createClient();
  const { body } = await idp.redeem(client, await idp.codeFor(client, who, { scope }));
  const { email, email_verified: verified } = claimsOf(body.id_token);
  const { body: info } = await idp.userinfo(body.access_token);
  if (info.email !== email || info.email_verified !== verified)
    throw new Error('userinfo says something else');
  if (body.refresh_token) {
    const next = claimsOf((await idp.refresh(client, body.refresh_token)).body.id_token);
    if (next.email !== email || next.email_verified !== verified)
      throw new Error('a refresh says something else');
  }
  return { email, verified };
}

t.test('an address is verified where an invitation was mailed to a trusted domain', async (t) => {
  const idp = await idpApp(t, { trustedEmailDomains: TRUSTED });
  const table: [handle: string, verified: boolean][] = [
    ['Ada@Example.COM', true],
    ['ada@mail.example.org', true],
    ['ada@münchen.example', true],
    ['ada@xn--mnchen-3ya.example', true],
    ['ada@faß.example', true],
    // Similar domains.
    ['ada@fass.example', false],
    ['ada@sub.example.com', false],
    ['ada@notexample.com', false],
    ['ada@example.com.evil.test', false],
    ['ada@example.co', false],
    ['ada@example.org', false],
    ['ada@munchen.example', false],
    ['example.com@evil.test', false],
  ];
  for (const [handle, verified] of table) {
    const who = await invite(idp, handle);
    t.same(await emailClaims(idp, who), { email: who.handle, verified }, handle);
  }
  for (const handle of [
    'example.com',
    'ada.example.com',
    'a@b@example.com',
    '@example.com',
    'ada@example.com.',
  ]) {
    const who = await invite(idp, handle);
    t.same(await emailClaims(idp, who), { email: undefined, verified: undefined }, handle);
  }
  const silent = await emailClaims(idp, await invite(idp, 'grace@example.com'), 'openid profile');
  t.same(silent, { email: undefined, verified: undefined }, 'without the email scope');
});

t.test('an address of a person who was not invited is not verified', async (t) => {
  const idp = await idpApp(t, { trustedEmailDomains: TRUSTED });
  const self = await idp.makeHuman({ handle: 'self@example.com' });
  t.same(await emailClaims(idp, self), { email: self.handle, verified: false });
  t.equal((await idp.admin('POST', '/v1/invites', { handle: self.handle })).status, 409);
  t.same(
    await emailClaims(idp, self),
    { email: self.handle, verified: false },
    'an invitation that was refused',
  );
  for (const change of ['disable', 'enable']) await idp.admin('POST', `/v1/principals/${self.sub}/${change}`);
  t.same(await emailClaims(idp, self), { email: self.handle, verified: false }, 'disabled and enabled again');
  // The state after a reset on the host.
  const people = principalCollection(await idpStore(t, idp));
  await people.updateOne(
    { id: self.sub },
    { set: { usedLink: { hash: 'x', purpose: 'reset', expiresAt: 1 } } },
  );
  t.same(
    await emailClaims(idp, self),
    { email: self.handle, verified: false },
    'a link that was no invitation',
  );
});

t.test(
  'an address of an agent is verified if the operator created it with the right to invite',
  async (t) => {
    const inviteToken = 'invite-only-9JdK3vXw7QbLr2ZsTn5Gh8';
    const byAdmin = await idpApp(t, { trustedEmailDomains: TRUSTED });
    const minted = await byAdmin.mintAgent({ handle: 'agent@example.com' });
    t.same(await emailClaims(byAdmin, minted), { email: minted.handle, verified: true });
    const elsewhere = await byAdmin.mintAgent({ handle: 'agent@other.example' });
    t.same(await emailClaims(byAdmin, elsewhere), { email: elsewhere.handle, verified: false });
    const self = { handle: 'self@example.com', password: PASSWORD, kind: 'agent' };
    const { body } = await byAdmin.request('POST', '/v1/accounts', { body: self });
    t.same(
      await emailClaims(byAdmin, { ...self, sub: body.sub }),
      { email: self.handle, verified: false },
      'an agent that registered itself',
    );
    const split = await idpApp(t, { trustedEmailDomains: TRUSTED, inviteToken });
    const unvouched = await split.mintAgent({ handle: 'agent@example.com' });
    t.same(
      await emailClaims(split, unvouched),
      { email: unvouched.handle, verified: false },
      'the administrator token cannot invite, so it cannot vouch',
    );
  },
);

t.test('the list of trusted domains decides which addresses are verified', async (t) => {
  const first = await idpApp(t);
  const ada = await invite(first, 'ada@example.com');
  t.same(await emailClaims(first, ada), { email: ada.handle, verified: false });
  const shared = { databaseUri: first.databaseUri, clock: first.clock };
  const second = await idpApp(t, { ...shared, trustedEmailDomains: ['example.com'] });
  t.same(await emailClaims(second, ada), { email: ada.handle, verified: true });
});

t.test('an invalid domain prevents the start', async (t) => {
  const start = (trustedEmailDomains: string[]) =>
    createIdentityServer({ ...idpOptions(temporaryFolder(t)), trustedEmailDomains });
  for (const wrong of [
    ...['', 'com', '.example.com', 'example.com.', '*.example.com', '@example.com', 'ada@example.com'],
    ...[
      'exa mple.com',
      'example.com:25',
      'https://example.com',
      '203.0.113.7',
      'ｅxample.com',
      'example。com',
    ],
  ]) {
    t.throws(() => start(['example.org', wrong]), /IDP_TRUSTED_EMAIL_DOMAINS must list domains/, wrong);
  }
  t.doesNotThrow(() => start(TRUSTED));
  const env = { IDP_TRUSTED_EMAIL_DOMAINS: ' example.com , example.org ' };
  const { trustedEmailDomains } = createIdentityServer({ ...idpOptions(temporaryFolder(t)), env })
    .configuration.values;
  t.same(trustedEmailDomains, ['example.com', 'example.org']);
});
