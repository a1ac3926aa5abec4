import { EventEmitter, once } from 'node:events';
import { REVOCATION_LIST_TYPE } from '../../../core/http/revocation-list.js';
import { type Clock, every, MINUTE, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import { pagesOf } from '../../../core/storage/pages.js';
import type { Keys } from '../keys.js';
import { listOf, type RevocationCollection, type RevocationDocument } from './service.js';

/** The published list of revocations, for those who wait for changes. Loaded with the first request for it. */
export type RevocationFeed = ReturnType<typeof createRevocationFeed>;

/** How often the store is read while requests wait. Resource servers receive a revocation within a second. */
const POLL_MS = 250;
/** How far the clocks of processes are expected to differ: a revocation with a time shortly before the last read is found, too. */
const EXPECTED_SKEW_MS = 5 * SECOND;
/** After this time, everything is read again, for processes whose clocks differ more. */
const REREAD_MS = 5 * SECOND;
/** Validity of a signed list; a resource server has its own limit for how old a list may be. */
const LIFETIME_SECONDS = MINUTE / SECOND;
/** Of requests that wait in one process; others are answered at once. */
const MAX_WAITING = 1000;

export function createRevocationFeed({
  revocationDocuments,
  keys,
  issuer,
  clock,
}: {
  revocationDocuments: RevocationCollection;
  keys: Keys;
  issuer(): string;
  clock: Clock;
}) {
  const known = new Map<string, RevocationDocument>();
  let readAt = Number.NEGATIVE_INFINITY;
  let rereadAt = Number.NEGATIVE_INFINITY;
  let reading: Promise<void> | undefined;
  let current: { etag: string; content: Record<string, number | true> } = { etag: etagOf([]), content: {} };
  const changes = new EventEmitter().setMaxListeners(0);
  let stopPolling: (() => void) | undefined;

  const update = async (): Promise<void> => {
    const now = clock.now();
    const isComplete = Math.abs(now - rereadAt) >= REREAD_MS;
    const since = isComplete ? {} : { revokedAt: { gte: readAt - EXPECTED_SKEW_MS } };
    const found: RevocationDocument[] = [];
    const where = { expiresAt: { gt: now }, ...since };
    for await (const items of pagesOf(revocationDocuments, { where, sort: 'revokedAt' }))
      found.push(...items);
    if (isComplete) known.clear();
    for (const revocation of found) known.set(revocation.id, revocation);
    for (const { id, expiresAt } of known.values()) if (expiresAt <= now) known.delete(id);
    readAt = now;
    if (isComplete) rereadAt = now;
    const entries = Object.entries(listOf(known.values())).sort(([one], [other]) => (one < other ? -1 : 1));
    const etag = etagOf(entries);
    if (etag === current.etag) return;
    current = { etag, content: Object.fromEntries(entries) };
    changes.emit('change');
  };

  const refresh = (): Promise<void> => {
    reading ??= update().finally(() => {
      reading = undefined;
    });
    return reading;
  };

  /** The list as it is now. */
  const snapshot = () => {
    const { etag, content: revoked } = current;
    return {
      /** Changes with the content. */
      etag,
      /** A JWT with the list. */
      sign(): Promise<string> {
        const iat = toSeconds(clock.now());
        const claims = { iss: issuer(), iat, exp: iat + LIFETIME_SECONDS, revoked };
        return keys.sign(claims, 'EdDSA', REVOCATION_LIST_TYPE);
      },
    };
  };

  const poll = () => {
    // A failure is reported to everyone who waits, by the read that follows.
    stopPolling ??= every(clock, POLL_MS, () => void refresh().catch(() => undefined));
  };

  return {
    async read() {
      await refresh();
      return snapshot();
    },

    /** Resolves once the list differs from `etag`, or when the signal is aborted. */
    async change(etag: string, signal: AbortSignal): Promise<void> {
      if (etag !== current.etag || signal.aborted || changes.listenerCount('change') >= MAX_WAITING) return;
      poll();
      // It rejects only if the signal is aborted.
      await once(changes, 'change', { signal }).catch(() => undefined);
      if (changes.listenerCount('change') === 0) {
        stopPolling?.();
        stopPolling = undefined;
      }
    },

    /** Answers everyone who waits. */
    close: () => void changes.emit('change'),
  };
}

const etagOf = (entries: readonly [string, number | true][]): string =>
  `"${sha256(JSON.stringify(entries)).slice(0, 22)}"`;
