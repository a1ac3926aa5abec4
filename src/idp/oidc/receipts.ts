import { CLOCK_SKEW_MS, type Clock, toSeconds } from '../../core/kernel/clock.js';
import { type AuditRecord, toAuditView } from '../../core/ops/audit.js';
import { auditIdsFrom } from '../../core/ops/audit-search.js';
import type { Collection } from '../../core/storage/collection.js';
import { pagesOf } from '../../core/storage/pages.js';
import { MAX_LIFETIME_WITHOUT_REFRESH_MS, REFRESH_MAX_LIFETIME_MS } from './grant-tokens.js';
import type { Keys } from './keys.js';
import { type Trace, traceIn } from './traces.js';

/** Receipts: what agents did with one authorization, signed with the keys of the provider. */

/** `typ` in the header of a receipt. */
export const RECEIPT_TYPE = 'receipt+jwt';

/** One audit record, without addresses and the names of operators. */
export interface Action extends Omit<Trace, 'txn'> {
  /** Of the record. */
  id: string;
  /** ISO 8601. */
  at: string;
  event: string;
}

export interface Receipt {
  iss: string;
  /** When it was written, in seconds. */
  iat: number;
  txn: string;
  count: number;
  /** Whether all records since the beginning were read. */
  complete: boolean;
  /** The oldest first. */
  actions: Action[];
}

/** A receipt and its signed form, a JWT. */
export type SignedReceipt = Receipt & { receipt: string };

export type Receipts = ReturnType<typeof createReceipts>;

/** Records that are read for one receipt, and those that it names at most. */
const MAX_SCANNED = 200_000;
const MAX_ACTIONS = 1000;

/** Everything that is issued from an authorization has ended after this time. */
const MAX_LIFETIME_MS = REFRESH_MAX_LIFETIME_MS + MAX_LIFETIME_WITHOUT_REFRESH_MS;

const TXN = /^gr_([0-9a-f]{12})[0-9a-f]{20}$/;

export function createReceipts({
  records,
  keys,
  issuer,
  clock,
}: {
  records: Pick<Collection<AuditRecord>, 'page'>;
  keys: Pick<Keys, 'sign'>;
  issuer(): string;
  clock: Clock;
}) {
  const read = async (txn: string, begun: number): Promise<{ actions: Action[]; isComplete: boolean }> => {
    const actions: Action[] = [];
    const until = begun + MAX_LIFETIME_MS + CLOCK_SKEW_MS;
    const where = { id: { gte: auditIdsFrom(begun - CLOCK_SKEW_MS), lt: auditIdsFrom(until) } };
    let scanned = 0;
    for await (const page of pagesOf(records, { where, sort: 'id' })) {
      for (const record of page) {
        const { txn: found, ...trace } = traceIn(record) ?? {};
        const { id, at, event } = toAuditView(record);
        if (found === txn) actions.push({ id, at, event, ...(trace as Omit<Trace, 'txn'>) });
      }
      scanned += page.length;
      if (scanned >= MAX_SCANNED || actions.length > MAX_ACTIONS)
        return { actions: actions.slice(0, MAX_ACTIONS), isComplete: false };
    }
    return { actions, isComplete: true };
  };

  return {
    /**
     * The receipt of a `txn`; `null` if nothing is known of it.
     * @param mayRead whether someone may have the receipt with these actions
     */
    async of(
      txn: string,
      mayRead: (actions: readonly Action[]) => boolean = () => true,
    ): Promise<SignedReceipt | null> {
      const [, begun] = TXN.exec(txn) ?? [];
      if (begun === undefined) return null;
      const { actions, isComplete: complete } = await read(txn, Number.parseInt(begun, 16));
      if (!actions.some(({ agent }) => agent !== undefined) || !mayRead(actions)) return null;
      const iat = toSeconds(clock.now());
      const receipt = { iss: issuer(), iat, txn, count: actions.length, complete, actions };
      return { ...receipt, receipt: await keys.sign(receipt, 'EdDSA', RECEIPT_TYPE) };
    },
  };
}
