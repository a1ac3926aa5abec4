import { authenticate, type ClientCredentials, findClient } from '../client-auth.js';
import { type AgentClient, type Client, clientOfAgent, type Directory, isSub } from '../directory.js';
import type { OidcShared } from '../shared.js';

/**
 * Agents as their own clients: `client_id` is their `sub`, and they authenticate with a key (`private_key_jwt`) or with their
 * password as the secret.
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
  const find = async (id: string): Promise<Client | null> =>
    (await findAgent(id, directory)) ?? (await findClient(id, credentials.ip, directory));
  return authenticate(credentials, find, deps);
}

/** Whether an agent is the client by itself, and not by metadata that it has published. */
export const isOwnClient = (client: Client): client is AgentClient => client.agent?.id === client.id;
