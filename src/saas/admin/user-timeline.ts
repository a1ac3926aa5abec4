import { formatAmount } from '../../core/kernel/currencies.js';
import { toAuditView } from '../../core/ops/audit.js';
import { withNames } from '../../shared/console-kit/audit.js';
import type { TimelineEntry } from '../../shared/console-kit/details.js';
import { sentenceCase } from '../../shared/console-kit/marks.js';
import { entryOf } from '../../shared/console-kit/timeline.js';
import type { MailSummary } from '../../shared/email/service.js';
import type { PaymentRecord } from '../billing/records.js';
import type { AdminServices } from './services.js';
import { firstOf } from './user-sections.js';

/** Entries on the page of a user. */
const SHOWN = 15;

/** Everything that happened to a user, the newest first: records of the audit, payments and mails. */
export async function readTimeline(
  { audit, billing, email, nameOf }: AdminServices,
  userId: string,
): Promise<TimelineEntry[]> {
  const [records, payments, sent] = await Promise.all([
    firstOf(audit.listOf(userId), SHOWN),
    billing.records.payments({ ownerId: userId, limit: SHOWN, after: undefined }),
    firstOf(email.service.listByUser(userId), SHOWN),
  ]);
  const named = await withNames(records.map(toAuditView), nameOf);
  return [...named.map(entryOf), ...payments.items.map(ofPayment), ...sent.map(ofMail)]
    .sort((one, other) => other.at.localeCompare(one.at))
    .slice(0, SHOWN);
}

function ofPayment({ id, at, status, amount, currency, refundedAmount }: PaymentRecord): TimelineEntry {
  const write = (value: number | null) =>
    value === null || currency === null ? 'an unknown amount' : formatAmount(value, currency);
  const outcome = status === 'paid' ? 'succeeded' : status;
  const refund = refundedAmount > 0 ? ` · refunded ${write(refundedAmount)}` : '';
  return {
    at,
    text: `Payment of ${write(amount)} ${outcome}`,
    detail: id + refund,
    tone: status === 'paid' ? 'good' : 'bad',
  };
}

function ofMail({ template, to, status, createdAt, endedAt }: MailSummary): TimelineEntry {
  const isLost = status === 'failed' || status === 'expired';
  return {
    at: endedAt ?? createdAt,
    text: `E-mail “${sentenceCase(template)}” ${status}`,
    detail: to,
    ...(isLost && { tone: 'bad' as const }),
  };
}
