import { setTimeout as sleep } from 'node:timers/promises';
import { FUTURE_TOLERANCE_MS, isRecent, isUnexpired } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { isSecretOf, sha256 } from '../../../core/kernel/secrets.js';
import type { Effect } from '../../../core/ops/commit.js';
import type { Change, Where } from '../../../core/storage/collection.js';
import { proveDelegate } from '../delegations/actor.js';
import { type Client, isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import {
  CODE_LIFETIME_MS,
  grantIdOf,
  newGrantToken,
  newRefreshToken,
  refreshExpiry,
  refreshPrefix,
  withAccessToken,
} from '../grant-tokens.js';
import type { Target } from '../resources.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import {
  createTokenResponse,
  findAllowedOwner,
  type IssuedTokens,
  revokeGrant,
  type TokenResponse,
} from './issuance.js';
import { findProvenKey } from './key-binding.js';
import { tokenEntry } from './permit.js';
import type { TokenRequest } from './request.js';
import { chooseTarget, lifetimeFor, scopeWith } from './target.js';

/** The grant that a code names; neither the code nor its client are verified. */
export async function findByCode(
  code: string | undefined,
  { grants }: OidcShared,
): Promise<GrantDocument | null> {
  const id = code === undefined ? undefined : grantIdOf('ac_', code);
  return id === undefined ? null : grants.findOne({ id });
}

/**
 * Exchanges a code for tokens, once (RFC 6749 §4.1.3).
 *
 * @param grant what the code names
 * @throws invalid_request, invalid_grant, invalid_target
 */
export async function redeemCode(
  client: Client,
  grant: GrantDocument | null,
  request: TokenRequest,
  deps: OidcShared,
): Promise<TokenResponse> {
  const { code, redirect_uri: redirectUri, code_verifier: verifier } = request.fields;
  if (!code) throw oidcErrors.invalid_request({ message: 'code is missing.' });
  if (!grant || !isSecretOf(code, grant.codeHash) || grant.clientId !== client.id) {
    throw oidcErrors.invalid_grant();
  }
  const problem = redirectProblem(grant, redirectUri) ?? verifierProblem(grant.challenge, verifier);
  if (problem !== null) throw oidcErrors.invalid_grant({ message: problem });
  if (grant.delegation) await proveDelegate(grant, request, deps);
  const response = await redeemGrant(client, grant, CODE_LIFETIME_MS, request, deps);
  if (response) return response;
  await revokeReplayed(grant.id, request.ip, deps);
  throw oidcErrors.invalid_grant();
}

/**
 * Exchanges a grant, whose code was presented, for tokens. `null` if the code was used or has expired.
 *
 * @param lifetimeMs how long the code of the grant is valid
 * @throws invalid_grant, invalid_target
 */
export async function redeemGrant(
  client: Client,
  grant: GrantDocument,
  lifetimeMs: number,
  request: TokenRequest,
  deps: OidcShared,
): Promise<TokenResponse | null> {
  const principal = await findAllowedOwner(client, grant, deps);
  if (!principal) throw oidcErrors.invalid_grant();

  // Before the code is used, which then remains valid.
  const target = await chooseTarget(grant, request.resources, principal, request.ip, deps);
  const key = await findProvenKey(request.prove, grant.codeKey, target, deps);
  const now = deps.clock.now();
  const tokens = newTokens(grant, target, key, now, deps);
  const record = tokenEntry(grant, target, request.ip, deps);
  if (!(await consume(client, grant, tokens, { now, lifetimeMs, record }, deps))) {
    const isOpen =
      (await deps.redemptions.settle(grant.id)) || (await isReverted(grant.id, lifetimeMs, deps));
    return isOpen ? redeemGrant(client, grant, lifetimeMs, request, deps) : null;
  }
  const answer = await createTokenResponse(client, grant, principal, tokens, deps);
  deps.answers?.run('mark of an answered code', async () => {
    await deps.grants.changeOne({ id: grant.id, consumedAt: now }, { unset: ['unansweredSince'] });
  });
  return answer;
}

function newTokens(
  grant: GrantDocument,
  target: Target | null,
  key: string | undefined,
  now: number,
  { random, seeds: [seed] }: OidcShared,
): IssuedTokens {
  const { id, nonce, delegation } = grant;
  const scope = scopeWith(grant.scope, target);
  const isLasting = delegation !== undefined || scope.split(' ').includes('offline_access');
  return {
    accessToken: newGrantToken('at_', id, random),
    target,
    key,
    expiresIn: lifetimeFor(target, now),
    scope,
    refreshToken: isLasting ? newRefreshToken(id, random, seed, refreshPrefix(grant)) : undefined,
    nonce,
  };
}

