import { type Clock, DAY, isUnexpired, MINUTE, SECOND } from '../kernel/clock.js';
import { sha256 } from '../kernel/secrets.js';
import { createExpiryPurge } from '../ops/purge.js';
import { Coalescing, Semaphore } from '../ops/semaphore.js';
import {
  type Change,
  type Collection,
  nullIfTaken,
  type Page,
  type Store,
  type Write,
} from '../storage/collection.js';
import { readPage } from '../storage/pages.js';
import { applyChange } from '../storage/semantics.js';
import type { OutboundResponse, SendRequest } from './request.js';

/** JSON documents that clients publish, cached in the store: every process sees the same copy, also after a restart. */

export interface DocumentCopy {
  /** SHA-256 of the address. */
  id: string;
  uri: string;
  text: string;
  fetchedAt: number;
  freshUntil: number;
  /** When the copy was first and last used for more than a page, the latter to the day. */
  usedAt?: number;
  lastUsedAt?: number;
  /** Present when the operator refuses the document. Such a copy is not renewed and does not expire. */
  blockedAt?: number;
  expiresAt: number;
}

export type DocumentCopies = Collection<DocumentCopy>;

export const documentCollection = (store: Store): DocumentCopies =>
  store.collection<DocumentCopy>('documents', {
    indexes: [['expiresAt'], ['usedAt'], ['uri']],
    numbers: ['expiresAt', 'usedAt', 'fetchedAt', 'lastUsedAt', 'blockedAt'],
  });

/** The document cannot be read now. The reason is for the log only: it would tell a scanner what answers where. */
export class DocumentUnavailable extends Error {
  /** What the document breaks, for its author; `undefined` if it could not be fetched. */
  readonly problem: string | undefined;

  constructor(reason: string, problem?: string) {
    super(reason);
    this.name = 'DocumentUnavailable';
    this.problem = problem;
  }
}

export interface ReadOptions {
  /** Counts a request against the limits of the client that causes it. May throw. */
  pay(): Promise<void>;
  /** Why a document must not be stored; `null` if it may. */
  problemOf(text: string): string | null;
  contentType?: RegExp;
  maxBytes?: number;
  /** Whether a copy of the last day may be used while the host does not respond. */
  allowsStale?: boolean;
  /** Copies from before this time are not used. */
  notBefore?: number;
}

export type Documents = ReturnType<typeof createDocuments>;

const MAX_BYTES = 16 * 1024;

const MIN_FRESH_MS = 5 * MINUTE;
const MAX_FRESH_MS = DAY;

/** How long nothing is requested after a failure. */
const FAILURE_MS = MINUTE;

/** Longer than any refresh token, so that consents and their revocations outlive the grants. */
export const COPY_LIFETIME_MS = 100 * DAY;

/** The expiry of what does not expire. */
const NEVER = Number.MAX_SAFE_INTEGER;

/** Sorts after every address with the same beginning: they consist of ASCII characters. */
const LAST = '\u{10ffff}';

/** Failures that a process remembers. */
const MAX_FAILURES = 10_000;

/** Requests at a time, and those that wait. */
const CONCURRENCY = 16;
const MAX_QUEUE = 64;

const JSON_TYPE = /^application\/json$/i;

/** Answers that say that there is no such document, rather than that the server has a problem. */
const isFinal = (status: number): boolean => status < 500 && status !== 408 && status !== 429;

interface Failure {
  error: DocumentUnavailable;
  until: number;
  /** Whether the document may exist nevertheless. */
  isTemporary: boolean;
}

/** One request for a document, without a cache: its response, or why there is none. @throws DocumentUnavailable */
export async function requestDocument(
  uri: string,
  { problemOf, contentType = JSON_TYPE, maxBytes = MAX_BYTES }: Omit<ReadOptions, 'pay'>,
  send: SendRequest,
): Promise<{ response: OutboundResponse } | Omit<Failure, 'until'>> {
  const response = await send(uri, {
    method: 'GET',
    headers: { accept: 'application/json', 'accept-encoding': 'identity' },
    maxBytes,
  }).catch((error: unknown) => {
    throw new DocumentUnavailable(error instanceof Error ? error.message : String(error));
  });
  const { status, headers, body } = response;
  const type = (headers['content-type'] ?? '').split(';')[0]?.trim() ?? '';
  const problem =
    status !== 200
      ? `status ${status}`
      : !contentType.test(type)
        ? 'it is not application/json'
        : (headers['content-encoding'] ?? 'identity') === 'identity'
          ? null
          : 'it is compressed';
  const broken = problem === null ? problemOf(body) : null;
  if (problem === null && broken === null) return { response };
  return {
    error: new DocumentUnavailable(problem ?? broken ?? '', broken ?? undefined),
    isTemporary: !isFinal(status),
  };
}

