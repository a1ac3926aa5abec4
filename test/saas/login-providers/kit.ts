import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import type { Test } from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { Answer, SaasApp } from '../../kit/app.js';

/** Providers that say what a test wants, and an application that signs in with them. */

export const CLIENT = { clientId: 'northwind', clientSecret: 'provider-Jq7vLd0mXw4RkT9cYb2NfHs6Eg' };
export const VERIFIER = 'v'.repeat(43);

/** What differs from an honest response. */
export interface Lies {
  claims?: Record<string, unknown>;
  /** The `iss` of the response (RFC 9207). */
  responseIssuer?: string;
  isSignedByAnother?: boolean;
  tokenStatus?: number;
  metadata?: Record<string, unknown>;
  /** Further members of the response of the token endpoint. */
  tokens?: Record<string, unknown>;
  /** Why the provider does not sign the person in. */
  error?: string;
  /** The path whose response is compressed and has a body of 64 MB. */
  bomb?: string;
}

export interface FakeProvider {
  url: string;
  /** Changes what the next responses say. */
  lies: Lies;
  /** The person who signs in. */
  person: Record<string, unknown>;
  /** Follows the address to which the application sends the browser. Returns the one of the callback. */
  visit(url: string): URL;
  requests: { path: string; body: string; authorization: string | undefined }[];
}

async function listen(
  t: Test,
  handle: (request: IncomingMessage, response: ServerResponse, body: string) => void,
) {
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => handle(request, response, Buffer.concat(chunks).toString()));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const send = (response: ServerResponse, status: number, body: unknown) =>
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));

/** Spaces are JSON, so that only their number is wrong. */
const BOMB = gzipSync(Buffer.alloc(64 * 1024 * 1024, ' '));
const sendBomb = (response: ServerResponse) =>
  response.writeHead(200, { 'content-type': 'application/json', 'content-encoding': 'gzip' }).end(BOMB);

/** An OpenID provider that signs with ES256 and lies when a test asks for it. */
export async function fakeProvider(t: Test): Promise<FakeProvider> {
  const [own, foreign] = await Promise.all([generateKeyPair('ES256'), generateKeyPair('ES256')]);
  const jwk = { ...(await exportJWK(own.publicKey)), kid: 'one', alg: 'ES256', use: 'sig' };
  const asked = new Map<string, URLSearchParams>();
  const provider: FakeProvider = {
    url: '',
    lies: {},
    person: { sub: 'ada-1', email: 'ada@example.test', email_verified: true, name: 'Ada Lovelace' },
    requests: [],
    visit(url) {
      const parameters = new URL(url).searchParams;
      const code = `code-${asked.size}`;
      asked.set(code, parameters);
      const callback = new URL(parameters.get('redirect_uri') ?? '');
      callback.searchParams.set('code', code);
      callback.searchParams.set('state', parameters.get('state') ?? '');
      callback.searchParams.set('iss', provider.lies.responseIssuer ?? provider.url);
      if (provider.lies.error) {
        callback.searchParams.delete('code');
        callback.searchParams.set('error', provider.lies.error);
      }
      return callback;
    },
  };
  const idToken = (parameters: URLSearchParams) => {
    const now = Math.floor(Date.now() / 1000);
    const claims = {
      ...{ iss: provider.url, aud: CLIENT.clientId, iat: now, exp: now + 300 },
      ...{ nonce: parameters.get('nonce'), ...provider.person, ...provider.lies.claims },
    };
    const { privateKey } = provider.lies.isSignedByAnother ? foreign : own;
    return new SignJWT(claims).setProtectedHeader({ alg: 'ES256', kid: 'one' }).sign(privateKey);
  };
  provider.url = await listen(t, async (request, response, body) => {
    const { pathname: path } = new URL(request.url ?? '', provider.url);
    provider.requests.push({ path, body, authorization: request.headers.authorization });
    if (path === provider.lies.bomb) return sendBomb(response);
    if (path === '/.well-known/openid-configuration') {
      return send(response, 200, {
        issuer: provider.url,
        authorization_endpoint: `${provider.url}/authorize`,
        token_endpoint: `${provider.url}/token`,
        jwks_uri: `${provider.url}/jwks`,
        id_token_signing_alg_values_supported: ['ES256'],
        authorization_response_iss_parameter_supported: true,
        code_challenge_methods_supported: ['S256'],
        ...provider.lies.metadata,
      });
    }
    if (path === '/authorize')
      return response
        .writeHead(302, { location: provider.visit(`${provider.url}${request.url}`).href })
        .end();
    if (path === '/jwks') return send(response, 200, { keys: [jwk] });
    const form = new URLSearchParams(body);
    const code = form.get('code') ?? '';
    const parameters = asked.get(code);
    asked.delete(code);
    const isBound = parameters?.get('code_challenge') === sha256(form.get('code_verifier') ?? '');
    if (provider.lies.tokenStatus)
      return send(response, provider.lies.tokenStatus, { error: 'server_error' });
    if (!parameters || !isBound) return send(response, 400, { error: 'invalid_grant' });
    const id_token = await idToken(parameters);
    return send(response, 200, {
      access_token: 'provider-access',
      token_type: 'bearer',
      expires_in: 60,
      id_token,
      ...provider.lies.tokens,
    });
  });
  return provider;
}