/** Stores the tokens, once. Returns whether the code was valid until then. */
async function consume(
  client: Client,
  grant: GrantDocument,
  tokens: IssuedTokens,
  { now, lifetimeMs, record }: { now: number; lifetimeMs: number; record: Effect | undefined },
  { grants, redemptions, answers, commit }: OidcShared,
): Promise<boolean> {
  const { id } = grant;
  const { refreshToken, key } = tokens;
  const open: Where<GrantDocument> = {
    id,
    consumedAt: null,
    revokedAt: null,
    codeExpiresAt: { gt: now, lte: now + lifetimeMs + FUTURE_TOLERANCE_MS },
  };
  const change: Change<GrantDocument> = {
    set: {
      consumedAt: now,
      ...(answers && { unansweredSince: now }),
      ...(client.profile && { requiresKey: true as const }),
      accessTokens: withAccessToken(grant, tokens, now),
      ...(refreshToken !== undefined && {
        refreshHash: sha256(refreshToken),
        refreshExpiresAt: refreshExpiry(grant, now),
        // Clients that authenticate may change their key (RFC 9449 §5).
        ...(key !== undefined && (grant.delegation || isPublicClient(client)) && { refreshKey: key }),
      }),
    },
  };
  const consuming = record
    ? commit([grants.changing(open, change), record]).then(({ committed }) => committed)
    : grants.changeOne(open, change);
  const isConsumed = await consuming.catch((error: unknown) => {
    const hash = sha256(tokens.accessToken);
    redemptions.remember(id, { id, clientId: client.id, consumedAt: now, hash }, error);
    throw error;
  });
  if (isConsumed) redemptions.forget(id);
  return isConsumed;
}

const POLL_INTERVAL_MS = 100;
const MAX_POLLS = 40;

/**
 * Whether the process that has consumed a code reverts that, because its request has failed. Waits while it may: the client may
 * repeat the request at this process as soon as the store responds again. @throws OVERLOADED if it is still open then
 */
async function isReverted(id: string, lifetimeMs: number, { grants, clock }: OidcShared): Promise<boolean> {
  for (let polls = 0; polls < MAX_POLLS; polls++) {
    const grant = await grants.findOne({ id });
    if (!grant || grant.revokedAt !== undefined) return false;
    const { consumedAt, unansweredSince, codeExpiresAt } = grant;
    const now = clock.now();
    // Exactly what can be consumed: the caller would repeat anything else for ever.
    if (consumedAt === undefined) return isUnexpired(codeExpiresAt, { now, life: lifetimeMs });
    // A process that has crashed reverts nothing.
    if (!isRecent(unansweredSince ?? 0, { now, within: CODE_LIFETIME_MS })) return false;
    await sleep(POLL_INTERVAL_MS);
  }
  throw httpErrors.OVERLOADED();
}

/** A replayed code may have been stolen, so everything issued from it is revoked (RFC 6749 §4.1.2). */
async function revokeReplayed(grantId: string, ip: string, deps: OidcShared): Promise<void> {
  const grant = await deps.grants.findOne({ id: grantId });
  if (grant?.consumedAt === undefined || grant.revokedAt !== undefined) return;
  await revokeGrant(grant, 'code.replayed', ip, deps);
}

/** OAuth 2.1 §4.1.3 leaves it out: the challenge binds the code already. */
function redirectProblem(
  { redirectUri, challenge }: GrantDocument,
  given: string | undefined,
): string | null {
  if (given === redirectUri || (given === undefined && challenge !== undefined)) return null;
  return given === undefined
    ? 'redirect_uri is missing.'
    : 'redirect_uri is not that of the authorization request.';
}

/** RFC 7636 §4.6. A verifier without a challenge is an injected code (RFC 9700 §2.1.1). */
function verifierProblem(challenge: string | undefined, verifier: string | undefined): string | null {
  if (challenge === undefined)
    return verifier === undefined ? null : 'The authorization request had no code_challenge.';
  if (verifier === undefined) return 'code_verifier is missing.';
  // The hash of stored secrets has the same format as S256.
  return /^[\w.~-]{43,128}$/.test(verifier) && isSecretOf(verifier, challenge)
    ? null
    : 'code_verifier does not match the code_challenge.';
}
