import type { Page, Response } from 'playwright-core';
import type { Test } from 'tap';
import { sha256 } from '../../src/core/kernel/secrets.js';
import { documentCollection } from '../../src/core/outbound/documents.js';
import { logoutNoticeCollection } from '../../src/idp/oidc/backchannel/store.js';
import type { OrganizationApi } from '../../src/saas/organizations/host-api.js';
import { linkOf } from '../idp/provisioning/kit.js';
import { basic, PASSWORD, SECRETS } from '../kit/app.js';
import { DETAILS, PAYMENT, PAYMENTS } from '../kit/approvals.js';
import { optionsIn, SoftwareAuthenticator } from '../kit/authenticator.js';
import { begin, deviceClient } from '../kit/device.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { type IdpApp, idpStore, search } from '../kit/idp.js';
import { type MailSink, mailSink } from '../kit/mail.js';
import { COMMAND_SOURCE, makeOperator, rolesOf } from '../kit/operator.js';
import { addResource } from '../kit/resources.js';
import { signWebhook } from '../kit/sign-webhook.js';
import { type MailedApp, mailedApp, RESET, readMails, VERIFY } from '../saas/auth/kit.js';
import { enterAccount, FIREFOX, secretIn } from '../shared/account-pages/kit.js';
import { authorizeUrl, reachableIdp } from './kit.js';
import { open, type Stop, send, stop } from './stops.js';
import { stopsOfUserPages } from './user-tour.js';

/** Every HTML page, in an order in which a browser can visit them. */

const HANDLE = 'maximiliane.von-und-zu-hohenlohe-langenburg@department.of.some-company.example';
const NAME = 'The Application of Unreasonably Great Length for Donaudampfschifffahrtsgesellschaftskapitäne';

const SETTINGS_KEY = 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9';

const RESOURCE = 'https://interface.department.of.some-company-with-a-long-name.example/v1/files';

export async function planTour(t: Test): Promise<Stop[]> {
  const sink = await mailSink(t);
  const mailed = { emailSmtpUrl: sink.url, factorEncryptionKey: FACTOR_KEY };
  const [{ idp, origin }, saas] = await Promise.all([
    reachableIdp(t, { ...mailed, passkeys: true, deviceFlow: true, approvals: true, clientIdMetadata: true }),
    mailedApp(t, {
      factorEncryptionKey: FACTOR_KEY,
      webhooks: true,
      organizations: true,
      settingsEncryptionKey: SETTINGS_KEY,
    }),
  ]);
  const inConsole = await stopsOfConsole(t, idp, origin);
  return [
    ...(await stopsOfIdp(t, idp, origin)),
    ...(await stopsOfDevices(t, idp, origin)),
    ...(await stopsOfApprovals(t, idp, origin)),
    ...(await stopsOfMailedLinks(t, idp, origin, sink)),
    ...(await stopsOfSecondFactor(idp, origin)),
    ...(await stopsOfPasskeys(idp, origin)),
    ...inConsole,
    ...(await stopsOfSaas(saas, await saas.listen())),
    ...(await stopsOfUserPages(t, HANDLE, NAME)),
  ];
}

