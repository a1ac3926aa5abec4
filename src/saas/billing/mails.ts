import { type Catalogue, longDate } from '../../core/http/messages.js';
import { DAY } from '../../core/kernel/clock.js';
import { formatAmount } from '../../core/kernel/currencies.js';
import type { Mail } from '../../shared/email/outbox.js';
import type { BillingContext } from './context.js';
import { isProviderError } from './errors.js';
import { type PaymentEvent, readInvoice } from './events/provider-objects.js';
import { BILLING_MAILS, type BillingMail } from './notifications.js';
import type { BillingOwner } from './owners.js';
import { UNKNOWN_PLAN } from './plans/plans.js';
import { type Card, readCard } from './provider/cards.js';
import { asInteger, asLink, asList, asObject, asText, asTime, idOf, type Json } from './provider/json.js';
import type { SubscriptionDocument } from './store.js';

/** The e-mails about payments. Each is sent for an event of the provider, in the commit of the event. */

/** How long after the event a mail is still sent. */
const MAIL_LIFETIME_MS = 3 * DAY;

/** The shortest period whose renewal is announced; users expect a charge every month. */
const ANNOUNCED_PERIOD_MS = 360 * DAY;

/** A mail without what all of them have. Its key identifies the fact instead of the event, so that several events of one fact queue one mail. */
type MailContent = Pick<Mail, 'key' | 'values'> & { template: BillingMail };

export function createBillingMails(context: BillingContext) {
  const { plans, outbox, returnUrl, config, gateway, clock, log } = context;
  const enabled: ReadonlySet<BillingMail> = new Set(config.billingMails ?? BILLING_MAILS);

  /** The card that pays a renewal, if it expires before. Its event does not contain it. */
  const expiringCard = async (event: PaymentEvent): Promise<MailContent | undefined> => {
    const { type, object, subscriptionId } = event;
    if (type !== 'invoice.upcoming' || !gateway || subscriptionId === undefined) return undefined;
    if (!enabled.has('card-expiring') || !isCharged(object)) return undefined;
    await event.beforeCall?.();
    try {
      const card = await gateway.cardOf(subscriptionId);
      return card && card.expiresAt <= chargeTime(event) ? cardMail(card) : undefined;
    } catch (err) {
      if (!isProviderError(err)) throw err;
      log.warn(
        { err, subscription: subscriptionId },
        'the card of a subscription could not be fetched: no e-mail says whether it expires',
      );
      return undefined;
    }
  };

  return {
    /** What is to be sent for an event; empty for most. @param subscription as it is stored */
    async contentsFor(
      event: PaymentEvent,
      subscription: SubscriptionDocument | undefined,
    ): Promise<MailContent[]> {
      const isEnding = event.type === 'invoice.upcoming' && subscription && !continues(subscription, event);
      if (isEnding) return [];
      const contents = [eventMail(event), await expiringCard(event)];
      return contents.flatMap((content) => (content && enabled.has(content.template) ? [content] : []));
    },

    /** A mail for the commit of its event. @param subject what was bought, if it is known */
    mail(
      { values, ...content }: MailContent,
      { created = clock.now() }: PaymentEvent,
      user: BillingOwner,
      subject: { plan: string } | undefined,
    ) {
      const plan = subject?.plan === UNKNOWN_PLAN ? undefined : subject?.plan;
      return outbox.mail({
        ...content,
        userId: user.id,
        to: user.email,
        locale: user.locale,
        values: {
          ...values,
          email: user.email,
          link: returnUrl(user.id),
          ...(plan !== undefined && content.template !== 'card-expiring' && { plan: plans.nameOf(plan) }),
          // As in mails about accounts: a stranger may have registered the address with an advertisement as the name.
          ...(user.name !== '' && user.emailVerified && { name: user.name }),
        },
        security: false,
        expiresAt: created + MAIL_LIFETIME_MS,
      });
    },
  };
}

/** What an event announces itself. Undefined for all others, such as `customer.subscription.updated`. */
function eventMail(event: PaymentEvent): MailContent | undefined {
  const { type, objectId, object } = event;
  switch (type) {
    case 'invoice.paid':
    case 'invoice.payment_succeeded': {
      const { id, amount = 0, currency } = readInvoice(event);
      return amount > 0 ? receipt(id, event, { amount, currency }) : undefined;
    }
    case 'checkout.session.completed':
    case 'checkout.session.async_payment_succeeded':
      return purchaseReceipt(event);
    case 'invoice.upcoming':
      return renewalMail(event);
    case 'invoice.payment_action_required':
      return paymentActionMail(event);
    case 'invoice.payment_failed':
      return paymentFailedMail(event);
    case 'customer.source.expiring': {
      const card = readCard(object);
      return card && cardMail(card);
    }
    case 'customer.subscription.deleted':
      return { key: `subscription-canceled:${objectId}`, template: 'subscription-canceled', values: {} };
    case 'customer.subscription.trial_will_end': {
      const end = asTime(object['trial_end']);
      // The mail announces a charge, but a subscription that ends with its trial is not charged.
      if (end === undefined || endsBy(object, end)) return undefined;
      const values = { endsOn: longDate(end) };
      return { key: `trial-ending:${objectId}:${end}`, template: 'trial-ending', values };
    }
    default:
      return undefined;
  }
}

