import type { Clock } from '../kernel/clock.js';
import type { BillingEvent } from './event.js';
import { type Invoice, readInvoice } from './notices.js';
import { UNKNOWN_PLAN } from './plans.js';
import { type Json, timeIn } from './snapshot.js';
import type { SubscriptionDocument } from './store.js';

/** A mail of ours, as the outbox takes it. */
export interface BillingMail {
  key: string;
  /** Whose purchases it is about. */
  userId: string;
  to: string;
  template: 'payment-failed' | 'subscription-canceled' | 'trial-ending';
  values: Record<string, string>;
  security: false;
  expiresAt: number;
}

/**
 * Puts the mail that an event asks for. It is keyed by what it tells of and not by the event, so that one fact is one
 * mail, however often and under whatever names the provider repeats it.
 */
export type MailFor = (
  event: BillingEvent,
  userId: string,
  subscription: SubscriptionDocument | undefined,
) => Promise<void>;

export interface MailDependencies {
  findUser(id: string): Promise<{ email: string; name: string } | null>;
  putMail(mail: BillingMail): Promise<void>;
  /** Where people manage what they bought. */
  billingUrl(): string;
  clock: Clock;
}

/** Later than so many milliseconds after the fact, nobody is told of it by mail any more. */
const WORTH_TELLING = 3 * 24 * 60 * 60 * 1000;

export function createMailFor({ findUser, putMail, billingUrl, clock }: MailDependencies): MailFor {
  return async (event, userId, subscription) => {
    const mail = mailOf(event);
    if (!mail) return;
    const user = await findUser(userId);
    if (!user) return;
    const plan = subscription?.plan === UNKNOWN_PLAN ? undefined : subscription?.plan;
    await putMail({
      ...mail,
      userId,
      to: user.email,
      values: {
        ...mail.values,
        email: user.email,
        link: billingUrl(),
        ...(plan !== undefined && { plan }),
        ...(user.name !== '' && { name: user.name }),
      },
      security: false,
      expiresAt: (event.created ?? clock.now()) + WORTH_TELLING,
    });
  };
}

function mailOf(event: BillingEvent): Pick<BillingMail, 'key' | 'template' | 'values'> | null {
  switch (event.type) {
    case 'invoice.payment_failed':
      return mailOfFailure(readInvoice(event));
    case 'customer.subscription.deleted':
      return {
        key: `subscription-canceled:${event.objectId}`,
        template: 'subscription-canceled',
        values: {},
      };
    case 'customer.subscription.trial_will_end': {
      const end = timeIn(event.object['trial_end']);
      // Who has cancelled must not read that they will be charged.
      if (end === undefined || endsBy(event.object, end)) return null;
      const values = { endsOn: new Intl.DateTimeFormat('en-GB', LONG_DATE).format(end) };
      return { key: `trial-ending:${event.objectId}:${end}`, template: 'trial-ending', values };
    }
    default:
      return null;
  }
}

/** Whether a subscription is to end with its trial. */
function endsBy({ cancel_at_period_end: isCancelled, cancel_at: time }: Json, end: number): boolean {
  const cancelAt = timeIn(time);
  return isCancelled === true || (cancelAt !== undefined && cancelAt <= end);
}

const LONG_DATE = { dateStyle: 'long', timeZone: 'UTC' } as const;

/** People hear of the first attempt that failed and of the last, and not of those in between. */
function mailOfFailure({ id, attempt, isLastAttempt, amount, currency }: Invoice) {
  if (attempt > 1 && !isLastAttempt) return null;
  const key = `payment-failed:${id}:${attempt > 1 ? 'last' : 'first'}`;
  const isKnown = amount !== undefined && currency !== undefined;
  const values: Record<string, string> = isKnown ? { amount: inWords(amount, currency) } : {};
  return { key, template: 'payment-failed' as const, values };
}

/** @param amount in the currency's smallest unit, as the provider has it, which is not always what Unicode says */
export function inWords(amount: number, currency: string): string {
  const code = currency.toUpperCase();
  const digits = WITHOUT_DECIMALS.has(code) ? 0 : WITH_THREE_DECIMALS.has(code) ? 3 : 2;
  const format = { style: 'currency', currency: code, minimumFractionDigits: digits } as const;
  return new Intl.NumberFormat('en', { ...format, maximumFractionDigits: digits }).format(
    amount / 10 ** digits,
  );
}

/** https://docs.stripe.com/currencies#minor-units */
const WITHOUT_DECIMALS = new Set('BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF'.split(' '));
const WITH_THREE_DECIMALS = new Set('BHD JOD KWD OMR TND'.split(' '));