async function stopsOfIdp(t: Test, idp: IdpApp, origin: string): Promise<Stop[]> {
  const client = await idp.createClient({ name: NAME, redirect_uris: `${origin}/health` });
  await idp.makeHuman({ handle: HANDLE });
  const agentsOnly = await idp.createClient({ name: NAME, principal_kinds: ['agent'] });
  const { body } = await idp.admin('POST', '/v1/invites', { handle: `new.${HANDLE}` });
  const chosen = { 'New password': 'a new one of mine', 'Confirm new password': 'a new one of mine' };
  const scope = 'openid profile email offline_access';
  const start = authorizeUrl(origin, client, { scope });
  await addResource(t, idp, RESOURCE, {
    name: `The Programming Interface of ${NAME}`,
    sensitive: ['files:write'],
  });
  const scopes = `${scope} files:read files:write`;
  const agent = await idp.mintAgent({ name: NAME });
  const unknown = await namesItself(t, idp, { isUsed: false });
  const atResource = authorizeUrl(origin, client, { scope: scopes, resource: RESOURCE });
  return [
    stop('sign-in', 200, open(start)),
    stop('sign-in-unknown', 200, open(authorizeUrl(origin, unknown))),
    stop('sign-in-wrong', 401, send({ 'E-mail or user name': HANDLE, Password: 'wrong' })),
    stop('sign-up', 200, open(`${start}&prompt=create`)),
    stop('sign-up-taken', 409, send({ ...NEWCOMER, 'E-mail or user name': HANDLE, ...OTHER_PASSWORD })),
    stop('sign-up-differ', 422, send({ ...NEWCOMER, 'Confirm password': 'another' })),
    stop('agents-only', 403, open(authorizeUrl(origin, agentsOnly))),
    stop('error-client', 400, open(`${origin}/authorize?client_id=cid_${'x'.repeat(60)}`)),
    stop('error-missing', 404, open(`${origin}/nothing`)),
    stop('sign-in-first', 401, open(`${origin}/account/password`)),
    stop('invite', 200, open(body.invite_url)),
    stop('invite-differ', 422, send({ Password: PASSWORD, 'Confirm password': 'another' })),
    stop('invite-done', 200, open(`${origin}/invite/done`)),
    stop('invite-dead', 404, open(`${origin}/invite/${'x'.repeat(43)}`)),
    stop('logout-done', 200, open(`${origin}/logout`)),
    stop('consent', 200, async (page) => {
      await page.goto(start);
      await send({ 'E-mail or user name': HANDLE, Password: PASSWORD })(page);
      return page.goto(`${start}&prompt=consent`);
    }),
    stop('consent-resource', 200, open(atResource)),
    stop('delegation', 200, open(`${atResource}&requested_actor=${agent.sub}&delegation_max_depth=2`)),
    stop('form-post', 200, open(`${start}&response_mode=form_post`)),
    stop('account', 200, async (page) => {
      await enterAccount(idp, { handle: HANDLE, password: PASSWORD }, { 'user-agent': FIREFOX });
      return page.goto(`${origin}/account`);
    }),
    stop('account-delegations', 200, async (page) => {
      await page.goto(`${atResource}&requested_actor=${agent.sub}&delegation_max_depth=2`);
      await send()(page);
      return page.goto(`${origin}/account`);
    }),
    stop('account-delegation-ended', 200, async (page) => {
      const end = page.locator('form[action$="/delegations/end"] button');
      const [response] = await Promise.all([page.waitForNavigation(), end.click()]);
      return response;
    }),
    stop('account-renamed', 200, send({ Name: NAME })),
    stop('account-wrong', 422, send({ Name: 'x'.repeat(201) })),
    stop('account-delete', 200, open(`${origin}/account/delete`)),
    stop('account-delete-differs', 422, send({ ...DELETION, [`Type ${HANDLE} to confirm`]: 'another' })),
    stop('account-deleted', 200, open(`${origin}/account/deleted`)),
    stop('account-password', 200, open(`${origin}/account/password`)),
    stop('account-password-wrong', 401, send({ 'Current password': 'wrong', ...chosen })),
    stop('account-password-done', 200, open(`${origin}/account/password/done`)),
    stop('logout', 200, open(`${origin}/logout`)),
  ];
}

/** An application that publishes its own metadata, which the provider has read. */
async function namesItself(t: Test, idp: IdpApp, { isUsed }: { isUsed: boolean }) {
  const id = `https://${HANDLE.split('@')[1]}/${isUsed ? 'used' : 'new'}/client-metadata.json`;
  const redirectUri = 'http://127.0.0.1/callback';
  const now = idp.clock.now();
  const usedAt = now - 86_400_000;
  await documentCollection(await idpStore(t, idp)).insert({
    ...{ id: sha256(id), uri: id, fetchedAt: now, freshUntil: now + 300_000, expiresAt: now + 3_600_000 },
    text: JSON.stringify({ client_id: id, client_name: NAME, redirect_uris: [redirectUri] }),
    ...(isUsed && { usedAt, lastUsedAt: now }),
  });
  return { id, redirectUri, copy: sha256(id) };
}

