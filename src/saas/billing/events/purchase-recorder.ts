import { toTimestamp } from '../../../core/http/schemas.js';
import { defined } from '../../../core/kernel/fields.js';
import type { BillingContext } from '../context.js';
import { isProviderError } from '../errors.js';
import type { BillingEvents } from '../notifications.js';
import { referenceTo } from '../owners.js';
import { UNKNOWN_PLAN } from '../plans/plans.js';
import type { Projector } from '../projection.js';
import { asFlag, asInteger, asObject, asText, idOf, type Json } from '../provider/json.js';
import type { PurchaseDocument, PurchasedItem } from '../purchases.js';
import type { Quotas } from '../quotas/service.js';
import { writingRevision } from '../store.js';
import type { PaymentRecorder, RecordedPayment } from './payments.js';
import { asCurrency, type PaymentEvent } from './provider-objects.js';

/** Records the checkout sessions of one-time purchases. The result does not depend on the order of the events. */
export type PurchaseRecorder = ReturnType<typeof createPurchaseRecorder>;

type Items = Pick<PurchaseDocument, 'items' | 'plan'>;

export interface SessionSource {
  ownerId: string;
  eventId: string;
  type?: string;
  at: number;
  beforeCall?: PaymentEvent['beforeCall'] | undefined;
}

/** The more is known about a payment, the higher. */
const PROGRESS: Record<PurchaseDocument['status'], number> = { pending: 0, failed: 1, paid: 2 };

