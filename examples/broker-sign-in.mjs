// Signs principals in to an application behind a broker; the application supports only RS256.
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { parseSetCookie } from 'cookie';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import { newSecret, Problem } from './broker-kit.mjs';

/** No server listens on it: the example reads the redirect, as an agent does. */
export const REDIRECT_URI = 'http://127.0.0.1/callback';

/** A person enters the password in the form. */
async function byForm(browser, url, { handle, password }) {
  const page = await (await browser.ask(url)).text();
  const [, interaction] = /name="interaction" value="([^"]+)"/.exec(page) ?? [];
  const headers = { origin: new URL(url).origin, 'sec-fetch-site': 'same-origin' };
  const body = new URLSearchParams({ interaction, handle, password });
  return browser.ask(new URL('/authorize/login', url).href, { method: 'POST', headers, body });
}

/** An agent adds its credentials to the authorization URL of the broker and sends them to the provider only. */
function byBasic(browser, url, { handle, password }) {
  const credentials = Buffer.from(`${handle}:${password}`).toString('base64');
  return browser.ask(url, { headers: { authorization: `Basic ${credentials}` } });
}

const ANSWERS = { human: byForm, agent: byBasic };

/** Keeps cookies for each origin and does not follow redirects. */
export class Browser {
  #cookies = new Map();

  async ask(url, { headers, ...init } = {}) {
    const { origin } = new URL(url);
    const jar = this.#cookies.get(origin) ?? new Map();
    this.#cookies.set(origin, jar);
    const cookie = [...jar].map((pair) => pair.join('=')).join('; ');
    const response = await fetch(url, { ...init, redirect: 'manual', headers: { ...headers, cookie } });
    for (const text of response.headers.getSetCookie()) {
      const { name, value, maxAge } = parseSetCookie(text);
      if (maxAge === 0) jar.delete(name);
      else jar.set(name, value);
    }
    return response;
  }
}

/**
 * Signs a principal in to an application behind the broker, through the provider and back.
 *
 * @returns the broker's id_token, whose RS256 signature has been verified, and its claims
 * @throws Problem when the broker rejects the sign-in
 */
async function signIn(
  { issuer, clientId, clientSecret, scope, hint },
  provider,
  principal,
  browser = new Browser(),
) {
  const broker = await discover(issuer);
  const [state, nonce] = [newSecret(), newSecret()];
  const begin = addressOf(broker, { clientId, scope, hint }, { state, nonce });
  const callback = await arrive(browser, begin, provider, principal);
  if (callback.get('state') !== state) throw new Error('the state is another one');

  const response = await fetch(broker.token_endpoint, {
    method: 'POST',
    headers: { authorization: `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}` },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code: callback.get('code'),
      redirect_uri: REDIRECT_URI,
    }),
  });
  if (!response.ok) throw new Error(`the broker answered ${response.status}: ${await response.text()}`);
  const { id_token: idToken } = await response.json();
  const keys = createRemoteJWKSet(new URL(broker.jwks_uri));
  const checks = { issuer, audience: clientId, algorithms: ['RS256'] };
  const { payload } = await jwtVerify(idToken, keys, checks);
  if (payload.nonce !== nonce) throw new Error('the nonce is another one');
  return { idToken, claims: payload };
}

const discover = async (issuer) => (await fetch(`${issuer}/.well-known/openid-configuration`)).json();

/** The authorization URL of the application. */
function addressOf(broker, { clientId, scope, hint }, more) {
  const query = {
    response_type: 'code',
    client_id: clientId,
    redirect_uri: REDIRECT_URI,
    scope,
    ...hint,
    ...more,
  };
  return `${broker.authorization_endpoint}?${new URLSearchParams(query)}`;
}

/** Prints the URL and the accounts to try. Everything keeps running until Ctrl-C. */
export async function describe(application, provider) {
  const begin = addressOf(await discover(application.issuer), application, { state: newSecret() });
  for (const { kind, handle, password } of provider.principals) console.log(`${kind}: ${handle} ${password}`);
  console.log(`sign in at ${begin}`);
  // From here on, a signal is the regular end.
  process.exitCode = 0;
}

