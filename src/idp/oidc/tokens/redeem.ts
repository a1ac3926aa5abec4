import { setTimeout as sleep } from 'node:timers/promises';
import { FUTURE_TOLERANCE_MS, isRecent, isUnexpired } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { isSecretOf, sha256 } from '../../../core/kernel/secrets.js';
import { type Client, isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import {
  CODE_LIFETIME_MS,
  newGrantToken,
  newRefreshToken,
  refreshExpiry,
  TOKEN_LIFETIME_SECONDS,
  withAccessToken,
} from '../grant-tokens.js';
import type { Prove } from '../proofs.js';
import { clientTrace, type GrantDocument } from '../store.js';
import {
  createTokenResponse,
  endDelegationOf,
  findAllowedOwner,
  type TokenDependencies,
  type TokenResponse,
} from './issuance.js';
import { findProvenKey } from './key-binding.js';
import { chooseTarget, lifetimeFor, scopeWith } from './target.js';

export interface CodeRedemption {
  code: string | undefined;
  /** The grant that the code names; neither the code nor its client are verified yet. */
  grant: GrantDocument | null;
  redirectUri: string | undefined;
  verifier: string | undefined;
  /** The values of `resource`. */
  resources?: readonly string[];
  /** Absent without a DPoP proof. */
  prove?: Prove | undefined;
  /** Of the agent that a delegation is for. */
  actorToken?: string | undefined;
  actorTokenType?: string | undefined;
}

/** Exchanges a code for tokens, once (RFC 6749 §4.1.3). @throws invalid_request, invalid_grant, invalid_target */
export async function redeemCode(
  client: Client,
  { code, grant, redirectUri, verifier, resources = [], prove, ...actor }: CodeRedemption,
  ip: string,
  deps: TokenDependencies,
): Promise<TokenResponse> {
  if (!code) throw oidcErrors.invalid_request({ message: 'code is missing.' });
  if (!grant || !isSecretOf(code, grant.codeHash) || grant.clientId !== client.id) {
    throw oidcErrors.invalid_grant();
  }
  const problem = redirectProblem(grant, redirectUri) ?? verifierProblem(grant.challenge, verifier);
  if (problem !== null) throw oidcErrors.invalid_grant({ message: problem });
  if (grant.delegation) {
    const { proveDelegate } = await import('../delegations/actor.js');
    const { actorToken: token, actorTokenType: type } = actor;
    await proveDelegate(grant, { token, type, prove, ip }, deps);
  }
  const redemption = { resources, lifetimeMs: CODE_LIFETIME_MS, prove };
  const response = await redeemGrant(client, grant, redemption, deps);
  if (response) return response;
  await revokeReplayed(grant.id, ip, deps);
  throw oidcErrors.invalid_grant();
}

export interface GrantRedemption {
  /** The values of `resource`. */
  resources: readonly string[];
  /** How long the code of the grant is valid. */
  lifetimeMs: number;
  /** Absent without a DPoP proof. */
  prove?: Prove | undefined;
}

/**
 * Exchanges a grant, whose code was presented, for tokens. `null` if the code was used or has expired.
 * @throws invalid_grant, invalid_target
 */
export async function redeemGrant(
  client: Client,
  grant: GrantDocument,
  { resources, lifetimeMs, prove }: GrantRedemption,
  deps: TokenDependencies,
): Promise<TokenResponse | null> {
  const { grants, clock, random } = deps;
  const principal = await findAllowedOwner(client, grant, deps);
  if (!principal) throw oidcErrors.invalid_grant();

  // Before the code is used, which then remains valid.
  const target = await chooseTarget(grant, resources, principal, deps);
  const key = await findProvenKey(prove, grant.codeKey, target);

  const { nonce } = grant;
  const scope = scopeWith(grant.scope, target);
  const accessToken = newGrantToken('at_', grant.id, random);
  const refreshToken =
    grant.delegation || scope.split(' ').includes('offline_access')
      ? newRefreshToken(grant.id, random, deps.seeds[0], grant.delegation && 'dt_')
      : undefined;
  const now = clock.now();
  const hash = sha256(accessToken);
  const lifetimeSeconds = lifetimeFor(target, grant, now);
  const issued = {
    hash,
    ...(target && { scope, resource: target.resource.identifier }),
    ...(key !== undefined && { key }),
  };
  const expiresIn = lifetimeSeconds ?? TOKEN_LIFETIME_SECONDS;
  const tokens = { accessToken, target, key, expiresIn, scope, refreshToken, nonce };
  const isConsumed = await grants
    .changeOne(
      {
        id: grant.id,
        consumedAt: null,
        revokedAt: null,
        codeExpiresAt: { gt: now, lte: now + lifetimeMs + FUTURE_TOLERANCE_MS },
      },
      {
        set: {
          consumedAt: now,
          ...(deps.answers && { unansweredSince: now }),
          accessTokens: withAccessToken(grant, issued, { now, lifetimeSeconds }),
          ...(refreshToken !== undefined && {
            refreshHash: sha256(refreshToken),
            refreshExpiresAt: refreshExpiry(grant, now),
            // Clients that authenticate may change their key (RFC 9449 §5).
            ...(key !== undefined && (grant.delegation || isPublicClient(client)) && { refreshKey: key }),
          }),
        },
      },
    )
    .catch((error: unknown) => {
      deps.redemptions.remember(
        grant.id,
        { id: grant.id, clientId: client.id, consumedAt: now, hash },
        error,
      );
      throw error;
    });
  if (isConsumed) deps.redemptions.forget(grant.id);
  if (
    !isConsumed &&
    ((await deps.redemptions.settle(grant.id)) || (await isReverted(grant.id, lifetimeMs, deps)))
  ) {
    return redeemGrant(client, grant, { resources, lifetimeMs, prove }, deps);
  }
  if (!isConsumed) return null;
  const answer = await createTokenResponse(client, grant, principal, tokens, deps);
  deps.answers?.run('mark of an answered code', async () => {
    await grants.changeOne({ id: grant.id, consumedAt: now }, { unset: ['unansweredSince'] });
  });
  return answer;
}

const POLL_INTERVAL_MS = 100;
const MAX_POLLS = 40;

/**
 * Whether the process that has consumed a code reverts that, because its request has failed. Waits while it may: the client may
 * repeat the request at this process as soon as the store responds again. @throws OVERLOADED if it is still open then
 */
async function isReverted(
  id: string,
  lifetimeMs: number,
  { grants, clock }: TokenDependencies,
): Promise<boolean> {
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
async function revokeReplayed(grantId: string, ip: string, deps: TokenDependencies): Promise<void> {
  const { grants, revocations, audit, clock } = deps;
  const grant = await grants.findOne({ id: grantId });
  if (grant?.consumedAt === undefined || grant.revokedAt !== undefined) return;
  await endDelegationOf(grant, ip, deps);
  const revoked = await revocations.end('txn', grantId, () =>
    grants.changeOne({ id: grantId, revokedAt: null }, { set: { revokedAt: clock.now() } }),
  );
  if (revoked)
    await audit.record({ event: 'code.replayed', subject: grant.sub, ip, detail: clientTrace(grant) });
}

function redirectProblem({ redirectUri }: GrantDocument, given: string | undefined): string | null {
  if (given === redirectUri) return null;
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
