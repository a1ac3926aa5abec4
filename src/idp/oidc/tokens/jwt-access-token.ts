import { isUnexpired, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { AMR, acrOf, filterGroups } from '../claims.js';
import type { Principal } from '../directory.js';
import { algorithmsOf, namesIn, type Resource, type Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import { type AuthorizationDetail, actorOf, type GrantDocument } from '../store.js';
import { confirmationOf } from './key-binding.js';

/** Access tokens for resources (RFC 9068). */

/** The type in the header, which distinguishes them from every other token of the same keys. */
export const TYPE = 'at+jwt';

/** An upper bound of the lifetime that an operator can choose. */
const MAX_LIFETIME_MS = 600 * SECOND;

/** The claims of this provider's access tokens. */
export interface AccessTokenClaims {
  iss: string;
  /** The identifier of the resource. */
  aud: string;
  sub: string;
  client_id: string;
  exp: number;
  iat: number;
  jti: string;
  /** The grant, the same in all tokens that are issued from one authorization. */
  txn: string;
  /** Generations of the principal and of the client's access to it, for the list of revocations; absent for 0. */
  epoch?: number;
  consent?: number;
  kind: string;
  sub_profile: string;
  /** Absent if no scope of the resource was granted. */
  scope?: string;
  /** The agents that act for the person, the current one outermost (RFC 8693 §4.1), and the delegation. */
  act?: ActorClaim;
  delegation?: string;
  /** What a person has approved once (RFC 9396 §9.1). */
  authorization_details?: AuthorizationDetail[];
  /** The groups that the resource is shown. */
  groups?: string[];
  /** How and when a person signed in; absent for agents. */
  auth_time?: number;
  acr?: string;
  amr?: string[];
  /** The session with which the token ends; absent if the client got a refresh token, which outlives the session. */
  sid?: string;
  /** The key that the token is bound to (RFC 9449 §6.1). */
  cnf?: { jkt: string };
}

export type ActorClaim = {
  sub: string;
  sub_profile: string;
  iss: string;
  /** Generation of the agent; absent for 0. */
  epoch?: number;
  act?: ActorClaim;
};

export const actorClaim = (
  { id, epoch }: { id: string; epoch?: number | undefined },
  iss: string,
  act?: ActorClaim,
): ActorClaim => ({
  sub: id,
  sub_profile: 'ai_agent',
  iss,
  ...(epoch !== undefined && { epoch }),
  ...(act && { act }),
});

export interface AccessTokenRequest {
  /** Identifies the token; stored with the grant. */
  jti: string;
  expiresIn: number;
  /** May contain scopes of the provider, which mean nothing to a resource. */
  scope: string;
  target: Target;
  /** Thumbprint of the key that the token is bound to. */
  key: string | undefined;
  /** Whether the client may read the groups that the resource is shown. */
  showsGroups: boolean;
}

/** Signs an access token, whichever algorithm the client has for its id_tokens. */
export function signAccessToken(
  grant: GrantDocument,
  principal: Principal,
  { jti, expiresIn, scope, key, target: { resource, scopes }, showsGroups }: AccessTokenRequest,
  { keys, claimsOf, issuer, clock }: OidcShared,
): Promise<string> {
  const now = toSeconds(clock.now());
  const actor = actorOf(grant);
  const granted = namesIn(scope).filter((name) => scopes.includes(name));
  const groups = showsGroups ? filterGroups(resource.groupsClaim ?? 'none', principal.groups) : undefined;
  const claims = {
    iss: issuer(),
    aud: resource.identifier,
    client_id: grant.clientId,
    ...(granted.length > 0 && { scope: granted.join(' ') }),
    iat: now,
    exp: now + expiresIn,
    jti,
    ...(groups && { groups: [...groups] }),
    txn: grant.id,
    ...(grant.epoch !== undefined && { epoch: grant.epoch }),
    ...(grant.revocations !== undefined && { consent: grant.revocations }),
    ...(principal.kind === 'human' && {
      auth_time: toSeconds(grant.authTime),
      acr: grant.acr ?? acrOf(grant.amr),
      amr: grant.amr ?? [...AMR.password],
    }),
    ...(actor && { act: actorClaim({ id: actor.agent, epoch: actor.agentEpoch }, issuer()) }),
    ...(grant.delegation && { delegation: grant.delegation.id }),
    ...authorizationDetailsOf(grant),
    ...(endsWithSession(grant) && { sid: grant.sid }),
    ...confirmationOf(key),
  };
  // No scope of the provider, so that neither a name nor an e-mail address reaches the resource.
  return keys.sign({ ...claimsOf(principal, ''), ...claims }, algorithmsOf(resource)[0], TYPE);
}

export const authorizationDetailsOf = ({
  approval,
}: GrantDocument): Pick<AccessTokenClaims, 'authorization_details'> =>
  approval?.details ? { authorization_details: [approval.details] } : {};

/** Whether the tokens of a grant are valid only as long as its session. */
const endsWithSession = ({ sid, scope }: GrantDocument): boolean =>
  sid !== undefined && !namesIn(scope).includes('offline_access');

/**
 * The claims of an access token that this provider has signed and that has not expired; else `null`.
 * @param resource if given, only what its algorithms sign
 */
export async function readAccessToken(
  token: string,
  resource: Pick<Resource, 'algorithms'> | undefined,
  { keys, issuer, clock }: OidcShared,
): Promise<AccessTokenClaims | null> {
  const claims = (await keys.verify(
    token,
    TYPE,
    resource && algorithmsOf(resource),
  )) as AccessTokenClaims | null;
  if (claims?.iss !== issuer()) return null;
  const isValid = isUnexpired(claims.exp * SECOND, { now: clock.now(), life: MAX_LIFETIME_MS });
  return isValid ? claims : null;
}
