import { toTimestamp } from '../../../core/http/schemas.js';
import type { BillingContext } from '../context.js';
import type { Projector } from '../entitlement.js';
import { isProviderError } from '../errors.js';
import type { PendingNotification } from '../notifications.js';
import { UNKNOWN_PLAN } from '../plans/plans.js';
import { asInteger, asObject, asText, idOf, type Json } from '../provider/json.js';
import type { PurchaseDocument, PurchasedItem } from '../purchases.js';
import { writeRevision } from '../store.js';
import type { PaymentRecorder } from './payments.js';
import { asCurrency } from './provider-objects.js';

/** Records the checkout sessions of one-time purchases. The result does not depend on the order of the events. */
export type PurchaseRecorder = ReturnType<typeof createPurchaseRecorder>;

/** What a session says about its purchase. */
type SessionDetails = Pick<PurchaseDocument, 'id' | 'status' | 'amount' | 'currency' | 'paymentId'>;

type Items = Pick<PurchaseDocument, 'items' | 'plan'>;

/** The more is known about a payment, the higher. */
const PROGRESS: Record<PurchaseDocument['status'], number> = { pending: 0, failed: 1, paid: 2 };

export function createPurchaseRecorder(
  { purchases, plans, gateway, clock, log }: BillingContext,
  { recorder, projector }: { recorder: PaymentRecorder; projector: Projector },
) {
  /** The items of a session, which its events do not contain. */
  const fetch = async (id: string): Promise<Items | 'missing' | 'unanswered'> => {
    if (!gateway) return 'missing';
    try {
      const items = await gateway.lineItems(id);
      return items === null ? 'missing' : readItems(items, undefined);
    } catch (err) {
      if (!isProviderError(err)) throw err;
      log.warn(
        { err, session: id },
        'the items of a purchase could not be fetched from the payment provider',
      );
      return 'unanswered';
    }
  };

  const readItems = (lines: readonly Json[], metadataPlan: string | undefined): Items => {
    const prices = lines.map(({ price, quantity }) => ({
      price: asObject(price),
      id: idOf(price),
      quantity,
    }));
    const found = prices
      .map(({ price, id }) => {
        const lookupKey = asText(price['lookup_key']);
        const plan = asText(asObject(price['metadata'])['plan']) ?? metadataPlan;
        return plans.planOfPurchase({
          ...(id !== undefined && { priceId: id }),
          ...(lookupKey !== undefined && { lookupKey }),
          ...(plan !== undefined && { metadataPlan: plan }),
        });
      })
      .find((plan) => plan !== UNKNOWN_PLAN);
    const items = prices.flatMap(({ id: priceId, quantity }): PurchasedItem[] =>
      priceId === undefined ? [] : [{ priceId, quantity: asInteger(quantity) ?? 1 }],
    );
    return { items, plan: found ?? metadataPlan ?? UNKNOWN_PLAN };
  };

  const itemsOf = async (session: Json, stored: PurchaseDocument | null) => {
    if (stored && stored.items.length > 0) return { items: stored.items, plan: stored.plan };
    const included = asObject(session['line_items'])['data'];
    const plan = asText(asObject(session['metadata'])['plan']);
    if (Array.isArray(included)) return readItems(included.map(asObject), plan);
    const fetched = await fetch(String(session['id']));
    if (typeof fetched !== 'string') return fetched;
    return { items: [], plan: plan ?? UNKNOWN_PLAN, ...(gateway && { recheckAt: clock.now() }) };
  };

  return {
    /**
     * Null if another event reported the payment, or if nothing was paid.
     * @param eventId the event that contains the session, or another name for the source of the session
     * @param type of the event; absent for a session that was fetched
     */
    async recordSession(
      session: Json,
      { userId, eventId, type, at }: { userId: string; eventId: string; type?: string; at: number },
    ): Promise<PendingNotification | null> {
      if (session['mode'] !== 'payment') return null;
      const details = readSession(session, type);
      for (;;) {
        const stored = await purchases.findOne({ id: details.id });
        const { recheckAt: _, ...kept } = stored ?? { createdAt: clock.now(), rev: 0, at };
        const isOlder = stored !== null && PROGRESS[stored.status] > PROGRESS[details.status];
        const isSame = stored?.status === details.status;
        const isPaid = (isOlder ? stored.status : details.status) === 'paid';
        const reporter = stored?.reportedBy ?? (isPaid ? eventId : undefined);
        const purchase: PurchaseDocument = {
          ...kept,
          ...details,
          ...(await itemsOf(session, stored)),
          userId: stored?.userId ?? userId,
          status: isOlder ? stored.status : details.status,
          at: isOlder ? stored.at : isSame ? Math.min(stored.at, at) : at,
          ...(reporter !== undefined && { reportedBy: reporter }),
          rev: kept.rev + 1,
        };
        if (!(await writeRevision(purchases, stored, purchase))) continue;
        if (isPaid) await recorder.recordPurchase(purchase, eventId);
        await projector.project(purchase.userId);
        return isPaid && reporter === eventId ? purchaseNotification(eventId, purchase) : null;
      }
    },

    /** Fetches the items of a purchase again. */
    async fetchItems(purchase: PurchaseDocument): Promise<'done' | 'missing' | 'unanswered'> {
      const fetched = await fetch(purchase.id);
      if (typeof fetched === 'string') return fetched;
      const { recheckAt: _, ...rest } = purchase;
      if (await writeRevision(purchases, purchase, { ...rest, ...fetched, rev: purchase.rev + 1 }))
        await projector.project(purchase.userId);
      return 'done';
    },
  };
}

/** A session, and the result of its payment. Methods such as bank transfers confirm after the session is completed. */
function readSession(session: Json, type: string | undefined): SessionDetails {
  const paymentStatus = session['payment_status'];
  const isPaid =
    type === 'checkout.session.async_payment_succeeded' ||
    paymentStatus === 'paid' ||
    paymentStatus === 'no_payment_required';
  const isFailed = type === 'checkout.session.async_payment_failed';
  const amount = asInteger(session['amount_total']);
  const currency = asCurrency(session['currency']);
  const id = String(session['id']);
  const paymentId = idOf(session['invoice']) ?? idOf(session['payment_intent']) ?? id;
  return {
    id,
    paymentId,
    status: isPaid ? 'paid' : isFailed ? 'failed' : 'pending',
    ...(amount !== undefined && { amount }),
    ...(currency !== undefined && { currency }),
  };
}

function purchaseNotification(
  eventId: string,
  { id: purchaseId, userId, plan, items, amount, currency, at }: PurchaseDocument,
): PendingNotification {
  const notification = {
    id: eventId,
    at: toTimestamp(at),
    userId,
    purchaseId,
    plan,
    items,
    ...(amount !== undefined && { amount }),
    ...(currency !== undefined && { currency }),
  };
  return (emit) => emit('purchase.completed', notification);
}