const amountValue = (amount: number | undefined, currency: string | undefined) =>
  amount !== undefined && currency !== undefined
    ? { amount: ({ locale }: Catalogue) => formatAmount(amount, currency, locale) }
    : {};

/** The amount of an invoice, and its page at the provider, where it can be read, paid and confirmed. */
function invoiceValues(
  { object }: PaymentEvent,
  { amount, currency }: { amount?: number | undefined; currency?: string | undefined },
) {
  const invoiceLink = asLink(object['hosted_invoice_url']);
  return { ...amountValue(amount, currency), ...(invoiceLink !== null && { invoiceLink }) };
}

const receipt = (
  paymentId: string,
  event: PaymentEvent,
  paid: Parameters<typeof invoiceValues>[1],
): MailContent => ({
  key: `receipt:${paymentId}`,
  template: 'receipt',
  values: {
    ...invoiceValues(event, paid),
    ...(event.created !== undefined && { paidOn: longDate(event.created) }),
  },
});

/** For a purchase without an invoice, whose own event has the link. */
function purchaseReceipt(event: PaymentEvent): MailContent | undefined {
  const { type, objectId, object } = event;
  const isPaid = type === 'checkout.session.async_payment_succeeded' || object['payment_status'] === 'paid';
  const amount = asInteger(object['amount_total']) ?? 0;
  const hasInvoice = idOf(object['invoice']) !== undefined;
  if (object['mode'] !== 'payment' || !isPaid || amount === 0 || hasInvoice) return undefined;
  const paid = { amount, currency: asText(object['currency']) };
  return receipt(idOf(object['payment_intent']) ?? objectId, event, paid);
}

/** Whether the provider collects an invoice itself, with an amount. */
const isCharged = (invoice: Json): boolean =>
  (asInteger(invoice['amount_due']) ?? 0) > 0 && invoice['collection_method'] !== 'send_invoice';

/** When the provider charges an upcoming invoice. */
const chargeTime = ({ object, created = 0 }: PaymentEvent): number =>
  asTime(object['next_payment_attempt']) ?? asTime(object['period_end']) ?? created;

/** Whether a subscription renews: a trial has a mail of its own, and what ends is not charged. */
const continues = (subscription: SubscriptionDocument, event: PaymentEvent): boolean =>
  subscription.status !== 'trialing' &&
  !subscription.cancelAtPeriodEnd &&
  (subscription.cancelAt === undefined || subscription.cancelAt > chargeTime(event));

function renewalMail(event: PaymentEvent): MailContent | undefined {
  const { object, subscriptionId, objectId } = event;
  const periods = asList(asObject(object['lines'])['data']).map(({ period }) => asObject(period));
  const isLong = ({ start, end }: Json) => (asTime(end) ?? 0) - (asTime(start) ?? 0) >= ANNOUNCED_PERIOD_MS;
  if (!isCharged(object) || !periods.some(isLong)) return undefined;
  const at = chargeTime(event);
  const amount = amountValue(asInteger(object['amount_due']), asText(object['currency']));
  const key = `renewal:${subscriptionId ?? objectId}:${asTime(object['period_end']) ?? at}`;
  return { key, template: 'renewal', values: { ...amount, renewsOn: longDate(at) } };
}

/** A buyer who is still on the payment page confirms there. */
function paymentActionMail(event: PaymentEvent): MailContent | undefined {
  const invoice = readInvoice(event);
  const { id, attempt } = invoice;
  if (event.object['billing_reason'] === 'subscription_create') return undefined;
  // The provider reports the same attempt as failed, too: one mail for both.
  const key = attempt > 1 ? `payment-action:${id}` : `payment-failed:${id}:first`;
  return { key, template: 'payment-action', values: invoiceValues(event, invoice) };
}

/** Only the first and the last failed attempt queue a mail. */
function paymentFailedMail(event: PaymentEvent): MailContent | undefined {
  const invoice = readInvoice(event);
  const { id, attempt, isLastAttempt } = invoice;
  if (attempt > 1 && !isLastAttempt) return undefined;
  const key = `payment-failed:${id}:${attempt > 1 ? 'last' : 'first'}`;
  return { key, template: 'payment-failed', values: invoiceValues(event, invoice) };
}

function cardMail({ id, last4, expiresAt }: Card): MailContent {
  const values = { card: last4, validUntil: longDate(expiresAt - DAY) };
  return { key: `card-expiring:${id}:${expiresAt}`, template: 'card-expiring', values };
}

/** Whether a subscription is cancelled with effect by `end`. */
function endsBy({ cancel_at_period_end: isCancelled, cancel_at: time }: Json, end: number): boolean {
  const cancelAt = asTime(time);
  return isCancelled === true || (cancelAt !== undefined && cancelAt <= end);
}