/** The pages on which a person signs in a device. */
async function stopsOfDevices(t: Test, idp: IdpApp, origin: string): Promise<Stop[]> {
  const client = await deviceClient(t, idp, { name: NAME, public: true });
  const scope = 'openid profile email offline_access files:read files:write';
  const asked = { scope, resource: RESOURCE };
  const requests = [
    await begin(idp, client, asked, '2001:db8:1234:5678::1'),
    await begin(idp, client, { scope: 'openid' }),
  ];
  const [first, second] = requests.map(({ body }) => body.user_code);
  return [
    stop('device-sign-in', 401, async (page) => {
      await page.context().clearCookies();
      return page.goto(`${origin}/device?user_code=${first}`);
    }),
    stop('device', 200, send({ 'E-mail or user name': HANDLE, Password: PASSWORD })),
    stop('device-unknown', 404, send({ Code: 'BBBB-BBBB' })),
    stop('device-confirm', 200, send({ Code: first })),
    stop('device-allowed', 200, send()),
    stop('device-confirm-here', 200, async (page) => {
      await page.goto(`${origin}/device?user_code=${second}`);
      return send()(page);
    }),
    stop('device-denied', 200, async (page) => {
      const [response] = await Promise.all([
        page.waitForNavigation(),
        page.getByRole('button', { name: 'Deny' }).click(),
      ]);
      return response;
    }),
  ];
}

/** The page on which a person decides about one action. */
async function stopsOfApprovals(t: Test, idp: IdpApp, origin: string): Promise<Stop[]> {
  const scopes = [{ name: 'pay', description: 'Send payments' }];
  const api = await addResource(t, idp, PAYMENTS, { name: `The Payments of ${NAME}`, scopes });
  await api.changeApprovals(PAYMENTS, { add: PAYMENT }, COMMAND_SOURCE);
  const authorization_details = JSON.stringify([{ ...DETAILS, creditor: NAME }]);
  const agent = await idp.mintAgent({ name: NAME });
  const { body } = await idp.request('POST', '/bc-authorize', {
    form: search({ authorization_details, scope: 'pay', login_hint: HANDLE, binding_message: 'Order 7' }),
    headers: { authorization: basic(agent.sub, agent.password) },
  });
  const client = await idp.createClient({ name: NAME, redirect_uris: `${origin}/health` });
  return [
    stop('approval-sign-in', 401, async (page) => {
      await page.context().clearCookies();
      return page.goto(`${origin}/approve/apr_${body.auth_req_id.slice(3, 35)}`);
    }),
    stop('approval', 200, send({ 'E-mail or user name': HANDLE, Password: PASSWORD })),
    stop('approval-allowed', 200, send()),
    stop('approval-gone', 404, open(`${origin}/approve/apr_${'0'.repeat(32)}`)),
    stop('approval-application', 200, open(authorizeUrl(origin, client, { authorization_details }))),
  ];
}

const NEWCOMER = {
  'E-mail or user name': `newcomer.${HANDLE}`,
  Name: 'Maximiliane',
  Password: PASSWORD,
  'Confirm password': PASSWORD,
};

const OTHER_PASSWORD = { Password: `${PASSWORD}!`, 'Confirm password': `${PASSWORD}!` };

const DELETION = { [`Type ${HANDLE} to confirm`]: HANDLE, Password: PASSWORD };

