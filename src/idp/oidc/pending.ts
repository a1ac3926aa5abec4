import { FUTURE_TOLERANCE_MS, isUnexpired, SECOND } from '../../core/kernel/clock.js';
import { isSecretOf, newToken } from '../../core/kernel/secrets.js';
import type { CommitPart } from '../../core/ops/commit.js';
import { type Collection, nullIfTaken } from '../../core/storage/collection.js';
import type { Client } from './directory.js';
import { oidcErrors } from './errors.js';
import { PENDING_LIFETIME_MS } from './grant-tokens.js';
import type { OidcShared } from './shared.js';
import { GRANT, type GrantDocument, type PendingRequest } from './store.js';
import type { TokenResponse } from './tokens/issuance.js';
import { redeemGrant } from './tokens/redeem.js';
import type { TokenRequest } from './tokens/request.js';

/** Requests that a person decides in a browser while their client polls: the decision, the polls and the grant. */

/** Seconds between two polls, and what each one that comes too early adds (RFC 8628 §3.5). */
export const INTERVAL = 5;

/** A client counts from its receipt of the last response, and timers are inexact. */
const EARLY_MS = SECOND;

/** A longer interval than the longest lifetime of a code is not stored. */
const MAX_INTERVAL = PENDING_LIFETIME_MS / SECOND;

interface Kind<T> {
  /** What the names of its audit records begin with. */
  events: string;
  /** Prefixes of the ids and of the codes. A code contains the id of its request, as other codes contain that of their grant. */
  id: string;
  code: string;
  /** What the grant contains besides. */
  more?(request: T): Pick<GrantDocument, 'approval'>;
}

type PendingRequests<T> = Pick<Collection<PendingRequest>, 'changing' | 'changeOne'> & {
  findOne(where: { id: string }): Promise<T | null>;
};

export function createPendingRequests<T extends PendingRequest>(
  requests: PendingRequests<T>,
  { events, id: prefix, code: codePrefix, more }: Kind<T>,
  deps: OidcShared,
) {
  const { grants, commit, audit, clock, random } = deps;

  const isOpen = ({ expiresAt }: Pick<PendingRequest, 'expiresAt'>): boolean =>
    isUnexpired(expiresAt, { now: clock.now(), life: PENDING_LIFETIME_MS });

  const findByCode = async (code: string): Promise<T | null> => {
    const name = code.startsWith(codePrefix)
      ? /^([0-9a-f]{32})[\w-]{43}$/.exec(code.slice(codePrefix.length))?.[1]
      : undefined;
    const stored = name === undefined ? null : await requests.findOne({ id: prefix + name });
    return stored && isSecretOf(code, stored.codeHash) ? stored : null;
  };

  const grantIdOf = ({ id }: Pick<PendingRequest, 'id'>): string => GRANT + id.slice(prefix.length);

  /** The grant of an approved request, the same for every poll. */
  const grantOf = (request: T): GrantDocument | null => {
    const { state, approval, codeHash, clientId, scope, resources } = request;
    if (state !== 'approved' || !approval) return null;
    const { approvedAt, ...authentication } = approval;
    return {
      id: grantIdOf(request),
      ...{ codeHash, clientId, scope, ...(resources && { resources }) },
      ...authentication,
      createdAt: approvedAt,
      codeExpiresAt: request.expiresAt,
      ...more?.(request),
    };
  };

  /** A poll before the decision: too early if the interval has not passed since the last one. */
  const refusePending = async ({ id, polledAt, interval }: PendingRequest): Promise<Error> => {
    const now = clock.now();
    const isEarly = polledAt !== undefined && now < polledAt + interval * SECOND - EARLY_MS;
    const isFirst =
      !isEarly && (await requests.changeOne({ id, polledAt: polledAt ?? null }, { set: { polledAt: now } }));
    if (isFirst) return oidcErrors.authorization_pending();
    await requests.changeOne(
      { id, interval: { lt: MAX_INTERVAL } },
      { set: { polledAt: now }, inc: { interval: INTERVAL } },
    );
    return oidcErrors.slow_down();
  };

  return {
    isOpen,
    grantIdOf,

    newCode: (id: string): string => newToken(random, codePrefix + id.slice(prefix.length)),

    /** Stores a decision. Returns whether it is stored: by this call, or by the same form before. */
    async decide(
      { id }: Pick<PendingRequest, 'id'>,
      decision: Pick<PendingRequest, 'approval'> & { state: 'approved' | 'denied' },
      by: { subject: string; ip: string; detail: string },
      parts: readonly CommitPart[] = [],
    ): Promise<boolean> {
      const now = clock.now();
      const expiresAt = { gt: now, lte: now + PENDING_LIFETIME_MS + FUTURE_TOLERANCE_MS };
      const { committed } = await commit([
        requests.changing({ id, state: 'pending', expiresAt }, { set: decision }),
        ...parts,
        audit.entry({ event: `${events}.${decision.state}`, ...by }),
      ]);
      if (committed) return true;
      const stored = await requests.findOne({ id });
      return stored?.state === decision.state && stored.approval?.sub === decision.approval?.sub;
    },

    /**
     * Exchanges the code of a request for tokens, once.
     * @param field of the code
     * @throws authorization_pending, slow_down, access_denied, expired_token, invalid_grant, invalid_request, invalid_target
     */
    async poll(
      client: Client,
      field: string,
      request: TokenRequest,
      onIssue?: (grant: GrantDocument) => Promise<void>,
    ): Promise<TokenResponse> {
      const code = request.fields[field];
      if (!code) throw oidcErrors.invalid_request({ message: `${field} is missing.` });
      const stored = await findByCode(code);
      if (stored?.clientId !== client.id) throw oidcErrors.invalid_grant();
      if (!isOpen(stored)) throw oidcErrors.expired_token();
      if (stored.state === 'denied') throw oidcErrors.access_denied();
      const grant = grantOf(stored);
      if (!grant) throw await refusePending(stored);
      // Before the code is used: after a crash in between, the next poll continues.
      await grants.insert(grant).catch(nullIfTaken);
      const response = await redeemGrant(client, grant, PENDING_LIFETIME_MS, request, deps);
      // No revocation as after the replay of a code: clients repeat a poll of which the response was lost.
      if (!response) throw oidcErrors.invalid_grant();
      await onIssue?.(grant);
      return response;
    },
  };
}
