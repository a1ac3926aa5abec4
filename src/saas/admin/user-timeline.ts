import { writeAmount } from '../../core/kernel/currencies.js';
import { toAuditView } from '../../core/ops/audit.js';
import { type NamedRecord, withNames, writeDetail, writeNamedActor } from '../../shared/console-kit/audit.js';
import type { TimelineEntry } from '../../shared/console-kit/details.js';
import { sentenceCase } from '../../shared/console-kit/marks.js';
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
  return [...named.map(ofRecord), ...payments.items.map(ofPayment), ...sent.map(ofMail)]
    .sort((one, other) => other.at.localeCompare(one.at))
    .slice(0, SHOWN);
}

/** The events that a name does not explain. */
const SENTENCES: Record<string, readonly [text: string, tone?: TimelineEntry['tone']]> = {
  'user.registered': ['Signed up', 'good'],
  'user.created': ['Account created', 'good'],
  'login.succeeded': ['Signed in'],
  'login.failed': ['Sign-in failed', 'warn'],
  'login.code-refused': ['Wrong code for a sign-in', 'warn'],
  'factor.failed': ['Second factor failed', 'warn'],
  'refresh.reused': ['Refresh token used twice: session ended', 'bad'],
  'session.revoked': ['Session ended'],
  logout: ['Signed out'],
  'user.suspended': ['Suspended', 'bad'],
  'user.unsuspended': ['Suspension lifted', 'good'],
  'payment.refunded': ['Refund by an operator', 'warn'],
  'subscription.changed': ['Subscription changed'],
  'subscription.canceled': ['Subscription canceled', 'warn'],
  'subscription.resumed': ['Subscription continued', 'good'],
  'user.noted': ['Note edited'],
  'plan.granted': ['Plan granted', 'good'],
  'plan.revoked': ['Granted plan withdrawn', 'warn'],
  'impersonation.started': ['An operator signed in as this user', 'warn'],
};

function ofRecord(record: NamedRecord): TimelineEntry {
  const { at, event, ip, detail, count } = record;
  const [text = sentenceCase(event.replaceAll('-', ' ')), tone] = SENTENCES[event] ?? [];
  const by = writeNamedActor(record);
  const parts = [by === null ? null : `by ${by}`, writeDetail(detail), ip].filter((part) => part !== null);
  return {
    at,
    text: count === null ? text : `${text} (${count} times)`,
    detail: parts.join(' · ') || null,
    ...(tone && { tone }),
  };
}

function ofPayment({ id, at, status, amount, currency, refundedAmount }: PaymentRecord): TimelineEntry {
  const what = `Payment of ${writeAmount(amount, currency) ?? 'an unknown amount'}`;
  const outcome = status === 'paid' ? 'succeeded' : status;
  const refund = refundedAmount > 0 ? ` · refunded ${writeAmount(refundedAmount, currency)}` : '';
  return { at, text: `${what} ${outcome}`, detail: id + refund, tone: status === 'paid' ? 'good' : 'bad' };
}

function ofMail({ template, to, status, createdAt, endedAt }: MailSummary): TimelineEntry {
  const isLost = status === 'failed' || status === 'expired';
  return {
    at: endedAt ?? createdAt,
    text: `E-mail “${sentenceCase(template.replaceAll('-', ' '))}” ${status}`,
    detail: to,
    ...(isLost && { tone: 'bad' as const }),
  };
}
