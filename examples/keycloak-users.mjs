// Users of Keycloak sign in to an application of saas-backend, which has Keycloak as a sign-in provider.
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort, newSecret, Problem, untilReady } from './broker-kit.mjs';
import { Browser } from './broker-sign-in.mjs';

const PASSWORD = newSecret();
const ADA = { username: 'ada', email: 'ada@users.example', emailVerified: true };
const GRACE = { username: 'grace', email: 'grace@users.example', emailVerified: true };
const EVE = { username: 'eve', email: 'eve@users.example', emailVerified: false };

/**
 * @param admin sends requests to the admin REST API of Keycloak
 * @throws Error when saas-backend does not behave as docs/saas/login-providers.md says
 */
export async function signUsersIn(house, { issuer, realm, admin }) {
  const clientSecret = newSecret();
  const port = await freePort();
  const url = `http://localhost:${port}`;
  await admin('POST', `${realm}/clients`, {
    ...{ clientId: 'saas', secret: clientSecret, redirectUris: [`${url}/api/auth/callback/keycloak`] },
    // Keycloak then rejects requests without PKCE.
    attributes: { 'pkce.code.challenge.method': 'S256' },
  });
  for (const user of [ADA, GRACE, EVE]) {
    const credentials = [{ type: 'password', value: PASSWORD, temporary: false }];
    const name = { firstName: user.username, lastName: 'Example' };
    await admin('POST', `${realm}/users`, { ...user, ...name, enabled: true, credentials });
  }
  const program = fileURLToPath(new URL('../dist/bin/saas-backend.js', import.meta.url));
  const env = {
    PUBLIC_URL: url,
    DATABASE_URI: `sqlite:${join(house.folder, 'saas-backend.db')}`,
    LOGIN_PROVIDERS: JSON.stringify({ keycloak: { issuer, clientId: 'saas', clientSecret } }),
  };
  await untilReady(house.start(process.execPath, [program, '-p', `${port}`], env), `${url}/ready`);
  const application = { url, issuer };

  const registered = await signIn(application, ADA);
  const { user } = registered.body.data ?? {};
  expect(
    'the account',
    [registered.status, user?.email, user?.name, user?.emailVerified],
    [...[200, ADA.email, 'ada Example', true]],
  );
  const again = await signIn(application, ADA);
  expect('the second sign-in', [again.status, again.body.data?.user.id], [200, user.id]);
  console.log(`user of Keycloak signed up and in: ${user.email}`);

  const unverified = await signIn(application, EVE);
  expect('an unverified address', unverified.body.error?.code, 'PROVIDER_EMAIL_NOT_VERIFIED');
  await post(`${url}/api/auth/register`, { email: GRACE.email, password: newSecret() });
  const taken = await signIn(application, GRACE);
  expect('an address with an account', taken.body.error?.code, 'ACCOUNT_EXISTS');
  console.log('user of Keycloak rejected: without a verified address, and with the address of an account');

  await rejectResponses(application);
  console.log('responses of Keycloak rejected: in another browser, with another state, issuer or code');
}

/** Responses that an attacker could send to the callback. */
async function rejectResponses(application) {
  const cases = {
    'another browser': [{}, new Browser()],
    'another state': [{ state: `${'0'.repeat(20)}.${'x'.repeat(43)}` }],
    'another issuer': [{ iss: 'http://localhost:1/realms/demo' }],
    'another code': [{ code: newSecret() }],
  };
  for (const [name, [changes, other]] of Object.entries(cases)) {
    const browser = new Browser();
    const { callback } = await authenticate(application, ADA, browser);
    for (const [parameter, value] of Object.entries(changes)) {
      if (!callback.searchParams.has(parameter)) throw new Problem(`Keycloak sends no ${parameter}`);
      callback.searchParams.set(parameter, value);
    }
    const response = await (other ?? browser).ask(callback.href);
    const isRejected =
      response.status === 400 || /[?&]error=login_failed$/.test(response.headers.get('location'));
    expect(name, isRejected, true);
  }
}

/** The answer to the exchange of the ticket. */
async function signIn(application, person) {
  const browser = new Browser();
  const { callback, codeVerifier } = await authenticate(application, person, browser);
  const response = await browser.ask(callback.href);
  const location = response.headers.get('location') ?? '';
  const ticket = URL.canParse(location) ? new URL(location).searchParams.get('ticket') : null;
  if (ticket === null) throw new Problem(`The callback answered ${response.status} ${location}`);
  return post(`${application.url}/api/auth/exchange`, { ticket, codeVerifier });
}

/** Enters the password in the form of Keycloak. Returns the address of the callback with the response. */
async function authenticate({ url, issuer }, { username }, browser) {
  const codeVerifier = newSecret().padEnd(43, 'x');
  const codeChallenge = createHash('sha256').update(codeVerifier).digest('base64url');
  const query = new URLSearchParams({ returnTo: '/welcome', codeChallenge });
  const begun = await browser.ask(`${url}/api/auth/login/keycloak?${query}`);
  const request = new URL(begun.headers.get('location'));
  for (const name of ['state', 'nonce', 'code_challenge'])
    if (!request.searchParams.has(name)) throw new Problem(`The request to Keycloak has no ${name}`);
  const page = await (await browser.ask(request.href)).text();
  const [, action = ''] = /<form[^>]* action="([^"]+)"/.exec(page) ?? [];
  if (!action.startsWith(`${issuer}/`)) throw new Problem(`Keycloak shows no form: ${page.slice(0, 500)}`);
  const body = new URLSearchParams({ username, password: PASSWORD });
  const answer = await browser.ask(action.replaceAll('&amp;', '&'), { method: 'POST', body });
  const location = answer.headers.get('location') ?? '';
  if (!location.startsWith(`${url}/`)) throw new Problem(`Keycloak answered ${answer.status} ${location}`);
  return { callback: new URL(location), codeVerifier };
}

async function post(url, body) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

function expect(what, found, wanted) {
  if (JSON.stringify(found) !== JSON.stringify(wanted))
    throw new Problem(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
}
