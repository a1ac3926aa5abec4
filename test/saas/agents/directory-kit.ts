import type { AddressInfo } from 'node:net';
import fastify, { type FastifyInstance } from 'fastify';
import type { Test } from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { identityProvider } from '../../../src/idp/plugin.js';
import { clientCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import type { SaasBackendOptions } from '../../../src/saas/options.js';
import { saasBackend } from '../../../src/saas/plugin.js';
import { Agent } from '../../kit/agent.js';
import { agentsIn } from '../../kit/agent-keys.js';
import { basic, CHEAP, inject, openAt, PASSWORD, type SaasApp, testOptions } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { storeIn } from '../../kit/engine.js';
import {
  ADMIN_TOKEN,
  CALLBACK,
  type Credentials,
  codeIn,
  idpStore,
  SEED,
  search,
  VERIFIER,
} from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { resourcesIn } from '../../kit/resources.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { visitor } from '../login-providers/kit.js';

/** One application with both products, the people of the provider being the users. */

export interface HostedOptions extends Partial<SaasBackendOptions> {
  folder?: string;
  /** Of another process on the same stores. */
  seed?: string;
  /** Routes of the application. */
  routes?: (app: FastifyInstance) => void;
}

export type Hosted = Awaited<ReturnType<typeof hosted>>;

const CLOCK_START = Date.now();

const publicUrlOf = ({ server }: FastifyInstance, configured: string | undefined): string =>
  configured ?? `http://localhost:${(server.address() as AddressInfo).port}`;

export async function hosted(
  t: Test,
  { folder = temporaryFolder(t), seed = 'seed', routes, ...options }: HostedOptions = {},
) {
  const [clock, random] = [fakeClock(CLOCK_START), countedRandom(seed)];
  const app = fastify();
  t.teardown(() => app.close());
  const databaseUri = storeIn(folder, 'idp');
  await app.register(identityProvider, {
    ...{ env: false, prefix: '/idp', databaseUri, clock, random, hashing: CHEAP },
    ...{ adminToken: ADMIN_TOKEN, ed25519Seed: SEED },
    ...(options.publicUrl !== undefined && { publicUrl: `${options.publicUrl}/idp` }),
  });
  const { host, port, logLevel, publicUrl, ...saas } = testOptions(folder);
  await app.register(saasBackend, {
    ...{
      ...saas,
      clock,
      random,
      agents: { directory: app.idp, scopes: { 'files:read': 'Read your files' } },
    },
    ...options,
  });
  routes?.(app);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const origin = publicUrlOf(app, options.publicUrl);
  const api = `${origin}/api`;
  const request: SaasApp['request'] = (method, path, call) => inject({ fastify: app }, method, path, call);
  const post: SaasApp['post'] = (path, body, more) => request('POST', `/api${path}`, { ...more, body });
  const store = await idpStore(t, { databaseUri } as never);
  const people = principalCollection(store);
  // Hooks run once the server listens.
  await waitUntil('the client is registered', async () => (await clientCollection(store).count({}, 1)) > 0);
  const permissions = resourcesIn(store, { clock, random: countedRandom(`${seed} command`) }).permissions;
  const admin = (path: string, body?: object) =>
    request('POST', `/idp/v1${path}`, { token: ADMIN_TOKEN, ...(body && { body }) });

  /** A person who has signed up at the provider. */
  const makePerson = async (
    handle: string,
    { verified = true, ...more }: { verified?: boolean; name?: string } = {},
  ): Promise<Credentials> => {
    const body = { handle, password: PASSWORD, kind: 'human', ...more };
    const answer = await request('POST', '/idp/v1/accounts', { body });
    if (answer.status !== 201) throw new Error(answer.text);
    const { sub } = answer.body;
    if (verified) await people.updateOne({ id: sub }, { set: { emailVerifiedAt: 1 } });
    return { sub, handle, password: PASSWORD };
  };

  /** An agent that may use the API, with a redirect URI. */
  const makeAgent = async (handle: string, isAllowed = true): Promise<Credentials> => {
    const { sub, password } = (await admin('/agents', { handle })).body;
    const agents = agentsIn(store, { clock, random: countedRandom(`${seed} agents`) });
    await agents.change(sub, { redirectUris: [CALLBACK] }, COMMAND_SOURCE);
    if (isAllowed) await permissions.allow(sub, api, {}, COMMAND_SOURCE);
    return { sub, handle, password };
  };

  /** The person at the page of the provider, in a new browser. */
  const signInAt = async (url: string, { handle, password }: Credentials) => {
    const browser = new Agent({ origin });
    let page = await browser.open(url);
    if (page.location === undefined) page = await browser.send(page, { handle, password });
    // The callback of the application is in the same origin, and belongs to another browser here.
    while (page.location?.startsWith(`${origin}/idp/`)) page = await browser.get(page.location);
    return { browser, page };
  };

  /** A sign-in at the application. */
  const signIn = async (person: Credentials) => {
    const browser = visitor({ request, post } as SaasApp, 'directory');
    return browser.signIn(async (url) => new URL((await signInAt(url, person)).page.location ?? 'none:'));
  };

  /** Connects the person with the user of a session. */
  const connect = async (token: string, person: Credentials) => {
    const browser = visitor({ request, post } as SaasApp, 'directory');
    const ticket = await browser.ticket(
      async (url) => new URL((await signInAt(url, person)).page.location ?? 'none:'),
    );
    return browser.connect({ accessToken: token }, ticket);
  };

  /** What the token endpoint answers after the ordinary code flow of the agent, with the person at the page. */
  const delegate = async (person: Credentials, agent: Credentials, scope = 'profile:read') => {
    const asked = {
      client_id: agent.sub,
      redirect_uri: CALLBACK,
      response_type: 'code',
      scope,
      resource: api,
      code_challenge: sha256(VERIFIER),
      code_challenge_method: 'S256',
    };
    const { browser, page } = await signInAt(`${origin}/idp/authorize?${search(asked)}`, person);
    if (page.location !== undefined) return { status: 302, location: page.location, body: {} as never };
    const code = codeIn((await browser.submit(page, { decision: 'allow' })).location);
    const form = search({
      grant_type: 'authorization_code',
      code,
      redirect_uri: CALLBACK,
      code_verifier: VERIFIER,
    });
    const headers = { authorization: basic(agent.sub, agent.password) };
    const { status, body } = await request('POST', '/idp/token', { form, headers });
    return { status, body, location: undefined };
  };
  /** An access token of the agent for the person. */
  const tokenFor = async (person: Credentials, agent: Credentials, scope?: string): Promise<string> =>
    (await delegate(person, agent, scope)).body.access_token;

  const me = (token: string) => request('GET', '/api/auth/me', { token });
  return {
    ...{ app, api, origin, clock, folder, store, people, permissions, request, post, admin },
    /** Of the application, as another process opens it. */
    saasStore: () => openAt(t, storeIn(folder, 'saas')),
    ...{ makePerson, makeAgent, signIn, connect, delegate, tokenFor, me },
  };
}
