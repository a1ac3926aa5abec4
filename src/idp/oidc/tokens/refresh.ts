import { isRecent, isUnexpired } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { Change, Where, Write } from '../../../core/storage/collection.js';
import { proveDelegate } from '../delegations/actor.js';
import { type Client, isPublicClient, type Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import {
  deriveSuccessor,
  findIssuedSuccessor,
  grantIdOf,
  isIssuedRefreshToken,
  newGrantToken,
  REFRESH_IDLE_LIFETIME_MS,
  type RefreshPrefix,
  refreshExpiry,
  refreshPrefix,
  withAccessToken,
} from '../grant-tokens.js';
import { namesIn } from '../resources.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import { createTokenResponse, findAllowedOwner, revokeGrant, type TokenResponse } from './issuance.js';
import { findProvenKey, requireProof } from './key-binding.js';
import { tokenEntry } from './permit.js';
import type { TokenRequest } from './request.js';
import { chooseTarget, lifetimeFor, scopeWith } from './target.js';

/** Whether a stolen refresh token of the grant is worth nothing, because its use needs a secret or a key of the client. */
const isSenderConstrained = (client: Client, { refreshKey }: GrantDocument): boolean =>
  refreshKey !== undefined || !isPublicClient(client);

/**
 * Issues tokens for a refresh token (RFC 6749 §6), or for that of a delegation. One that anybody could use is replaced by its one
 * successor; one that is
 * constrained to its sender stays the same (RFC 9700 §4.14.2).
 *
 * @throws invalid_request, invalid_grant, invalid_scope, invalid_target
 */
export async function refreshTokens(
  client: Client,
  token: string | undefined,
  request: TokenRequest,
  deps: OidcShared,
  prefix: RefreshPrefix = 'rt_',
): Promise<TokenResponse> {
  if (!token) throw oidcErrors.invalid_request({ message: 'refresh_token is missing.' });
  const exchange = () => exchangeToken(client, token, request, deps, prefix);
  if (isPublicClient(client) && request.prove === undefined) return exchange();
  const { scope, actor_token: actorToken } = request.fields;
  // Those of one that stays the same are all stored, each on the condition of the one before: in turn, none is repeated.
  const inTurn = () => deps.renewals.run(sha256(token), exchange);
  // What each request proves is used up by it.
  if (request.prove !== undefined || actorToken !== undefined) return inTurn();
  // The processes of a client may send the same at the same time, which is worth one write.
  return deps.sameRenewals.run(JSON.stringify([client.id, token, scope, request.resources]), inTurn);
}

async function exchangeToken(
  client: Client,
  token: string,
  request: TokenRequest,
  deps: OidcShared,
  prefix: RefreshPrefix,
): Promise<TokenResponse> {
  const id = grantIdOf(prefix, token);
  if (id === undefined) throw oidcErrors.invalid_grant();
  const presented = sha256(token);
  const accept = acceptDelegation(request, deps);
  for (;;) {
    const { grant, principal } = await findFamily(id, client, deps);
    if (refreshPrefix(grant) !== prefix) throw oidcErrors.invalid_grant();
    requireProof(client, request.prove, grant);
    const now = deps.clock.now();
    if (grant.refreshHash !== presented) {
      if (await deps.rotations.settle(presented)) continue;
      const isPrevious = grant.previousRefreshHash === presented;
      const isRetry = isPrevious && isRecent(grant.rotatedAt ?? 0, { now, within: deps.reuseWindowMs });
      if (isRetry) {
        const parts = await accept(grant);
        const response = await repeatResponse(client, grant, principal, token, request, parts, deps);
        if (response) return response;
        continue;
      }
      // It may have been stolen, so the whole family is revoked (RFC 9700 §4.14.2).
      const isStolen = isPrevious || isIssuedRefreshToken(id, token, deps.seeds);
      if (isStolen && !isSenderConstrained(client, grant))
        await revokeGrant(grant, 'refresh.reused', request.ip, deps);
      throw oidcErrors.invalid_grant();
    }
    const parts = await accept(grant);
    const response = await renew(client, grant, principal, token, request, parts, deps);
    if (response) return response;
    // Another request changed the grant, or ended its delegation, so that it has to be read again.
  }
}

/** Checks the request for a delegation before its token is used, and returns what is stored with the tokens. Repeated calls have the effects of one. */
function acceptDelegation(request: TokenRequest, deps: OidcShared) {
  let proven: Promise<void> | undefined;
  return async (grant: GrantDocument): Promise<readonly (Write | Effect)[]> => {
    if (!grant.delegation) return [];
    // An assertion works once, and a race makes the exchange read the grant again.
    proven ??= proveDelegate(grant, request, deps);
    await proven;
    return [deps.delegations.using(grant.delegation.id)];
  };
}

/** Issues the next access token, and replaces the refresh token if it rotates; `null` if the grant has changed since it was read. */
async function renew(
  client: Client,
  grant: GrantDocument,
  principal: Principal,
  token: string,
  { fields, resources, prove, ip }: TokenRequest,
  parts: readonly (Write | Effect)[],
  deps: OidcShared,
): Promise<TokenResponse | null> {
  const { rotations, grants, commit, clock, seeds, random } = deps;
  const { id } = grant;
  const now = clock.now();
  const target = await chooseTarget(grant, resources, principal, ip, deps);
  const key = await findProvenKey(prove, grant.refreshKey, target, deps);
  const scope = narrowScope(scopeWith(grant.scope, target), fields['scope']);
  const expiresIn = lifetimeFor(target, now);
  const rotates = !isSenderConstrained(client, grant);
  const successor = rotates
    ? deriveSuccessor(id, token, seeds[0])
    : { refreshToken: token, accessToken: newGrantToken('at_', id, random) };
  const tokens = { ...successor, target, key, expiresIn, scope, nonce: undefined };
  const [presented, next] = [sha256(token), sha256(successor.refreshToken)];
  const current: Where<GrantDocument> = { id, revision: grant.revision ?? null, revokedAt: null };
  const change: Change<GrantDocument> = {
    set: {
      ...(rotates && { refreshHash: next, previousRefreshHash: presented, rotatedAt: now }),
      refreshExpiresAt: refreshExpiry(grant, now),
      accessTokens: withAccessToken(grant, tokens, now),
    },
    inc: { revision: 1 },
  };
  const record = tokenEntry(grant, target, ip, deps);
  const renewing =
    parts.length === 0 && !record
      ? grants.changeOne(current, change)
      : commit([grants.changing(current, change), ...parts, record]).then(({ committed }) => committed);
  const isRenewed = await renewing.catch((error: unknown) => {
    if (rotates)
      rotations.remember(presented, { id, clientId: client.id, presented, next, rotatedAt: now }, error);
    throw error;
  });
  if (!isRenewed) return null;
  rotations.forget(presented);
  return createTokenResponse(client, grant, principal, tokens, deps);
}

/** A grant that this client can refresh, and its owner. @throws invalid_grant */
async function findFamily(
  id: string,
  client: Client,
  deps: OidcShared,
): Promise<{ grant: GrantDocument; principal: Principal }> {
  const grant = await deps.grants.findOne({ id });
  if (grant?.clientId !== client.id || grant.revokedAt !== undefined) throw oidcErrors.invalid_grant();
  const { refreshExpiresAt = 0 } = grant;
  if (!isUnexpired(refreshExpiresAt, { now: deps.clock.now(), life: REFRESH_IDLE_LIFETIME_MS }))
    throw oidcErrors.invalid_grant();
  const principal = await findAllowedOwner(client, grant, deps);
  if (!principal) throw oidcErrors.invalid_grant();
  return { grant, principal };
}

/**
 * The response of the first exchange; `null` if its delegation has ended.
 * @throws invalid_grant if it cannot be derived, invalid_target for another resource
 */
async function repeatResponse(
  client: Client,
  grant: GrantDocument,
  principal: Principal,
  token: string,
  { resources, prove, ip }: TokenRequest,
  parts: readonly (Write | Effect)[],
  deps: OidcShared,
): Promise<TokenResponse | null> {
  const now = deps.clock.now();
  // Another process may have used a seed that is unknown here, so this is not treated as a replay.
  const issuedBefore = findIssuedSuccessor(grant, token, { seeds: deps.seeds, now });
  if (!issuedBefore) throw oidcErrors.invalid_grant();
  const { successor, issued } = issuedBefore;
  const target = await chooseTarget(grant, resources, principal, ip, deps);
  if (issued.resource !== target?.resource.identifier)
    throw oidcErrors.invalid_target({
      message: 'The refresh token was used for another resource. Use the new refresh token.',
    });
  const key = await findProvenKey(prove, grant.refreshKey, target, deps);
  if (key !== issued.key)
    throw oidcErrors.invalid_dpop_proof({
      message: 'The refresh token was used with another key, or with none. Use the new refresh token.',
    });
  const expiresIn = Math.floor((issued.expiresAt - now) / 1000);
  const scope = issued.scope ?? grant.scope;
  const tokens = { ...successor, target, key, expiresIn, scope, nonce: undefined };
  const record = tokenEntry(grant, target, ip, deps);
  if (record && !(await deps.commit([...parts, record])).committed) return null;
  return createTokenResponse(client, grant, principal, tokens, deps);
}

/** @throws invalid_scope when the requested scope exceeds the granted one */
function narrowScope(granted: string, asked: string | undefined): string {
  if (!asked?.trim()) return granted;
  const names = new Set(namesIn(asked));
  const known = namesIn(granted);
  if ([...names].some((name) => !known.includes(name))) throw oidcErrors.invalid_scope();
  return known.filter((name) => names.has(name)).join(' ');
}