/** The interface of GitHub that the sign-in uses. */
export async function fakeGitHub(t: Test) {
  const github = {
    url: '',
    user: { id: 42, login: 'ada', name: 'Ada Lovelace' } as Record<string, unknown>,
    emails: [
      { email: 'old@example.test', primary: false, verified: true },
      { email: 'ada@example.test', primary: true, verified: true },
    ],
    visit(url: string) {
      const parameters = new URL(url).searchParams;
      const callback = new URL(parameters.get('redirect_uri') ?? '');
      callback.searchParams.set('code', 'github-code');
      callback.searchParams.set('state', parameters.get('state') ?? '');
      return callback;
    },
  };
  github.url = await listen(t, (request, response, body) => {
    const { pathname } = new URL(request.url ?? '', github.url);
    if (pathname === '/login/oauth/access_token') {
      const isRight = new URLSearchParams(body).get('client_secret') === CLIENT.clientSecret;
      // GitHub answers errors with 200.
      if (!isRight) return send(response, 200, { error: 'incorrect_client_credentials' });
      return send(response, 200, {
        access_token: 'gho_x',
        token_type: 'bearer',
        scope: 'read:user,user:email',
      });
    }
    if (request.headers.authorization !== 'Bearer gho_x') return send(response, 401, {});
    if (pathname === '/api/v3/user') return send(response, 200, github.user);
    if (pathname === '/api/v3/user/emails') return send(response, 200, github.emails);
    return send(response, 404, {});
  });
  return github;
}

/** The ticket with which a browser returns to the application. */
export function ticketIn({ headers: { location = '' } }: Answer): string {
  return new URL(location).searchParams.get('ticket') ?? `none: ${location}`;
}

/** A browser and the application in it. */
export function visitor(app: SaasApp, provider = 'acme') {
  let cookies: Record<string, string> = {};
  const remember = (answer: Answer) => {
    for (const line of [answer.headers['set-cookie'] ?? []].flat()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (value === '') delete cookies[name];
      else cookies[name] = value;
    }
    return answer;
  };
  const cookie = () =>
    Object.entries(cookies)
      .map(([name, value]) => `${name}=${value}`)
      .join('; ');
  const self = {
    cookies: () => cookies,
    forget: () => {
      cookies = {};
    },
    /** The answer to a request of a sign-in. */
    async start(more: Record<string, string> = {}): Promise<Answer> {
      const query = new URLSearchParams({ returnTo: '/welcome', codeChallenge: sha256(VERIFIER), ...more });
      const headers = { cookie: cookie() };
      return remember(await app.request('GET', `/api/auth/login/${provider}?${query}`, { headers }));
    },
    /** Where the application sends the browser. */
    async begin(more: Record<string, string> = {}): Promise<string> {
      const answer = await self.start(more);
      if (answer.status !== 303) throw new Error(`${answer.status} ${answer.text}`);
      return answer.headers['location'] ?? '';
    },
    async finish(callback: URL | string): Promise<Answer> {
      const { pathname, search } = new URL(callback);
      return remember(await app.request('GET', pathname + search, { headers: { cookie: cookie() } }));
    },
    /** The response as a form that the provider submits, for which browsers send the cookies that they send to other sites. */
    async post(callback: URL | string, { cookies: isSameSite = false } = {}): Promise<Answer> {
      const { pathname, searchParams } = new URL(callback);
      const headers = { 'content-type': 'application/x-www-form-urlencoded', origin: 'null' };
      return remember(
        await app.request('POST', pathname, {
          headers: { ...headers, ...(isSameSite && { cookie: cookie() }) },
          body: searchParams.toString(),
        }),
      );
    },
    /** The whole way through a provider, to the ticket. */
    async ticket(visit: (url: string) => URL | Promise<URL>, more?: Record<string, string>): Promise<string> {
      return ticketIn(await self.finish(await visit(await self.begin(more))));
    },
    exchange: (ticket: string, codeVerifier = VERIFIER) =>
      app.post('/auth/exchange', { ticket, codeVerifier }),
    /** Signs in through a provider. */
    signIn: async (
      visit: (url: string) => URL | Promise<URL>,
      more?: Record<string, string>,
    ): Promise<Answer> => self.exchange(await self.ticket(visit, more)),
    /** Connects a provider to the account of an access token. */
    connect: ({ accessToken: token }: { accessToken: string }, ticket: string): Promise<Answer> =>
      app.post('/user/identities', { ticket, codeVerifier: VERIFIER }, { token }),
  };
  return self;
}
