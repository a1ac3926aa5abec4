import {
  ASSERTION_TYPE,
  authenticate,
  authenticateClient,
  type ClientCredentials,
  findClient,
} from '../client-auth.js';
import { type AgentClient, type Client, clientOfAgent, type Directory, isSub } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { JWT_BEARER } from '../identity-assertions/trust.js';
import type { OidcShared } from '../shared.js';

/**
 * Agents as their own clients: `client_id` is their `sub`, and they authenticate with a key (`private_key_jwt`), with a token of
 * their platform, or with their password as the secret.
 */

/** The active agent with this `sub`. */
export async function findAgent(
  id: string,
  { findPrincipal }: Pick<Directory, 'findPrincipal'>,
): Promise<AgentClient | null> {
  const principal = isSub(id) ? await findPrincipal(id) : null;
  return principal?.kind === 'agent' ? clientOfAgent(principal) : null;
}

/** A client, or any agent as its own. @throws invalid_client, invalid_request, RATE_LIMITED */
export function authenticateClientOrAgent(credentials: ClientCredentials, deps: OidcShared): Promise<Client> {
  const { directory } = deps;
  if (credentials.body['grant_type'] === JWT_BEARER) return authenticateByGrant(credentials, deps);
  const find = async (id: string): Promise<Client | null> =>
    (await findAgent(id, directory)) ?? (await findClient(id, credentials.ip, directory));
  return authenticate(credentials, find, deps);
}

/** Whether an agent is the client by itself, and not by metadata that it has published. */
export const isOwnClient = (client: Client): client is AgentClient => client.agent?.id === client.id;

/**
 * The sender of an assertion as a grant (RFC 7523 §2.1): a client that authenticates beside it, or the agent that it proves as a
 * client assertion would, which it names if several could be meant.
 */
async function authenticateByGrant(credentials: ClientCredentials, deps: OidcShared): Promise<Client> {
  const { authorization, body, ip } = credentials;
  const { assertion, client_id: named } = body;
  const isOfClient =
    (authorization ?? body['client_secret'] ?? body['client_assertion']) !== undefined ||
    (named !== undefined && !isSub(named));
  if (isOfClient || assertion === undefined) {
    const client = await authenticateClient(credentials, deps);
    if (client.agent)
      throw oidcErrors.unauthorized_client({
        message: 'An agent sends the assertion without another proof.',
      });
    return client;
  }
  const id = named ?? (await deps.workloads.agentOf(assertion, ip)) ?? '';
  const proof = { client_id: id, client_assertion: assertion, client_assertion_type: ASSERTION_TYPE };
  const find = (sub: string) => findAgent(sub, deps.directory);
  return authenticate({ ...credentials, body: { ...body, ...proof } }, find, deps).catch((error: unknown) => {
    if ((error as { code?: unknown }).code !== 'invalid_client') throw error;
    throw oidcErrors.invalid_grant({ message: 'The assertion does not prove an agent.' });
  });
}