export function createDocuments(
  copies: DocumentCopies,
  {
    send,
    clock,
    onFailure,
  }: { send: SendRequest; clock: Clock; onFailure(uri: string, reason: string): void },
) {
  const failures = new Map<string, Failure>();
  const pending = new Coalescing();
  const requests = new Semaphore(CONCURRENCY, MAX_QUEUE);

  /** The copy in the store, without a request. */
  const find = (uri: string) => copies.findOne({ id: sha256(uri) });

  const save = async (
    copy: Omit<DocumentCopy, 'usedAt' | 'lastUsedAt' | 'blockedAt'>,
  ): Promise<DocumentCopy> => {
    const { id, ...set } = copy;
    const update = () => copies.updateOne({ id, blockedAt: null }, { set });
    const updated = await update();
    if (updated) return updated;
    const isNew = (await copies.insert(copy).then(() => true, nullIfTaken)) !== null;
    return (isNew ? null : await update()) ?? copy;
  };

  const fail = (uri: string, error: DocumentUnavailable, isTemporary: boolean): never => {
    if (failures.size >= MAX_FAILURES) failures.clear();
    failures.set(uri, { error, until: clock.now() + FAILURE_MS, isTemporary });
    onFailure(uri, error.message);
    throw error;
  };

  const fetchCopy = async (uri: string, options: ReadOptions): Promise<DocumentCopy> => {
    const outcome = await requests
      .run(() => requestDocument(uri, options, send))
      .catch((error: unknown) => {
        if (!(error instanceof DocumentUnavailable)) throw error;
        return { error, isTemporary: true };
      });
    if ('error' in outcome) {
      // Its tokens end with it, unless its host only has a problem.
      if (!outcome.isTemporary) await copies.deleteOne({ id: sha256(uri), blockedAt: null });
      return fail(uri, outcome.error, outcome.isTemporary);
    }
    failures.delete(uri);
    const now = clock.now();
    return save({
      id: sha256(uri),
      uri,
      text: outcome.response.body,
      fetchedAt: now,
      freshUntil: now + lifetimeOf(outcome.response, now),
      expiresAt: now + COPY_LIFETIME_MS,
    });
  };

  /** One request at a time for each address; concurrent callers share its result. */
  const fetchOnce = async (uri: string, options: ReadOptions): Promise<DocumentCopy> => {
    if (!pending.has(uri)) await options.pay();
    return pending.run(uri, () => fetchCopy(uri, options));
  };

  return {
    find,

    /** A fresh copy. @throws DocumentUnavailable, OVERLOADED, what `pay` throws */
    async read(uri: string, options: ReadOptions): Promise<DocumentCopy> {
      const { allowsStale = false, notBefore = 0 } = options;
      const copy = await find(uri);
      const now = clock.now();
      const isNewEnough = copy !== null && copy.fetchedAt >= notBefore;
      if (isNewEnough && isUnexpired(copy.freshUntil, { now, life: MAX_FRESH_MS })) return copy;
      const spare =
        allowsStale && isNewEnough && isUnexpired(copy.fetchedAt + DAY, { now, life: DAY }) ? copy : null;
      const failure = failures.get(uri);
      if (failure && isUnexpired(failure.until, { now, life: FAILURE_MS })) {
        if (spare && failure.isTemporary) return spare;
        throw failure.error;
      }
      return fetchOnce(uri, options).catch((error: unknown) => {
        if (spare && error instanceof DocumentUnavailable && failures.get(uri)?.isTemporary) return spare;
        throw error;
      });
    },

    /** Remembers that the copy has been used. */
    async markUsed(uri: string): Promise<void> {
      const id = sha256(uri);
      const now = clock.now();
      const copy = await copies.findOne({ id });
      if (!copy) return;
      if (copy.usedAt === undefined) await copies.updateOne({ id, usedAt: null }, { set: { usedAt: now } });
      // At most one write a day.
      if (copy.lastUsedAt === undefined || copy.lastUsedAt <= now - DAY)
        await copies.updateOne({ id }, { set: { lastUsedAt: now } });
    },

    /** Those that were used: the latest first, or in the order of their addresses with the beginning of one. */
    listUsed({
      prefix,
      after,
      limit,
    }: {
      prefix?: string | undefined;
      after?: string | undefined;
      limit: number;
    }): Promise<Page<DocumentCopy>> {
      const usedAt = { gt: 0 };
      if (prefix === undefined)
        return readPage(copies, { where: { usedAt }, sort: 'usedAt', desc: true, after, limit });
      const uri = { gte: prefix, lt: prefix + LAST };
      return readPage(copies, { where: { usedAt, uri }, sort: 'uri', after, limit });
    },

    findById: (id: string) => copies.findOne({ id }),

    /** Blocks or admits a copy that is in the other state, for a commit. */
    settingBlocked(copy: DocumentCopy, isBlocked: boolean): { write: Write; changed: DocumentCopy } {
      const now = clock.now();
      const change: Change<DocumentCopy> = isBlocked
        ? { set: { blockedAt: now, expiresAt: NEVER } }
        : { set: { expiresAt: now + COPY_LIFETIME_MS }, unset: ['blockedAt'] };
      const where = { id: copy.id, blockedAt: isBlocked ? null : { gt: 0 } };
      return { write: copies.changing(where, change), changed: applyChange(copy, change) };
    },

    purge: createExpiryPurge(copies, clock),
  };
}

/** How long a response is fresh (RFC 9111 §4.2), within five minutes and a day. */
function lifetimeOf({ headers }: OutboundResponse, now: number): number {
  const clamp = (ms: number) => Math.min(Math.max(ms, MIN_FRESH_MS), MAX_FRESH_MS);
  const control = headers['cache-control'] ?? '';
  if (/(^|[\s,])no-(store|cache)\b/i.test(control)) return MIN_FRESH_MS;
  const maxAge = /(^|[\s,])max-age="?(\d{1,10})/i.exec(control)?.[2];
  if (maxAge !== undefined) {
    const age = Number(/^\d{1,10}$/.exec(headers.age ?? '')?.[0] ?? 0);
    return clamp((Number(maxAge) - age) * SECOND);
  }
  const expires = Date.parse(headers.expires ?? '');
  const date = Date.parse(headers.date ?? '');
  return Number.isNaN(expires) ? MIN_FRESH_MS : clamp(expires - (Number.isNaN(date) ? now : date));
}
