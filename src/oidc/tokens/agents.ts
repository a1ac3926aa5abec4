import type { PublicJwk } from '../../kernel/public-jwk.js';
import {
  authenticate,
  type ClientAuthDependencies,
  type ClientCredentials,
  findClient,
} from '../client-auth.js';
import type { Client, Directory, Principal } from '../directory.js';

/** Agents as their own clients: `client_id` is their `sub`, and they authenticate with a key (`private_key_jwt`). */

export interface AgentClient {
  /** Its `sub`. */
  id: string;
  jwks: readonly PublicJwk[];
  principal: Principal;
}

/** The active agent with this `sub`, if it has a key. */
export async function findAgent(
  id: string,
  { findPrincipal }: Pick<Directory, 'findPrincipal'>,
): Promise<AgentClient | null> {
  const principal = /^u_[0-9a-f]{32}$/.test(id) ? await findPrincipal(id) : null;
  // Without a key it would count as a public client.
  if (principal?.kind !== 'agent' || !principal.keys?.length) return null;
  return { id, jwks: principal.keys.map(({ jwk }) => jwk), principal };
}

/** A client, or an agent as its own. @throws invalid_client, invalid_request, RATE_LIMITED */
export async function authenticateClientOrAgent(
  credentials: ClientCredentials,
  deps: ClientAuthDependencies & { directory: Pick<Directory, 'resolveClient' | 'findPrincipal'> },
): Promise<Client | AgentClient> {
  const { directory, throttle, assertions } = deps;
  const find = async (id: string): Promise<Client | AgentClient | null> =>
    (await findAgent(id, directory)) ?? (await findClient(id, credentials.ip, directory));
  return authenticate<Client | AgentClient>(credentials, { find, throttle, assertions });
}

export const isAgent = (client: Client | AgentClient): client is AgentClient => 'principal' in client;
