import { type NamedRecord, writeNamedActor, writeNamedDetail } from './audit.js';
import type { TimelineEntry } from './details.js';
import { sentenceCase } from './marks.js';

/** Records of the audit as entries of a timeline. */

/** The events that a name does not explain. */
const SENTENCES: Record<string, readonly [text: string, tone?: TimelineEntry['tone']]> = {
  'user.registered': ['Signed up', 'good'],
  'user.created': ['Account created', 'good'],
  'account.registered': ['Signed up', 'good'],
  'login.succeeded': ['Signed in'],
  'login.continued': ['Signed in without a form'],
  'login.failed': ['Sign-in failed', 'warn'],
  'login.code-refused': ['Wrong code for a sign-in', 'warn'],
  'factor.failed': ['Second factor failed', 'warn'],
  'refresh.reused': ['Refresh token used twice: session ended', 'bad'],
  'session.revoked': ['Session ended'],
  'session.ended': ['Session ended'],
  'sessions.ended': ['All sessions ended'],
  logout: ['Signed out'],
  'user.suspended': ['Suspended', 'bad'],
  'user.unsuspended': ['Suspension lifted', 'good'],
  'principal.disabled': ['Disabled', 'bad'],
  'principal.enabled': ['Enabled', 'good'],
  'agent.minted': ['Created', 'good'],
  'agent.rotated': ['Password rotated'],
  'agent.stopped': ['Stopped', 'bad'],
  'email.verified': ['E-mail address confirmed', 'good'],
  'payment.refunded': ['Refund by an operator', 'warn'],
  'subscription.changed': ['Subscription changed'],
  'subscription.canceled': ['Subscription canceled', 'warn'],
  'subscription.resumed': ['Subscription continued', 'good'],
  'user.noted': ['Note edited'],
  'plan.granted': ['Plan granted', 'good'],
  'plan.revoked': ['Granted plan withdrawn', 'warn'],
  'operator.granted': ['Made an operator', 'warn'],
  'operator.revoked': ['No longer an operator'],
  'impersonation.started': ['An operator signed in as this user', 'warn'],
};

export function entryOf(record: NamedRecord): TimelineEntry {
  const { at, event, ip, count } = record;
  const [text = sentenceCase(event), tone] = SENTENCES[event] ?? [];
  const by = writeNamedActor(record);
  const parts = [by === null ? null : `by ${by}`, writeNamedDetail(record), ip].filter(
    (part) => part !== null,
  );
  return {
    at,
    text: count === null ? text : `${text} (${count} times)`,
    detail: parts.join(' · ') || null,
    ...(tone && { tone }),
  };
}