const MOST_REDIRECTS = 20;

/** Follows redirects to the application and signs in at the provider on the way. */
async function arrive(browser, url, provider, principal) {
  for (let hop = 0; hop < MOST_REDIRECTS; hop++) {
    if (url.startsWith(REDIRECT_URI)) return new URL(url).searchParams;
    const isProvider = url.startsWith(`${provider.issuer}/authorize`);
    const response = await (isProvider ? ANSWERS[principal.kind](browser, url, principal) : browser.ask(url));
    const location = response.headers.get('location');
    if (location === null) {
      const page = (await response.text()).replace(/<(style|script|head)[\s\S]*?<\/\1>|<[^>]*>/g, ' ');
      const told = page.replace(/\s+/g, ' ').trim().slice(0, 200);
      throw new Problem(`${new URL(url).origin} answered ${response.status}: ${told}`);
    }
    url = new URL(location, url).href;
  }
  throw new Error(`more than ${MOST_REDIRECTS} redirects`);
}

/** Publishes another key with the `kid` of the provider's key. */
export async function serveForeignKey({ issuer }) {
  const { keys } = await (await fetch(`${issuer}/.well-known/jwks.json`)).json();
  const { x } = generateKeyPairSync('ed25519').publicKey.export({ format: 'jwk' });
  const body = JSON.stringify({ keys: keys.map((key) => ({ ...key, x })) });
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { url: `http://127.0.0.1:${server.address().port}/jwks`, close: () => server.close() };
}

/** Signs all principals in and prints the claims that the application receives. */
export async function signEverybodyIn(application, provider) {
  for (const principal of provider.principals) {
    const { claims } = await signIn(application, provider, principal);
    const { sub, email, name } = claims;
    const learned = JSON.stringify({ sub, email, name, kind: application.kindIn(claims) });
    const { handle, name: ownName, kind } = principal;
    if (learned !== JSON.stringify({ sub, email: handle, name: ownName, kind }))
      throw new Error(`${handle} arrived as ${learned}`);
    console.log(`${kind} signed in: ${learned}`);
  }
}

/** Signs a person out at the broker and, through it, at the provider. @throws Problem when it fails */
export async function signPersonOut(application, provider) {
  const browser = new Browser();
  const [person] = provider.principals;
  const { idToken } = await signIn(application, provider, person, browser);
  const { end_session_endpoint: logout } = await discover(application.issuer);
  const begin = `${logout}?${new URLSearchParams({ id_token_hint: idToken })}`;
  const passed = [];
  for (let url = begin; url !== undefined; url = passed.at(-1).location) {
    const response = await browser.ask(url);
    const location = response.headers.get('location');
    passed.push({
      url,
      status: response.status,
      location: location ? new URL(location, url).href : undefined,
    });
  }
  const { url, status } = passed.at(-1);
  const wasThere = passed.some((hop) => hop.url.startsWith(`${provider.issuer}/logout`));
  if (!wasThere || status !== 200 || new URL(url).origin !== new URL(application.issuer).origin)
    throw new Problem(`Signing out ended at ${url} with ${status}`);
  console.log('human signed out at both');
}

/** @throws Problem when a token not signed with the published key is accepted */
export async function expectRefusal(application, provider, program, reason) {
  for (const principal of provider.principals) {
    const known = program.lines.length;
    const refusal = await signIn(application, provider, principal).catch((error) => error);
    if (!(refusal instanceof Problem))
      throw new Problem(`A foreign key was not rejected: ${JSON.stringify(refusal)}`);
    const line = program.lines.slice(known).find((text) => reason.test(text));
    if (line === undefined) throw new Problem(`It was rejected for another reason: ${refusal.message}`);
    console.log(`${principal.kind} rejected with a foreign key: ${reason.exec(line)[0]}`);
  }
}
