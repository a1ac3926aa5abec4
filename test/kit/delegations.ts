import type { Test } from 'tap';
import { DELEGATION_TOKEN } from '../../src/idp/oidc/delegations/exchange.js';
import { TOKEN_EXCHANGE } from '../../src/idp/oidc/tokens/request.js';
import type { Agent, Page } from './agent.js';
import { agentWithKey } from './agent-keys.js';
import type { Answer } from './app.js';
import { assertion } from './client-keys.js';
import {
  authorizePath,
  type Credentials,
  codeIn,
  type IdpApp,
  type IdpAppOptions,
  idpApp,
  type Parameters,
  type RegisteredClient,
  search,
} from './idp.js';
import { addResource, FILES } from './resources.js';

/** People who let agents act for them. */

export const TYPES = {
  delegation: DELEGATION_TOKEN,
  accessToken: 'urn:ietf:params:oauth:token-type:access_token',
  jwt: 'urn:ietf:params:oauth:token-type:jwt',
};

export type KeyedAgent = Awaited<ReturnType<typeof agentWithKey>>;

/** Also of a provider that is known by the address it listens at. */
const issuerOf = ({ server }: IdpApp): string => server.fastify.idp.issuer();

/** What proves an agent: an assertion that works once. */
export const actorProof = async (idp: IdpApp, { key, sub }: KeyedAgent) => ({
  actor_token: await assertion(key, { clientId: sub, issuer: issuerOf(idp), now: idp.clock.now() }),
  actor_token_type: TYPES.jwt,
});

/** A provider with an API, an application, an agent with a key, and a person who is signed in in a browser. */
export async function delegationWorld(t: Test, options: IdpAppOptions = {}, isPublic = false) {
  const idp = await idpApp(t, { limits: false, ...options });
  const files = await addResource(t, idp, FILES, { sensitive: ['files:write'] });
  const client = await idp.createClient({ public: isPublic });
  const agent = await agentWithKey(t, idp);
  const human = await idp.makeHuman();
  const { browser, page } = await idp.visit(await idp.createClient());
  await browser.submit(page, { handle: human.handle, password: human.password });
  const asks = { requested_actor: agent.sub, resource: FILES, scope: 'files:read' };

  const ask = async (
    more: Parameters = {},
    by: { browser: Agent; client: RegisteredClient } = { browser, client },
  ): Promise<Page> => by.browser.open((await idp.listen()) + authorizePath(by.client, { ...asks, ...more }));
  /** The code that an allowed request ends with. */
  const allow = async (more: Parameters = {}) =>
    codeIn((await browser.submit(await ask(more), { decision: 'allow' })).location);
  const redeem = async (code: string, more: Parameters = {}, by = agent) =>
    idp.redeem(client, code, { ...(await actorProof(idp, by)), ...more });
  const delegate = async (more: Parameters = {}) => (await redeem(await allow(more))).body;
  const exchange = async (token: string, more: Parameters = {}, by = agent): Promise<Answer> =>
    idp.request('POST', '/token', {
      form: search({
        grant_type: TOKEN_EXCHANGE,
        client_id: client.id,
        client_secret: client.secret,
        subject_token: token,
        subject_token_type: TYPES.delegation,
        ...(await actorProof(idp, by)),
        ...more,
      }),
    });
  return { idp, files, client, agent, human, browser, ask, allow, redeem, delegate, exchange };
}

/** Signs a person in at the provider, in a new browser. */
export async function signInAt(idp: IdpApp, { handle, password }: Credentials): Promise<Agent> {
  const { browser, page } = await idp.visit(await idp.createClient());
  await browser.submit(page, { handle, password });
  return browser;
}
