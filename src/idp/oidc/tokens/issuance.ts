import type { Static } from 'typebox';
import { toSeconds } from '../../../core/kernel/clock.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import { findRefusal } from '../admission.js';
import { AMR, groupsFor } from '../claims.js';
import type { Client, Principal } from '../directory.js';
import { type NewAccessToken, refreshPrefix, TOKEN_LIFETIME_SECONDS } from '../grant-tokens.js';
import type { TokenResponseBody } from '../schemas.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import { traced } from '../traces.js';
import { authorizationDetailsOf, signAccessToken } from './jwt-access-token.js';
import { tokenTypeOf } from './key-binding.js';

export type TokenResponse = Static<typeof TokenResponseBody>;

export interface IssuedTokens extends NewAccessToken {
  refreshToken: string | undefined;
  /** Of the authorization request. Only the first id_token contains it (OIDC Core §12.2). */
  nonce: string | undefined;
}

/** Of an agent that is its own client: nothing. */
type TokenClient = Pick<Client, 'idTokenAlg' | 'groupsClaim' | 'claims' | 'origin'>;

/** The response of the token endpoint (RFC 6749 §5.1, OIDC Core §3.1.3.3). */
export async function createTokenResponse(
  client: TokenClient,
  grant: GrantDocument,
  principal: Principal,
  issued: IssuedTokens,
  deps: OidcShared,
): Promise<TokenResponse> {
  const { accessToken, target } = issued;
  return {
    access_token: target
      ? await signAccessToken(
          grant,
          principal,
          { ...issued, target, jti: sha256(accessToken), showsGroups: mayShowGroups(client, grant, issued) },
          deps,
        )
      : accessToken,
    token_type: tokenTypeOf(issued.key),
    expires_in: issued.expiresIn,
    scope: issued.scope,
    ...(issued.scope.split(' ').includes('openid') && {
      id_token: await signIdToken(client, grant, principal, issued, deps),
    }),
    ...authorizationDetailsOf(grant),
    ...(issued.refreshToken !== undefined && {
      [refreshPrefix(grant) === 'dt_' ? 'delegation_token' : 'refresh_token']: issued.refreshToken,
    }),
  };
}

/** An application can read the tokens that it passes on, so it gets no groups in them that it does not get itself. */
const mayShowGroups = (client: TokenClient, grant: GrantDocument, { scope }: IssuedTokens): boolean =>
  grant.clientId === grant.sub || (scope.split(' ').includes('groups') && groupsFor(client) !== 'none');

function signIdToken(
  client: TokenClient,
  grant: GrantDocument,
  principal: Principal,
  { scope, nonce }: IssuedTokens,
  { keys, claimsOf, issuer, clock, random, issuesAssertions }: OidcShared,
): Promise<string> {
  const now = toSeconds(clock.now());
  // Without `at_hash`, which is optional in this flow: two libraries compute it wrongly for EdDSA.
  const claims = {
    iss: issuer(),
    aud: grant.clientId,
    iat: now,
    exp: now + TOKEN_LIFETIME_SECONDS,
    auth_time: toSeconds(grant.authTime),
    jti: newId('jti_', clock, random),
    amr: grant.amr ?? AMR.password,
    ...(issuesAssertions && { txn: grant.id }),
    ...(grant.sid !== undefined && { sid: grant.sid }),
    ...(grant.acr !== undefined && { acr: grant.acr }),
    ...(nonce !== undefined && { nonce }),
  };
  // Claims of the principal are assigned first, so that they cannot replace a protocol claim.
  return keys.sign(Object.assign(claimsOf(principal, scope, client), claims), client.idTokenAlg);
}

/**
 * The principal of a grant, unless it was disabled, its credentials have changed or it has revoked the access or ended the
 * delegation since.
 */
export async function findOwner(
  { sub, sid, epoch, clientId, revocations = 0, delegation, approval }: GrantDocument,
  { directory, consents, delegations }: OidcShared,
): Promise<Principal | null> {
  // Only people have sessions, so both documents are read in one round trip.
  const finding = directory.findPrincipal(sub);
  const [principal, consent] =
    sid === undefined ? [await finding] : await Promise.all([finding, consents.find(sub, clientId)]);
  if (principal?.epoch !== epoch) return null;
  if (delegation && !(await delegations.find(delegation.id))) return null;
  if (approval?.agent !== undefined) {
    const agent = await directory.findPrincipal(approval.agent);
    if (!agent || agent.epoch !== approval.agentEpoch) return null;
  }
  // Only people can revoke the access of an application.
  if (principal?.kind !== 'human') return principal;
  const current = consent ?? (await consents.find(sub, clientId));
  return current.revocations === revocations ? principal : null;
}

/** The same, unless it may no longer sign in to the client, or the client is an agent that it has not let act. */
export async function findAllowedOwner(
  client: Pick<Client, 'principalKinds' | 'admittedGroups' | 'agent'>,
  grant: GrantDocument,
  deps: OidcShared,
): Promise<Principal | null> {
  const { isClient = false, agent } = grant.delegation ?? {};
  if (client.agent?.id !== (isClient ? agent : grant.approval?.agent)) return null;
  const principal = await findOwner(grant, deps);
  return principal && !findRefusal({ client }, principal) ? principal : null;
}

/** What audit records say about all of a grant. */
export const traceOfGrant = ({ id: txn, clientId: client, sub, delegation }: GrantDocument) =>
  traced({
    ...{ txn, client },
    ...(delegation && { agent: delegation.agent, person: sub, delegation: delegation.id }),
  });

/** Revokes everything that was issued from a grant, with its delegation. */
export async function revokeGrant(
  grant: GrantDocument,
  event: string,
  ip: string,
  { grants, delegations, revocations, commit, audit, clock }: OidcShared,
): Promise<void> {
  const { id, sub, delegation } = grant;
  const revoking = grants.changing({ id, revokedAt: null }, { set: { revokedAt: clock.now() } });
  for (;;) {
    const outcome = await commit([
      revoking,
      await revocations.ending('txn', id),
      audit.entry({ event, ip, ...traceOfGrant(grant), subject: sub }),
      ...(delegation ? await delegations.ending(delegation.id, { ip }) : []),
    ]);
    if (outcome.committed || outcome.unmet === revoking) return;
    // The delegation has ended since it was read.
  }
}
