import { type Clock, toSeconds } from '../../core/kernel/clock.js';
import { type AuditRecord, toAuditView } from '../../core/ops/audit.js';
import type { Collection } from '../../core/storage/collection.js';
import type { Keys } from './keys.js';
import type { Trace } from './traces.js';

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
  /** False if there are more records than it names. */
  complete: boolean;
  /** The oldest first. */
  actions: Action[];
}

/** A receipt and its signed form, a JWT. */
export type SignedReceipt = Receipt & { receipt: string };

export type Receipts = ReturnType<typeof createReceipts>;

/** The records that one receipt names. */
const MAX_ACTIONS = 1000;

const TXN = /^gr_[0-9a-f]{32}$/;

/** What a record of an authorization says. */
function actionOf(record: AuditRecord): Action {
  const { id, at, event, detail } = toAuditView(record);
  const { txn: _, ...trace } = JSON.parse(detail ?? '{}') as Trace;
  return { id, at, event, ...trace };
}

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
  return {
    /**
     * The receipt of a `txn`; `null` if nothing is known of it.
     * @param mayRead whether someone may have the receipt with these actions
     */
    async of(
      txn: string,
      mayRead: (actions: readonly Action[]) => boolean = () => true,
    ): Promise<SignedReceipt | null> {
      if (!TXN.test(txn)) return null;
      const { items, next } = await records.page({ where: { txn }, sort: 'id', limit: MAX_ACTIONS });
      const actions = items.map(actionOf);
      if (!actions.some(({ agent }) => agent !== undefined) || !mayRead(actions)) return null;
      const iat = toSeconds(clock.now());
      const receipt = { iss: issuer(), iat, txn, count: actions.length, complete: next === null, actions };
      return { ...receipt, receipt: await keys.sign(receipt, 'EdDSA', RECEIPT_TYPE) };
    },
  };
}
