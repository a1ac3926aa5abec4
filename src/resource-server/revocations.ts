import { setTimeout } from 'node:timers/promises';
import {
  isRevoked,
  REVOCATION_LIST_TYPE,
  type RevocableClaims,
  type RevocationList,
  readRevocations,
} from '../core/http/revocation-list.js';
import { type Clock, SECOND } from '../core/kernel/clock.js';
import type { Fetch, Issuer } from './issuer.js';

/** Follows the issuer's list of revoked access tokens. */

export type Revocations = ReturnType<typeof followRevocations>;

/** The longest time for which the issuer holds back its answer while nothing changes (RFC 7240 §4.3). */
const MAX_WAIT_S = 10;
/** How long an answer may take beyond that. */
const TIMEOUT_MS = 5 * SECOND;
/** Between two answers, so that a list that changes all the time is not read all the time. */
const GAP_MS = 250;
const RETRY_MS = SECOND;

export interface FollowOptions {
  clock: Clock;
  fetch: Fetch;
  issuer: string;
  /** Without an answer for this long, no token is accepted. */
  maxSilenceMs: number;
  onFailure(error: unknown): void;
}

/** Reads the list again and again: each answer comes when the list has changed, or after some seconds. */
export function followRevocations({ keys }: Issuer, uri: string, options: FollowOptions) {
  const { clock, fetch, issuer, maxSilenceMs, onFailure } = options;
  const ended = new AbortController();
  const waitS = Math.min(MAX_WAIT_S, Math.floor(maxSilenceMs / 3 / SECOND));
  let known: { list: RevocationList; etag: string | null } | undefined;
  let answeredAt = Number.NEGATIVE_INFINITY;

  const read = async (): Promise<void> => {
    const asked = clock.now();
    const headers: Record<string, string> = {};
    if (known?.etag) Object.assign(headers, { 'if-none-match': known.etag, prefer: `wait=${waitS}` });
    const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(waitS * SECOND + TIMEOUT_MS)]);
    const response = await fetch(uri, { headers, redirect: 'error', signal });
    // As of the request: an answer may have been stored on its way.
    if (response.status === 304 && known) answeredAt = asked;
    if (response.status === 304) return;
    if (response.status !== 200) throw new Error(`${uri} answers with ${response.status}.`);
    const { jwtVerify } = await import('jose');
    const { payload } = await jwtVerify(await response.text(), keys, {
      issuer,
      typ: REVOCATION_LIST_TYPE,
      algorithms: ['EdDSA', 'Ed25519'],
      requiredClaims: ['exp', 'iat'],
      currentDate: new Date(clock.now()),
    });
    const list = readRevocations(payload);
    if (!list) throw new Error(`${uri} is no list of revoked tokens.`);
    known = { list, etag: response.headers.get('etag') };
    answeredAt = asked;
  };

  const follow = async (first: () => void): Promise<void> => {
    while (!ended.signal.aborted) {
      const gap = await read().then(
        () => GAP_MS,
        (error: unknown) => {
          if (!ended.signal.aborted) onFailure(error);
          return RETRY_MS;
        },
      );
      first();
      await pause(gap, ended.signal);
    }
  };
  const ready = new Promise<void>((resolve) => void follow(resolve));

  return {
    /** Whether the list is known and recent; otherwise no token can be accepted. */
    isCurrent: (): boolean => known !== undefined && clock.now() - answeredAt <= maxSilenceMs,
    /** Resolves after the first attempt to read the list. */
    ready: (): Promise<void> => ready,
    includes: (claims: RevocableClaims): boolean => known !== undefined && isRevoked(claims, known.list),
    stop: (): void => ended.abort(),
  };
}

async function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  await setTimeout(milliseconds, undefined, { signal, ref: false }).catch((error: unknown) => {
    if (!signal.aborted) throw error;
  });
}