/** The pages for a forgotten password and for the verification of an address. */
async function stopsOfMailedLinks(_t: Test, idp: IdpApp, origin: string, sink: MailSink): Promise<Stop[]> {
  const { mail } = readMails(sink, idp.clock);
  const ada = await idp.makeHuman({ handle: `ada.${HANDLE}`, name: NAME });
  const linkTo = async (subject: RegExp): Promise<string> => {
    for (;;) {
      const { to, text } = await mail(subject);
      if (to.includes(ada.handle)) return origin + linkOf(text);
    }
  };
  const verification = await linkTo(VERIFY);
  return [
    stop('forgot-password', 200, async (page) => {
      await page.context().clearCookies();
      await page.goto(authorizeUrl(origin, await idp.createClient(), {}));
      const [response] = await Promise.all([
        page.waitForNavigation(),
        page.getByRole('link', { name: 'Forgot your password?' }).click(),
      ]);
      return response;
    }),
    stop('forgot-password-sent', 200, send({ 'E-mail or user name': ada.handle })),
    stop('mailed-reset', 200, async (page) => page.goto(await linkTo(RESET))),
    stop('verify-address', 200, open(verification)),
    stop('verify-address-wrong', 401, send({ Password: 'wrong' })),
    stop('verify-address-signed-in', 200, async (page) => {
      await page.goto(
        authorizeUrl(origin, await idp.createClient({ redirect_uris: `${origin}/health` }), {}),
      );
      await send({ 'E-mail or user name': ada.handle, Password: ada.password })(page);
      return page.goto(verification);
    }),
    stop('verify-address-done', 200, send()),
    stop('verify-address-dead', 410, open(verification)),
  ];
}

/** Setting up an authenticator app, and the sign-in with it. */
async function stopsOfSecondFactor(idp: IdpApp, origin: string): Promise<Stop[]> {
  const unconfirmed = await idp.makeHuman({ handle: `unconfirmed.${HANDLE}` });
  const { handle, password } = await idp.makeHuman({ handle: HANDLE.replace('@', '.at.'), name: NAME });
  const credentials = { 'E-mail or user name': handle, Password: password };
  const code = () => codeAt(secret, idp.clock.now());
  let secret = '';
  return [
    stop('second-factor-unconfirmed', 200, async (page) => {
      await page.context().clearCookies();
      await page.goto(`${origin}/account/second-factor`);
      return send({ 'E-mail or user name': unconfirmed.handle, Password: unconfirmed.password })(page);
    }),
    stop('second-factor-begin', 200, async (page) => {
      await page.context().clearCookies();
      await page.goto(`${origin}/account/second-factor`);
      return send(credentials)(page);
    }),
    stop('second-factor-set-up', 200, async (page) => {
      const response = await send()(page);
      secret = secretIn(await page.content());
      return response;
    }),
    stop('second-factor-set-up-wrong', 401, send({ 'Enter the code that the app shows': '000000' })),
    stop('second-factor-recovery-codes', 200, async (page) =>
      send({ 'Enter the code that the app shows': code() })(page),
    ),
    stop('second-factor-manage', 200, open(`${origin}/account/second-factor`)),
    stop('second-factor', 200, async (page) => {
      await page.context().clearCookies();
      await page.goto(`${origin}/account`);
      return send(credentials)(page);
    }),
    stop('second-factor-wrong', 401, send({ Code: '000000' })),
  ];
}

/** The pages with passkeys, as their script shows them. */
async function stopsOfPasskeys(idp: IdpApp, origin: string): Promise<Stop[]> {
  const { handle, password } = await idp.makeHuman({ handle: `passkey.${HANDLE}`, name: NAME });
  const url = `${origin}/account/passkeys`;
  const authenticator = new SoftwareAuthenticator(origin);
  const reveal = async (page: Page, response: Response | null) => {
    await page.evaluate(`for (const [selector, hidden] of [['[data-passkey]', false], ['[data-no-passkey]', true]])
      for (const one of document.querySelectorAll(selector)) one.hidden = hidden;
      document.querySelector('[data-passkey] [autofocus]')?.focus()`);
    return response;
  };
  /** Submits the form of the script. */
  const answer = async (page: Page, credential: string) => {
    const form = "document.querySelector('[data-passkey]')";
    await page.evaluate(`${form}.elements.credential.value = ${JSON.stringify(credential)}`);
    const [response] = await Promise.all([page.waitForNavigation(), page.evaluate(`${form}.submit()`)]);
    return response;
  };
  return [
    stop('passkeys-sign-in', 401, async (page) => {
      await page.context().clearCookies();
      return reveal(page, await page.goto(url));
    }),
    stop('passkeys-sign-in-wrong', 401, async (page) => reveal(page, await answer(page, '{}'))),
    stop('passkeys-none', 200, send({ 'E-mail or user name': handle, Password: password })),
    stop('passkeys-wrong', 422, async (page) => reveal(page, await answer(page, '{}'))),
    stop('passkeys-added', 200, async (page) => {
      const credential = authenticator.create(optionsIn(await page.content()));
      return reveal(page, await answer(page, credential));
    }),
    stop('passkeys-sign-up', 200, async (page) => reveal(page, await page.goto(`${origin}/account/sign-up`))),
    stop('passkeys-no-password', 200, async (page) => {
      const options = optionsIn(await page.content());
      const newcomer = new SoftwareAuthenticator(origin);
      const form = "document.querySelector('[data-passkey]')";
      await page.evaluate(`${form}.elements.handle.value = 'keys.${HANDLE}'`);
      await answer(page, newcomer.create(options));
      return page.goto(`${origin}/account/password`);
    }),
    stop('passkeys-no-password-delete', 200, open(`${origin}/account/delete`)),
    stop('passkeys-enter', 200, async (page) => {
      await page.context().clearCookies();
      await page.goto(url);
      return send({ 'E-mail or user name': handle, Password: password })(page);
    }),
    stop('passkeys-renamed-wrong', 422, async (page) => {
      await page.locator('summary').first().click();
      return send({ 'New name': '\u2800' })(page);
    }),
  ];
}

