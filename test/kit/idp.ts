import { join } from 'node:path';
import type { Test } from 'tap';
import { sha256 } from '../../src/core/kernel/secrets.js';
import { auditCollection } from '../../src/core/ops/audit.js';
import type { Server } from '../../src/core/server/assembly.js';
import type { Store } from '../../src/core/storage/collection.js';
import { type CreateIdentityServerOptions, createIdentityServer } from '../../src/idp/server.js';
import { Agent, decodeEntities, type Page } from './agent.js';
import { type Answer, basic, type Call, CHEAP, inject, openAt, PASSWORD, stopQuietly } from './app.js';
import { type FakeClock, fakeClock } from './clock.js';
import { storeIn } from './engine.js';
import { checkAnswers, idpPaths } from './openapi.js';
import { type CountedRandom, countedRandom } from './random.js';
import { temporaryFolder } from './tmp.js';

/** An identity provider per test. */

export const ISSUER = 'https://id.example.test';
export const ADMIN_TOKEN = 'operator-Vh3kTz9pLw6QyD1nXc8RbMs5';
export const SEED = '5d9c1e8a70f3b264c6e1d8f05a9b3742e7160fca8d35b94c2e6f01a7d8c3b549';
/** An RFC 7636 code verifier; clients must not send one unless they sent the challenge. */
export const VERIFIER = 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk';
export const CALLBACK = 'https://app.example.test/cb';

export interface RegisteredClient {
  id: string;
  /** Absent for public clients. */
  secret?: string;
  redirectUri: string;
}

export interface Credentials {
  sub: string;
  handle: string;
  password: string;
}

/** Parameters that replace the usual ones; `undefined` leaves one out. */
export type Parameters = Record<string, string | undefined>;

export interface IdpApp {
  readonly server: Server;
  readonly clock: FakeClock;
  readonly random: CountedRandom;
  readonly databaseUri: string;
  /** The SQLite file. */
  readonly file: string;
  request(method: string, path: string, call?: Call): Promise<Answer>;
  /** With the administrator's token. */
  admin(method: string, path: string, body?: unknown): Promise<Answer>;
  /** Listens on a free port of 127.0.0.1 and returns the address. */
  listen(): Promise<string>;
  createClient(more?: Record<string, unknown>): Promise<RegisteredClient>;
  mintAgent(more?: { handle?: string; name?: string }): Promise<Credentials>;
  makeHuman(more?: { handle?: string; name?: string }): Promise<Credentials>;
  /** /authorize, with HTTP Basic if `who` is given. */
  authorize(client: RegisteredClient, who?: Credentials, more?: Parameters): Promise<Answer>;
  /** The code of a sign-in with HTTP Basic. */
  codeFor(client: RegisteredClient, who: Credentials, more?: Parameters): Promise<string>;
  redeem(client: RegisteredClient, code: string, more?: Parameters): Promise<Answer>;
  refresh(client: RegisteredClient, refreshToken: string, more?: Parameters): Promise<Answer>;
  userinfo(accessToken: string): Promise<Answer>;
  /** Opens the sign-in form of this client in a new browser. */
  visit(client: RegisteredClient, more?: Parameters): Promise<{ browser: Agent; page: Page }>;
}

/** Options for a store in `folder`, independent of the environment and the real time. */
export function idpOptions(folder: string) {
  return {
    env: false,
    databaseUri: storeIn(folder, 'idp'),
    publicUrl: ISSUER,
    adminToken: ADMIN_TOKEN,
    ed25519Seed: SEED,
    hashing: CHEAP,
    host: '127.0.0.1',
    port: 0,
    logLevel: 'silent',
  } as const satisfies CreateIdentityServerOptions;
}

export interface IdpAppOptions extends Omit<CreateIdentityServerOptions, 'adminToken' | 'publicUrl'> {
  clock?: FakeClock;
  random?: CountedRandom;
  folder?: string;
  /** `undefined` configures none. */
  adminToken?: string | undefined;
  /** `undefined` uses the address it listens at. */
  publicUrl?: string | undefined;
}

let processes = 0;

