import type { Client } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { Prove } from '../proofs.js';
import { algorithmsOf, type Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';

/** Which key the tokens of a request are bound to (RFC 9449 §5), and whether one of the provider can sign them. */

/**
 * The thumbprint of the key that the request has proven; `undefined` for tokens that are bound to no key.
 *
 * @param prove absent if the request has no proof
 * @param required the key that the code or the refresh token is bound to, if it is
 * @throws invalid_dpop_proof, use_dpop_nonce, invalid_grant for another key, invalid_target without a key of the provider
 */
export async function findProvenKey(
  prove: Prove | undefined,
  required: string | undefined,
  target: Target | null,
  { keys }: Pick<OidcShared, 'keys'>,
): Promise<string | undefined> {
  // Before anything is used up.
  const [algorithm] = target ? algorithmsOf(target.resource) : [];
  if (algorithm && !keys.algorithms.includes(algorithm))
    throw oidcErrors.invalid_target({
      message: `The access tokens of the resource are signed with ${algorithm}, and the provider has no such key (IDP_ES256_KEY).`,
    });
  if (!prove) {
    if (required !== undefined) throw missing('The code or refresh token is bound to a key.');
    if (target?.resource.requiresDpop) throw missing('The resource accepts only tokens bound to a key.');
    return undefined;
  }
  const key = await prove();
  if (required !== undefined && key !== required) throw oidcErrors.invalid_grant();
  return key;
}

/** Before anything is used up, whatever the grant type. @throws invalid_dpop_proof */
export function requireProof(
  { profile }: Pick<Client, 'profile'>,
  prove: Prove | undefined,
  grant?: Pick<GrantDocument, 'requiresKey'>,
): void {
  if (!prove && (profile || grant?.requiresKey))
    throw missing('The client gets only tokens bound to a key: its profile is FAPI 2.0.');
}

const missing = (reason: string) =>
  oidcErrors.invalid_dpop_proof({ message: `${reason} Send a proof in the header DPoP.` });

/** What responses about a token say about its key. */
export const confirmationOf = (key: string | undefined): { cnf?: { jkt: string } } =>
  key === undefined ? {} : { cnf: { jkt: key } };

export const tokenTypeOf = (key: string | undefined): 'Bearer' | 'DPoP' =>
  key === undefined ? 'Bearer' : 'DPoP';