/** The console, after the first operator has been made. */
async function stopsOfConsole(t: Test, idp: IdpApp, origin: string): Promise<Stop[]> {
  const empty = await reachableIdp(t);
  const setup = await empty.idp.server.fastify.idp.createFirstOperatorLink();
  const operator = await makeOperator(t, idp, `operator.${HANDLE}`);
  const agent = await idp.mintAgent({ name: NAME });
  const address = `https://${HANDLE.split('@')[1]}/back-channel-logout`;
  const client = await idp.createClient({ name: NAME, backchannel_logout_uri: address });
  await idp.admin('POST', '/v1/invites', { handle: `invited.${HANDLE}` });
  const sid = `sid_${'0'.repeat(32)}`;
  await logoutNoticeCollection(await idpStore(t, idp)).insert({
    ...{ id: `${sid}.${client.id}`, clientId: client.id, sub: operator.sub, sid, session: sid, attempts: 3 },
    ...{ failingSince: idp.clock.now(), lastFailure: 'connect ECONNREFUSED 203.0.113.7:443' },
    ...{ dueAt: idp.clock.now() + 3_600_000, expiresAt: idp.clock.now() + 3_600_000 },
  });
  const named = await namesItself(t, idp, { isUsed: true });
  const page = (path: string) => open(`${origin}/admin${path}`);
  return [
    stop('first-operator', 200, open(setup?.url ?? '')),
    stop('first-operator-taken', 400, async (page) => {
      const password = { Password: PASSWORD, 'Confirm password': PASSWORD };
      return send({ 'E-mail or user name': 'a:b', ...password })(page);
    }),
    stop('console-sign-in', 401, async (page) => {
      await page.context().clearCookies();
      return page.goto(`${origin}/admin/`);
    }),
    stop('console', 200, send({ 'E-mail or user name': operator.handle, Password: operator.password })),
    stop('console-search', 200, page('/search?q=nothing')),
    stop('console-principals', 200, page('/principals')),
    stop('console-principal', 200, page(`/principals/${operator.sub}`)),
    stop('console-disable', 200, page(`/principals/${agent.sub}/disable`)),
    stop('console-disabled', 200, send()),
    stop('console-delete', 200, page(`/principals/${agent.sub}/delete`)),
    stop('console-delete-wrong', 400, send({ [`Type ${agent.handle} to confirm`]: 'another' })),
    stop('console-agent', 200, page('/agents/create')),
    stop('console-agent-created', 200, send({ 'User name': `scout.${HANDLE}` })),
    stop('console-invitations', 200, page('/invitations')),
    stop('console-invite', 200, page('/invitations/create')),
    stop('console-invited', 200, send({ 'User name': `next.${HANDLE}` })),
    stop('console-clients', 200, page('/clients')),
    stop('console-client', 200, page(`/clients/${client.id}`)),
    stop('console-client-update', 200, page(`/clients/${client.id}/update`)),
    stop('console-client-created', 200, async (page) => {
      await page.goto(`${origin}/admin/clients/create`);
      return send({ Name: 'Shop', 'Redirect URIs': 'https://app.example/cb' })(page);
    }),
    stop('console-resources', 200, page('/resources')),
    stop('console-metadata-clients', 200, page('/metadata-clients')),
    stop('console-metadata-client-block', 200, page(`/metadata-clients/${named.copy}/block`)),
    stop('console-metadata-client-blocked', 200, send()),
    stop('console-metadata-client-admit', 200, page(`/metadata-clients/${named.copy}/admit`)),
    stop('console-logout-failures', 200, page('/logout-failures')),
    stop('console-logout-retry', 200, page(`/logout-failures/${sid}.${client.id}/retry`)),
    stop('console-keys', 200, page('/keys')),
    stop('console-mails', 200, page('/mails')),
    stop('console-branding', 200, page('/branding')),
    stop('console-audit', 200, page('/audit?event=login.')),
    stop('console-forbidden', 403, async (page) => {
      await (await rolesOf(t, idp)).revoke(operator.sub, COMMAND_SOURCE);
      return page.goto(`${origin}/admin/`);
    }),
  ];
}