/** A complete provider on its own store; closes itself after the test. */
export async function idpApp(t: Test, options: IdpAppOptions = {}): Promise<IdpApp> {
  // Another process on the same store chooses other identifiers.
  const isFirst = options.databaseUri === undefined && options.folder === undefined;
  const seed = isFirst ? 'seed' : `process ${++processes}`;
  const {
    clock = fakeClock(),
    random = countedRandom(seed),
    folder = temporaryFolder(t),
    ...given
  } = options;
  const server = createIdentityServer({
    ...idpOptions(folder),
    clock,
    random,
    ...given,
  } as CreateIdentityServerOptions);
  t.teardown(() => stopQuietly(server));
  const { prefix = '' } = given;
  checkAnswers(t, server.fastify, idpPaths(prefix));
  await server.fastify.ready();

  let count = 0;
  let address: Promise<string> | undefined;
  const listen = () => {
    address ??= server.start().then(({ url }) => url);
    return address;
  };
  const request: IdpApp['request'] = (method, path, call) => inject(server, method, prefix + path, call);
  const admin: IdpApp['admin'] = (method, path, body) => request(method, path, { token: ADMIN_TOKEN, body });
  const authorize: IdpApp['authorize'] = (client, who, more) =>
    request('GET', authorizePath(client, more), {
      headers: who ? { authorization: basic(who.handle, who.password) } : {},
    });

  return {
    server,
    clock,
    random,
    databaseUri: given.databaseUri ?? storeIn(folder, 'idp'),
    file: join(folder, 'idp.db'),
    request,
    admin,
    listen,
    async createClient(more = {}) {
      const body = { name: 'An application', redirect_uris: [CALLBACK], ...more };
      const answer = expectStatus(201, await admin('POST', '/v1/clients', body)).body;
      const [redirectUri] = answer.redirect_uris;
      return {
        id: answer.client_id,
        redirectUri,
        ...(answer.client_secret && { secret: answer.client_secret }),
      };
    },
    async mintAgent(more = {}) {
      const body = { handle: `agent${++count}@example.test`, ...more };
      const { sub, handle, password } = expectStatus(201, await admin('POST', '/v1/agents', body)).body;
      return { sub, handle, password };
    },
    async makeHuman(more = {}) {
      const body = { handle: `human${++count}@example.test`, password: PASSWORD, kind: 'human', ...more };
      const { sub, handle } = expectStatus(201, await request('POST', '/v1/accounts', { body })).body;
      return { sub, handle, password: PASSWORD };
    },
    authorize,
    async codeFor(client, who, more) {
      return codeIn(expectStatus(302, await authorize(client, who, more)).headers['location']);
    },
    redeem: (client, code, more) => request('POST', '/token', { form: redemption(client, code, more) }),
    refresh: (client, token, more) => request('POST', '/token', { form: refreshing(client, token, more) }),
    userinfo: (token) => request('GET', '/userinfo', { token }),
    async visit(client, more) {
      const origin = await listen();
      const browser = new Agent({ origin });
      return { browser, page: await browser.open(origin + prefix + authorizePath(client, more)) };
    },
  };
}

/** The provider's store through a separate connection, as another process would open it. */
export async function idpStore(t: Test, { databaseUri }: IdpApp): Promise<Store> {
  return openAt(t, databaseUri, auditCollection);
}

/** The address to which a client sends a browser. Public clients add a code challenge. */
export function authorizePath(client: RegisteredClient, more: Parameters = {}): string {
  return `/authorize?${search({
    client_id: client.id,
    redirect_uri: client.redirectUri,
    response_type: 'code',
    ...(client.secret === undefined && { code_challenge: sha256(VERIFIER), code_challenge_method: 'S256' }),
    ...more,
  })}`;
}

/** The form that a client sends to /token for a code. */
export function redemption(client: RegisteredClient, code: string, more: Parameters = {}): string {
  return search({
    grant_type: 'authorization_code',
    code,
    redirect_uri: client.redirectUri,
    client_id: client.id,
    ...(client.secret === undefined ? { code_verifier: VERIFIER } : { client_secret: client.secret }),
    ...more,
  });
}

/** The form that a client sends to /token for a refresh. */
export function refreshing(client: RegisteredClient, refreshToken: string, more: Parameters = {}): string {
  return search({
    grant_type: 'refresh_token',
    refresh_token: refreshToken,
    client_id: client.id,
    client_secret: client.secret,
    ...more,
  });
}

/** The claims of a token, without verification of its signature. */
// biome-ignore lint/suspicious/noExplicitAny: tests assert its content
export function claimsOf(idToken: string): any {
  return JSON.parse(Buffer.from(idToken.split('.')[1] ?? '', 'base64url').toString());
}

/** The code in the redirect to the client. */
export function codeIn(location: string | undefined): string {
  const code = new URL(location ?? 'none:').searchParams.get('code');
  if (code === null) throw new Error(`there is no code in ${location}`);
  return code;
}

/** What must be equal when an answer must reveal nothing: everything but the date and the request ID. */
export function comparable({ status, headers, text }: Answer): object {
  const { date, 'x-request-id': requestId = '', ...others } = headers;
  return { status, headers: others, text: requestId ? text.replaceAll(requestId, '') : text };
}

export function search(parameters: Parameters): string {
  const given = Object.entries(parameters).filter((pair): pair is [string, string] => pair[1] !== undefined);
  return new URLSearchParams(given).toString();
}

function expectStatus(status: number, answer: Answer): Answer {
  if (answer.status !== status) throw new Error(`expected ${status}, got ${answer.status}: ${answer.text}`);
  return answer;
}

/** The form that a page posts to the application (`response_mode=form_post`). */
export function postedBy(page: string): { action: string; values: Record<string, string> } {
  const [, action = ''] = /<form method="post" action="([^"]*)">/.exec(page) ?? [];
  const fields = page.matchAll(/<input type="hidden" name="([^"]*)" value="([^"]*)">/g);
  const values = [...fields].map(([, name = '', value = '']) => [name, decodeEntities(value)]);
  return { action: decodeEntities(action), values: Object.fromEntries(values) };
}
