import type { Page } from 'playwright-core';
import type { Test } from 'tap';
import { agentLinkCollection, linkId, linkOwner } from '../../src/saas/agents/store.js';
import type { OrganizationApi } from '../../src/saas/organizations/host-api.js';
import { PASSWORD, type SaasApp, storeOf } from '../kit/app.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { mailedApp, VERIFY } from '../saas/auth/kit.js';
import { KEY, provider as paymentProvider } from '../saas/billing/kit.js';
import { CLIENT, fakeProvider } from '../saas/login-providers/kit.js';
import { INVITED } from '../saas/organizations/kit.js';
import { open, type Stop, send, stop } from './stops.js';

const HERE = { publicUrl: undefined, accountPages: true } as unknown as { accountPages: true };
const EMAIL_LABEL = 'E-mail address';

/** Everything that the pages can show, and a user with a verified address. */
export async function openUserPages(t: Test, email: string, name: string) {
  const [upstream, api] = await Promise.all([fakeProvider(t), paymentProvider(t)]);
  const login = { acme: { issuer: upstream.url, ...CLIENT, label: name.slice(0, 60) } };
  const app = await mailedApp(t, {
    ...{ ...HERE, login, emailLogin: true, passkeys: true, apiKeys: true, factorEncryptionKey: FACTOR_KEY },
    ...{ paymentSecretKey: KEY, paymentApiUrl: api.url },
    ...{ agentIssuer: upstream.url, agentResource: 'https://app.example.test/api', agentClientId: 'app' },
    billing: { plans: { pro: { prices: ['price_pro'] }, basic: { prices: ['price_basic'] } } },
    ...{ organizations: true, organizationRoles: { accountant: ['billing:manage'] } },
  });
  const account = `${await originOf(app)}/account`;
  const user = await app.signUp({ email, name });
  const opened = await app.request('POST', '/api/billing/create-checkout-session', {
    token: user.accessToken,
    body: { mode: 'setup' },
  });
  const customer = String(api.sessions.get(opened.body.data.sessionId)?.['customer']);
  await app.post('/auth/resend-verification', { email });
  await app.post('/auth/verify-email', { token: await app.tokenIn(VERIFY), password: PASSWORD });

  const subscribe = async () => {
    Object.assign(api.world.subscribe(customer, user.id, true), {
      ...{ status: 'active', price: 'price_pro', quantity: 1, trialEnd: null },
    });
    await app.request('POST', '/api/billing/sync', { token: user.accessToken, body: {} });
  };
  const connectAgents = async () => {
    const [issuer, subject, userId] = [upstream.url, 'ada-1', user.id];
    await agentLinkCollection(await storeOf(t, app)).insert({
      ...{ id: linkId(issuer, subject), owner: linkOwner(issuer, userId), userId, issuer, subject },
      createdAt: app.clock.now(),
    });
  };
  const organize = async () => {
    const { users, organizations } = app.server.fastify.saas;
    const api = organizations as OrganizationApi;
    const { id } = await api.create(user.id, { name: `The Analytical Engines of ${name}`.slice(0, 90) });
    for (const role of ['owner', 'admin', 'member', 'accountant']) {
      const member = await users.create({
        email: `${role}@analytical-engines.example.test`,
        name: `Charles ${role}`,
      });
      await api.addMember(id, member.id, role);
    }
    const other = await app.signUp({ email: 'grace@example.test' });
    await users.update({ id: other.id }, { emailVerified: true });
    const invites = async (organization: string, token: string, invited: string) => {
      const path = `/api/organizations/${organization}/invitations`;
      const answer = await app.request('POST', path, { token, body: { email: invited, role: 'admin' } });
      t.equal(answer.status, 201, answer.text);
    };
    await invites(id, user.accessToken, 'invited@analytical-engines.example.test');
    const { id: inviting } = await api.create(other.id, { name: 'The Company of Grace' });
    await invites(inviting, other.accessToken, email);
    const link = async () => {
      for (;;) {
        const { to, token } = await app.mail(INVITED);
        if (to.includes(email)) return `${account}/organization/invitation?token=${token}`;
      }
    };
    return { page: `${account}/organization/${id}`, link: await link() };
  };
  return { app, account, user, subscribe, connectAgents, organize };
}

/** The name that the server assumes without a public URL. */
const originOf = async (app: SaasApp) => (await app.listen()).replace('127.0.0.1', 'localhost');

