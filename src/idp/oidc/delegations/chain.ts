import { SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import { findRefusal } from '../admission.js';
import type { Client, Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { algorithmsOf, namesIn } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { findAccessTokenFor } from '../tokens/introspection.js';
import type { TokenResponse } from '../tokens/issuance.js';
import { type AccessTokenClaims, type ActorClaim, actorClaim, TYPE } from '../tokens/jwt-access-token.js';
import { confirmationOf, findProvenKey, tokenTypeOf } from '../tokens/key-binding.js';
import { permittedTarget, recordOfToken } from '../tokens/permit.js';
import type { TokenRequest } from '../tokens/request.js';
import { lifetimeFor } from '../tokens/target.js';
import { proveActor } from './actor.js';

/**
 * An agent hands its access token for a person on to another agent (RFC 8693 §4.1): a new access token of the same
 * delegation, with the other agent as the current actor. Scopes and lifetime only shrink, and no further token is issued
 * with it.
 */

const refuse = (message: string) => oidcErrors.invalid_grant({ message });

/** @throws invalid_request, invalid_grant, invalid_scope, invalid_target, unauthorized_client */
export async function chainDelegation(
  client: Client,
  subjectToken: string,
  request: TokenRequest,
  deps: OidcShared,
): Promise<TokenResponse> {
  const { audit, clock, random, keys, issuer } = deps;
  const { fields, prove, ip } = request;
  const { claims, act, maxDepth, person } = await readSubject(client, subjectToken, request, deps);
  const agent = await proveActor(request, { resource: claims.aud, clientId: client.id }, deps);
  if (chainOf(act).length >= maxDepth) throw refuse('The delegation does not permit a further agent.');
  if (chainOf(act).includes(agent.id)) throw refuse('The agent acts with this token already.');
  const resource = await deps.resources.find(claims.aud);
  if (!resource) throw oidcErrors.invalid_target();
  const refusal = findRefusal({ targets: [{ resource }] }, person);
  if (refusal) throw oidcErrors.invalid_target({ message: refusal.description });
  const asked = narrow(namesIn(claims.scope), fields['scope']);
  const until = claims.exp * SECOND;
  const target = await permittedTarget(
    agent,
    { resource, scopes: asked, until },
    { ip, isDelegated: true },
    deps,
  );
  const granted = target.scopes;
  const key = await findProvenKey(prove, undefined, target, deps);
  const now = toSeconds(clock.now());
  const expiresIn = lifetimeFor(target, now * SECOND);
  const { scope: _, cnf: __, ...rest } = claims;
  const issued: AccessTokenClaims = {
    ...rest,
    ...(granted.length > 0 && { scope: granted.join(' ') }),
    iat: now,
    exp: now + expiresIn,
    jti: sha256(newId('jti_', clock, random)),
    act: actorClaim({ id: agent.id, epoch: agent.epoch }, issuer(), act),
    ...confirmationOf(key),
  };
  const { txn, sub, delegation = '' } = claims;
  const chain = { txn, client: client.id, person: sub, delegation, chain: chainOf(act) };
  deps.directory.recordAgentUse(agent, { resource: resource.identifier, txn });
  await audit.record({ event: 'delegation.handed_on', ip, ...recordOfToken(chain, target) });
  return {
    access_token: await keys.sign({ ...issued }, algorithmsOf(resource)[0], TYPE),
    token_type: tokenTypeOf(key),
    expires_in: expiresIn,
    scope: granted.join(' '),
  };
}

/** A valid access token of a delegation that this client may hand on. */
async function readSubject(
  { id }: Pick<Client, 'id'>,
  token: string,
  { resources: [identifier, ...others], ip }: TokenRequest,
  deps: OidcShared,
): Promise<{ claims: AccessTokenClaims; act: ActorClaim; maxDepth: number; person: Principal }> {
  if (identifier === undefined || others.length > 0)
    throw oidcErrors.invalid_target({ message: 'Send one resource: that of subject_token.' });
  const claims = await findAccessTokenFor(await deps.resources.find(identifier), token, ip, deps);
  const { act, delegation } = claims ?? {};
  if (!claims || !act || delegation === undefined)
    throw refuse('subject_token is no valid access token of a delegation for this resource.');
  // Its sender need not have the key, and the proof of the other agent shows another one.
  if (claims.cnf) throw refuse('An access token that is bound to a key cannot be handed on.');
  if (claims.client_id !== id && act.sub !== id)
    throw refuse('Only the current agent of subject_token and its client may hand it on.');
  const found = await deps.delegations.find(delegation);
  if (!found) throw refuse('The delegation has ended.');
  return { claims, act, maxDepth: found.delegation.maxDepth, person: found.person };
}

/** The agents of a chain, the current one first. */
const chainOf = (act: ActorClaim | undefined): string[] => (act ? [act.sub, ...chainOf(act.act)] : []);

/** @throws invalid_scope */
function narrow(known: readonly string[], asked: string | undefined): string[] {
  const names = new Set(namesIn(asked));
  if (names.size === 0) return [...known];
  if ([...names].some((name) => !known.includes(name))) throw oidcErrors.invalid_scope();
  return known.filter((name) => names.has(name));
}