const CONFIRMING = 'Current or new password';

/** Delivers an event of the payment provider. */
async function subscribe(saas: MailedApp, userId: string, id: string): Promise<void> {
  const items = { data: [{ price: { id: 'price_pro', lookup_key: 'pro' } }] };
  const object = {
    id,
    object: 'subscription',
    customer: 'cus_1',
    status: 'active',
    items,
    metadata: { userId },
  };
  const event = { id: `evt_${id}`, object: 'event', type: 'customer.subscription.created', data: { object } };
  const body = JSON.stringify({ ...event, created: Math.floor(saas.clock.now() / 1000) });
  const signature = signWebhook(body, SECRETS.paymentWebhookSecret, saas.clock.now());
  const headers = { 'payment-signature': signature };
  await saas.request('POST', '/api/billing/webhook', { body, headers });
}

async function stopsOfSaas(saas: MailedApp, origin: string): Promise<Stop[]> {
  // Nothing listens there, and nothing is sent before the tour.
  const hook = { url: 'http://127.0.0.1:9/hooks/of-an-application', description: NAME };
  const added = await saas.admin('POST', '/admin/api/endpoints/create', hook);
  const { endpointId } = added.body.data;
  const { email, id } = await saas.signUp({ email: HANDLE, name: NAME });
  const deliveries = await saas.admin('GET', '/admin/api/deliveries');
  const [delivery] = deliveries.body.data.items;
  for (const name of ['sub_1QabcdEfGhIjKlMnOpQrStUv', 'sub_2QabcdEfGhIjKlMnOpQrStUv'])
    await subscribe(saas, id, name);
  const operator = origin.replace(
    '//',
    `//${SECRETS.adminUsername}:${encodeURIComponent(SECRETS.adminPassword)}@`,
  );
  const other = await saas.signUp({ name: 'Ada' });
  const organizations = saas.server.fastify.saas.organizations as OrganizationApi;
  const { id: organization } = await organizations.create(id, { name: NAME });
  await organizations.addMember(organization, other.id);
  const pageOfOrganization = `${operator}/admin/organizations/${organization}`;
  for (let count = 0; count < 3; count++) await saas.signUp({ name: 'Ada' });
  await saas.post('/auth/forgot-password', { email });
  const token = await saas.tokenIn(RESET);
  await saas.post('/auth/resend-verification', { email: other.email });
  const confirmation = `${origin}/api/auth/verify-email?token=${await saas.tokenIn(VERIFY)}`;
  return [
    stop('reset-password', 200, open(`${origin}/api/auth/reset-password?token=${token}`)),
    stop('reset-password-weak', 400, async (page) => {
      // Browsers without support for the attribute submit invalid input.
      await page.evaluate('document.forms[0].noValidate = true');
      return send({ 'New password': 'short' })(page);
    }),
    stop('done', 200, send({ 'New password': `${PASSWORD}!` })),
    stop('verify-email', 200, open(confirmation)),
    stop('verify-email-weak', 400, async (page) => {
      await page.evaluate('document.forms[0].noValidate = true');
      return send({ [CONFIRMING]: 'short' })(page);
    }),
    stop('verify-email-done', 200, send({ [CONFIRMING]: PASSWORD })),
    stop('verify-email-dead', 400, async (page) => {
      await page.goto(confirmation);
      return send({ [CONFIRMING]: `${PASSWORD}?` })(page);
    }),
    stop('unlock', 200, open(`${origin}/api/auth/unlock?token=${token}`)),
    stop('unlock-dead', 400, send()),
    stop('admin', 200, open(`${operator}/admin/`)),
    stop('admin-search', 200, open(`${operator}/admin/search?q=example`)),
    stop('admin-users', 200, open(`${operator}/admin/users`)),
    stop('admin-user', 200, open(`${operator}/admin/users/${id}`)),
    stop('admin-user-remove-second-factor', 200, open(`${operator}/admin/users/${id}/remove-second-factor`)),
    stop('admin-user-sessions', 200, open(`${operator}/admin/users/${id}/sessions`)),
    stop('admin-user-grant', 200, open(`${operator}/admin/users/${id}/grant`)),
    stop('admin-user-rename-wrong', 400, async (page) => {
      await page.goto(`${operator}/admin/users/${id}/rename`);
      return send({ 'New name': '   ' })(page);
    }),
    stop('admin-user-delete', 200, open(`${operator}/admin/users/${id}/delete`)),
    stop('admin-organizations', 200, open(`${operator}/admin/organizations`)),
    stop('admin-organization', 200, open(pageOfOrganization)),
    stop('admin-organization-member', 200, open(`${pageOfOrganization}/members/${other.id}/role`)),
    stop('admin-organization-delete', 200, open(`${pageOfOrganization}/delete`)),
    stop('admin-subscriptions', 200, open(`${operator}/admin/subscriptions`)),
    stop('admin-payments', 200, open(`${operator}/admin/payments`)),
    stop('admin-events', 200, open(`${operator}/admin/webhooks`)),
    stop('admin-event', 200, open(`${operator}/admin/webhooks/evt_sub_1QabcdEfGhIjKlMnOpQrStUv`)),
    stop('admin-action', 200, open(`${operator}/admin/webhooks/evt_sub_1QabcdEfGhIjKlMnOpQrStUv/assign`)),
    stop('admin-endpoints', 200, open(`${operator}/admin/endpoints`)),
    stop('admin-endpoint', 200, open(`${operator}/admin/endpoints/${endpointId}`)),
    stop('admin-endpoint-create', 200, open(`${operator}/admin/endpoints/create`)),
    stop('admin-endpoint-created', 200, send({ URL: 'https://example.com/hooks' })),
    stop('admin-endpoint-wrong', 400, async (page) => {
      await page.goto(`${operator}/admin/endpoints/create`);
      return send({ URL: 'example' })(page);
    }),
    stop('admin-deliveries', 200, open(`${operator}/admin/deliveries`)),
    stop('admin-delivery', 200, open(`${operator}/admin/deliveries/${delivery.id}`)),
    stop('admin-mails', 200, open(`${operator}/admin/mails`)),
    stop('admin-mail', 200, async (page) => {
      await page.goto(`${operator}/admin/mails`);
      const [response] = await Promise.all([page.waitForNavigation(), page.locator('td a').first().click()]);
      return response;
    }),
    stop('admin-branding', 200, open(`${operator}/admin/branding`)),
    stop('admin-mail-template', 200, open(`${operator}/admin/mails/templates/password-changed`)),
    stop('admin-mail-test', 200, open(`${operator}/admin/mails/templates/password-changed/test`)),
    stop('admin-audit', 200, open(`${operator}/admin/audit`)),
    stop('admin-help', 200, open(`${operator}/admin/help`)),
    stop('admin-time-zone', 200, open(`${operator}/admin/time-zone`)),
    stop('admin-settings', 200, open(`${operator}/admin/settings`)),
  ];
}
