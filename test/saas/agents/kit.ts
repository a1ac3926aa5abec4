import type { Test } from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { type Account, type Answer, type SaasApp, saasApp } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { delegationWorld } from '../../kit/delegations.js';
import {
  type Credentials,
  type IdpApp,
  type Parameters,
  type RegisteredClient,
  search,
} from '../../kit/idp.js';
import { addResource } from '../../kit/resources.js';

/** A saas-backend that accepts the agents of a real identity provider in the same process. */

export const SITE = 'https://app.example.test';
export const API = `${SITE}/api`;
const CALLBACK = `${API}/auth/agents/callback`;
export const VERIFIER = 'v'.repeat(43);

export const API_INPUT = {
  name: 'The application',
  scopes: [
    { name: 'profile:read', description: 'Read your profile' },
    { name: 'billing:read', description: 'Read your subscription and invoices' },
    { name: 'billing:write', description: 'Change your subscription' },
    { name: 'files:read', description: 'Read your files' },
  ],
};

export type AgentWorld = Awaited<ReturnType<typeof agentWorld>>;

/** The provider with an agent and a person, and the application with its API registered there. */
export async function agentWorld(t: Test, options: Omit<CreateServerOptions, 'clock' | 'random'> = {}) {
  const clock = fakeClock(Date.now());
  const world = await delegationWorld(t, { publicUrl: undefined, clock });
  const { idp } = world;
  const origin = await idp.listen();
  const issuer = idp.server.fastify.idp.issuer();
  const resource = await addResource(t, idp, API, API_INPUT);
  const linkClient = await idp.createClient({ redirect_uris: [CALLBACK] });
  const app = await saasApp(t, {
    ...{ clock, publicUrl: SITE, agentIssuer: issuer, agentResource: API, agentClientId: linkClient.id },
    ...(linkClient.secret !== undefined && { agentClientSecret: linkClient.secret }),
    ...options,
  });
  const delegate = (scope: string, more: Parameters = {}) =>
    world.delegate({ resource: API, scope, ...more });
  /** A signed-up user with a verified address. */
  const signUp = () => app.signUp({ emailVerified: true });
  const site = siteOf(app, { idp, origin, issuer, linkClient });
  const link = (account: Account, human: Credentials = world.human) => site.link(account, human);
  return { ...world, ...site, app, clock, origin, issuer, resource, linkClient, delegate, signUp, link };
}

/** What browsers and programs do at the application. */
function siteOf(
  app: SaasApp,
  at: { idp: IdpApp; origin: string; issuer: string; linkClient: RegisteredClient },
) {
  /** Begins a connection; the address at the provider, and the cookie. */
  const begin = async (more: Record<string, string> = {}) => {
    const query = search({ returnTo: '/agents', codeChallenge: sha256(VERIFIER), ...more });
    const answer = await app.request('GET', `/api/auth/agents/connect?${query}`);
    const cookie = [answer.headers['set-cookie'] ?? []].flat().join().split(';')[0] ?? '';
    return { answer, url: answer.headers['location'] ?? '', cookie };
  };
  /** Signs in at the provider; the address of the callback. */
  const signInAt = async (url: string, { handle, password }: Credentials): Promise<URL> => {
    const { browser } = await at.idp.visit(at.linkClient);
    const form = await browser.open(url.replace(at.issuer, at.origin));
    return new URL((await browser.submit(form, { handle, password })).location ?? 'none:');
  };
  const finish = (callback: URL, cookie: string): Promise<Answer> =>
    app.request('GET', callback.pathname + callback.search, { headers: { cookie } });
  const ticketFor = async (human: Credentials): Promise<string> => {
    const { url, cookie } = await begin();
    const { headers, text } = await finish(await signInAt(url, human), cookie);
    const ticket = new URL(headers['location'] ?? 'none:').searchParams.get('ticket');
    if (ticket === null) throw new Error(`there is no ticket in ${headers['location']} ${text}`);
    return ticket;
  };
  const connect = (
    { accessToken: token }: Account,
    ticket: string,
    codeVerifier = VERIFIER,
  ): Promise<Answer> => app.post('/user/agent-account', { ticket, codeVerifier }, { token });
  return {
    begin,
    signInAt,
    finish,
    ticketFor,
    connect,
    async link(account: Account, human: Credentials): Promise<Answer> {
      const answer = await connect(account, await ticketFor(human));
      if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
      return answer;
    },
    me: (token: string, headers: Record<string, string> = {}) =>
      app.request('GET', '/api/auth/me', { token, headers }),
    call: (token: string, path: string, method = 'GET') => app.request(method, path, { token }),
  };
}