/** The pages for users of saas-backend. */
export async function stopsOfUserPages(t: Test, email: string, name: string): Promise<Stop[]> {
  const { app, account, subscribe, connectAgents, organize } = await openUserPages(t, email, name);
  const known = { [EMAIL_LABEL]: email, Password: PASSWORD };
  const added = { [EMAIL_LABEL]: 'new@example.test', 'Confirm password': PASSWORD, Password: PASSWORD };
  let secret = '';
  const organized = await organize();

  return [
    stop('user-sign-in', 200, open(`${account}/sign-in`)),
    stop('user-sign-in-wrong', 401, send({ ...known, Password: 'wrong' })),
    stop('user-sign-up', 200, open(`${account}/sign-up`)),
    stop('user-sign-up-taken', 409, send({ ...added, [EMAIL_LABEL]: email })),
    stop('user-sign-up-differ', 422, send({ ...added, 'Confirm password': 'another' })),
    stop('user-sign-up-passkey', 200, async (page) => {
      await page.goto(`${account}/sign-up`);
      await page.getByLabel(EMAIL_LABEL, { exact: true }).fill('new@example.test');
      const button = page.getByRole('button', { name: 'Create account with a passkey' });
      const [response] = await Promise.all([page.waitForNavigation(), button.click()]);
      return response;
    }),
    stop('user-forgot-password', 200, open(`${account}/forgot-password`)),
    stop('user-forgot-password-sent', 200, send({ [EMAIL_LABEL]: email })),
    stop('user-code-elsewhere', 400, open(`${account}/sign-in/code/enter`)),
    stop('user-code-request', 200, open(`${account}/sign-in/code`)),
    stop('user-code', 200, send({ [EMAIL_LABEL]: 'nobody@example.test' })),
    stop('user-code-wrong', 401, send({ Code: 'AAAA-AAAA' })),
    stop('user-account', 200, async (page) => {
      await page.goto(`${account}/sign-in`);
      return send(known)(page);
    }),
    stop('user-passkeys', 200, open(`${account}/passkeys`)),
    stop('user-address', 200, open(`${account}/address`)),
    stop('user-address-wrong', 401, send({ 'New e-mail address': 'new@example.test', Password: 'wrong' })),
    stop('user-providers', 200, open(`${account}/providers`)),
    stop('user-agents', 200, open(`${account}/agents`)),
    stop('user-agents-taken', 200, open(`${account}/agents?done=taken`)),
    stop('user-agents-connected', 200, async (page) => {
      await connectAgents();
      return page.goto(`${account}/agents?done=connected`);
    }),
    stop('user-keys', 200, open(`${account}/keys`)),
    stop('user-keys-wrong', 422, send({ 'Name of the key': name })),
    stop('user-keys-created', 200, async (page) => {
      await page.getByLabel('billing:read').check();
      return send({ 'Name of the key': name })(page);
    }),
    stop('user-billing-none', 200, open(`${account}/billing`)),
    stop('user-billing', 200, async (page) => {
      await subscribe();
      return page.goto(`${account}/billing`);
    }),
    stop('user-billing-change', 200, open(`${account}/billing/change?price=price_basic`)),
    stop('user-billing-cancelled', 200, async (page) => {
      await page.goto(`${account}/billing`);
      const button = page.getByRole('button', { name: 'Cancel at the end of the period' });
      const [response] = await Promise.all([page.waitForNavigation(), button.click()]);
      return response;
    }),
    stop('user-organizations', 200, open(`${account}/organization`)),
    stop('user-organizations-wrong', 422, send({ Name: ' ' })),
    stop('user-organization', 200, open(organized.page)),
    stop('user-organization-invite-wrong', 422, send({ 'E-mail address of the person to invite': 'x@y' })),
    stop('user-organization-slug-taken', 409, send({ Slug: 'admin' })),
    stop('user-organization-ownership', 200, open(`${organized.page}/ownership`)),
    stop('user-organization-differs', 422, async (page) => {
      await page.locator('#typed').fill('another');
      const [response] = await Promise.all([page.waitForNavigation(), page.locator('button.danger').click()]);
      return response;
    }),
    stop('user-invitation-invalid', 400, open(`${account}/organization/invitation?token=x`)),
    stop('user-invitation', 200, open(organized.link)),
    stop('user-invitation-accepted', 200, send()),
    stop('user-second-factor', 200, open(`${account}/second-factor`)),
    stop('user-second-factor-enrolment', 200, async (page) => {
      const response = await send()(page);
      secret = ((await page.locator('code.wrap').textContent()) ?? '').replaceAll(' ', '');
      return response;
    }),
    stop('user-recovery-codes', 200, async (page) => enrol(page, codeAt(secret, app.clock.now()))),
    stop('user-sign-out', 200, open(`${account}/sign-out`)),
    stop('user-signed-out', 200, send()),
    stop('user-second-factor-code', 200, send(known)),
  ];
}

async function enrol(page: Page, code: string) {
  await page.locator('#code').fill(code);
  const button = page.locator('form', { has: page.locator('#code') }).locator('button');
  const [response] = await Promise.all([page.waitForNavigation(), button.click()]);
  return response;
}
