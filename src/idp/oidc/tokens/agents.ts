import type { PublicJwk } from '../../../core/kernel/public-jwk.js';
import {
  authenticate,
  type ClientCredentials,
  findClient,
  invalidClient,
  readSecret,
} from '../client-auth.js';
import type { Client, Directory, Principal } from '../directory.js';
import type { OidcShared } from '../shared.js';

/**
 * Agents as their own clients: `client_id` is their `sub`, and they authenticate with a key (`private_key_jwt`) or with their
 * password as the secret.
 */

export interface AgentClient {
  /** Its `sub`. */
  id: string;
  jwks: readonly PublicJwk[];
  principal: Principal;
}

const SUB = /^u_[0-9a-f]{32}$/;

/** The active agent with this `sub`, if it has a key. */
export async function findAgent(
  id: string,
  { findPrincipal }: Pick<Directory, 'findPrincipal'>,
): Promise<AgentClient | null> {
  const principal = SUB.test(id) ? await findPrincipal(id) : null;
  // Without a key it would count as a public client.
  if (principal?.kind !== 'agent' || !principal.keys?.length) return null;
  return { id, jwks: principal.keys.map(({ jwk }) => jwk), principal };
}

/** A client, or an agent as its own. @throws invalid_client, invalid_request, RATE_LIMITED */
export async function authenticateClientOrAgent(
  credentials: ClientCredentials,
  deps: OidcShared,
): Promise<Client | AgentClient> {
  const { directory } = deps;
  if (credentials.body['client_assertion'] === undefined) {
    const { clientId = '', secret } = readSecret(credentials);
    if (secret !== undefined && SUB.test(clientId))
      return authenticateByPassword(clientId, secret, credentials, directory);
  }
  const find = async (id: string): Promise<Client | AgentClient | null> =>
    (await findAgent(id, directory)) ?? (await findClient(id, credentials.ip, directory));
  return authenticate(credentials, find, deps);
}

/** Failures count by the handle, as at /authorize: the `sub` would be a second name with a second counter. */
async function authenticateByPassword(
  id: string,
  password: string,
  { ip, isDisconnected }: ClientCredentials,
  { findPrincipal, authenticate }: Directory,
): Promise<AgentClient> {
  const named = await findPrincipal(id);
  // No handle has the form of a `sub`.
  const handle = named?.kind === 'agent' ? named.handle : id;
  const principal = await authenticate(handle, password, { ip, isDisconnected }, (found) => found.id === id);
  if (!principal) throw invalidClient();
  return { id, jwks: [], principal };
}

export const isAgent = (client: Client | AgentClient): client is AgentClient => 'principal' in client;