export function createPurchaseRecorder(
  { purchases, plans, event, commitForOwner, gateway, clock, log }: BillingContext,
  { recorder, projector, quotas }: { recorder: PaymentRecorder; projector: Projector; quotas: Quotas },
) {
  /** The items of a session, which its events do not contain. */
  const fetch = async (id: string): Promise<Items | 'missing' | 'unanswered'> => {
    if (!gateway) return 'missing';
    try {
      const items = await gateway.lineItems(id);
      return items === null ? 'missing' : readItems(items);
    } catch (err) {
      if (!isProviderError(err)) throw err;
      log.warn(
        { err, session: id },
        'the items of a purchase could not be fetched from the payment provider',
      );
      return 'unanswered';
    }
  };

  const readItems = (lines: readonly Json[], metadataPlan?: string): Items => {
    const named = lines.map(({ price }) => {
      const { lookup_key, metadata } = asObject(price);
      const priceId = idOf(price);
      const lookupKey = asText(lookup_key);
      plans.learn(priceId, lookupKey);
      const plan = asText(asObject(metadata)['plan']) ?? metadataPlan;
      return plans.planOfPurchase(defined({ priceId, lookupKey, metadataPlan: plan }));
    });
    const items = lines.flatMap(({ price, quantity }): PurchasedItem[] => {
      const priceId = idOf(price);
      return priceId === undefined ? [] : [{ priceId, quantity: asInteger(quantity) ?? 1 }];
    });
    return { items, plan: named.find((plan) => plan !== UNKNOWN_PLAN) ?? metadataPlan ?? UNKNOWN_PLAN };
  };

  const itemsOf = async (
    session: Json,
    stored: PurchaseDocument | null,
    beforeCall: SessionSource['beforeCall'],
  ) => {
    if (stored && stored.items.length > 0) return { items: stored.items, plan: stored.plan };
    const { data: included, has_more: hasMore } = asObject(session['line_items']);
    const plan = asText(asObject(session['metadata'])['plan']);
    if (Array.isArray(included) && hasMore !== true) return readItems(included.map(asObject), plan);
    if (gateway) await beforeCall?.();
    const fetched = await fetch(String(session['id']));
    if (typeof fetched !== 'string') return fetched;
    return { items: [], plan: plan ?? UNKNOWN_PLAN, ...(gateway && { recheckAt: clock.now() }) };
  };

  /**
   * What a checkout of a subscription has sold once, and for how much; undefined if nothing.
   * @throws PAYMENT_PROVIDER_ERROR, after which the event is processed again
   */
  const itemsBeside = async (
    session: Json,
    stored: PurchaseDocument | null,
    beforeCall: SessionSource['beforeCall'],
  ): Promise<Pick<PurchaseDocument, 'items' | 'plan' | 'amount'> | undefined> => {
    if (stored) return defined({ items: stored.items, plan: stored.plan, amount: stored.amount });
    if (!gateway) return undefined;
    await beforeCall?.();
    const lines = (await gateway.lineItems(String(session['id']))) ?? [];
    const once = lines.filter(({ price }) => asObject(price)['recurring'] == null);
    if (once.length === 0) return undefined;
    const amount = once.reduce((sum, line) => sum + (asInteger(line['amount_total']) ?? 0), 0);
    return { ...readItems(once), amount };
  };

  /** The credits of a paid purchase. */
  const crediting = ({ id, ownerId, plan, items }: PurchaseDocument) => {
    const { credits = {} } = plans.configOf(plan) ?? {};
    const count = items[0]?.quantity ?? 1;
    const bought = Object.entries(credits).map(([name, quantity]) => [name, quantity * count]);
    return quotas.crediting(ownerId, Object.fromEntries(bought), id);
  };

  return {
    /**
     * Null unless the session is a one-time purchase, or has sold something once beside a subscription.
     * @param eventId the event that contains the session, or another name for the source of the session
     * @param type of the event; absent for a session that was fetched
     * @param beforeCall called before a call to the provider
     */
    async record(
      session: Json,
      { ownerId, eventId, type, at, beforeCall }: SessionSource,
    ): Promise<RecordedPayment | null> {
      const isSubscription = session['mode'] === 'subscription';
      if (session['mode'] !== 'payment' && !(isSubscription && plans.hasPurchases)) return null;
      const stored = await purchases.findOne({ id: String(session['id']) });
      const beside = isSubscription ? await itemsBeside(session, stored, beforeCall) : undefined;
      if (isSubscription && !beside) return null;
      const details = readSession(session, type);
      const { recheckAt: _, ...kept } = stored ?? { createdAt: clock.now(), rev: 0, at };
      const isOlder = stored !== null && PROGRESS[stored.status] > PROGRESS[details.status];
      const isSame = stored?.status === details.status;
      const purchase: PurchaseDocument = {
        ...kept,
        ...details,
        ...(beside ?? (await itemsOf(session, stored, beforeCall))),
        ownerId: stored?.ownerId ?? ownerId,
        status: isOlder ? stored.status : details.status,
        at: isOlder ? stored.at : isSame ? Math.min(stored.at, at) : at,
        rev: kept.rev + 1,
      };
      const isPaid = purchase.status === 'paid';
      const isFirst = isPaid && stored?.status !== 'paid';
      // The events of its invoice record the payment of a subscription, with what was bought beside it.
      const paid = isPaid && !isSubscription ? await recorder.recordPurchase(purchase, eventId) : null;
      return {
        parts: [
          writingRevision(purchases, stored, purchase),
          paid?.write,
          isFirst ? await event('purchase.completed', purchaseNotification(eventId, purchase)) : undefined,
          ...(isFirst ? await crediting(purchase) : []),
        ],
        isFirst,
        held: { purchase, payment: paid?.payment },
      };
    },

    /** Fetches the items of a purchase again. */
    async fetchItems({ id, ownerId }: PurchaseDocument): Promise<'done' | 'missing' | 'unanswered'> {
      const fetched = await fetch(id);
      if (typeof fetched === 'string') return fetched;
      await commitForOwner(ownerId, async (user) => {
        const stored = await purchases.findOne({ id });
        if (!stored) return null;
        const { recheckAt: _, ...rest } = stored;
        const purchase = { ...rest, ...fetched, rev: stored.rev + 1 };
        const projection = await projector.projecting(user, { purchase });
        return [writingRevision(purchases, stored, purchase), ...projection];
      });
      return 'done';
    },
  };
}

/** A session, and the result of its payment. Methods such as bank transfers confirm after the session is completed. */
function readSession(session: Json, type: string | undefined) {
  const paymentStatus = session['payment_status'];
  const isPaid =
    type === 'checkout.session.async_payment_succeeded' ||
    paymentStatus === 'paid' ||
    paymentStatus === 'no_payment_required';
  const isFailed = type === 'checkout.session.async_payment_failed';
  const status: PurchaseDocument['status'] = isPaid ? 'paid' : isFailed ? 'failed' : 'pending';
  const id = String(session['id']);
  return defined({
    id,
    paymentId: idOf(session['invoice']) ?? idOf(session['payment_intent']) ?? id,
    status,
    amount: asInteger(session['amount_total']),
    currency: asCurrency(session['currency']),
    livemode: asFlag(session['livemode']),
  });
}

const purchaseNotification = (
  eventId: string,
  { id: purchaseId, ownerId, plan, items, amount, currency, at }: PurchaseDocument,
): BillingEvents['purchase.completed'] => ({
  id: eventId,
  at: toTimestamp(at),
  ...referenceTo(ownerId),
  purchaseId,
  plan,
  items,
  ...defined({ amount, currency }),
});
