import { HOUR } from '../../../core/kernel/clock.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import type { BillingContext } from '../context.js';
import { billingErrors, isPriceNotAllowed } from '../errors.js';
import {
  type Checkout,
  type CheckoutSessions,
  type OpenSession,
  type PaymentPage,
  pageOf,
} from '../provider/checkout-sessions.js';
import { asObject, type Json } from '../provider/json.js';
import { malformed } from '../provider/responses.js';
import type { CheckoutDocument } from '../store.js';

/** A session that a user can pay. */
export interface OpenedCheckout extends PaymentPage {
  /** At the payment provider. */
  sessionId: string;
}

export interface CheckoutSubject {
  ownerId: string;
  /** Identifies what is bought: `subscription`, `payment:price_…`, … */
  name: string;
  /** Called with the previous session if it was paid. Throws if nothing else may be bought. */
  onPaid?(session: Json): Promise<void>;
}

/** The ID of the stored checkout. */
export const checkoutIdOf = ({ ownerId, name }: Pick<CheckoutSubject, 'ownerId' | 'name'>): string =>
  `${ownerId}:${name}`;

/** Users get a session only if they have this time left to pay. */
const MIN_REMAINING_MS = HOUR;

/** Longer than the 24 hours after which the provider expires a session and forgets an idempotency key. */
const RETENTION_MS = 25 * HOUR;

/** Each attempt fails only if another process has changed the reservation in the meantime. */
const MAX_ATTEMPTS = 10;

/**
 * Keeps at most one checkout session open for each subject: the plans of which a user has one, a price that is bought
 * once, or the payment method. Any number of processes may open sessions at the same time.
 *
 * A process first reserves the subject in the store, then opens the session with the idempotency key of the reservation,
 * and stores its ID before the user gets its address. Processes with the same order share the reservation and therefore
 * the session. A session whose reservation was replaced never reaches a user.
 */
export function createOpenCheckouts(context: BillingContext) {
  const { checkouts, owners, tryCommit, requireGateway, clock, random } = context;
  const isUsable = (expiresAt = Number.POSITIVE_INFINITY) => expiresAt > clock.now() + MIN_REMAINING_MS;

  /** Reserves the subject for an order; null if another process came first or has stored a session. */
  const reserve = async (
    known: CheckoutDocument | null,
    subject: Pick<CheckoutDocument, 'id' | 'ownerId'>,
    fingerprint: string,
  ): Promise<CheckoutDocument | null> => {
    const key = newId('checkout_', clock, random);
    const set = { fingerprint, key, expiresAt: clock.now() + RETENTION_MS };
    if (known) {
      // A session that was stored since the reservation was read may have reached a user, and must be expired first.
      const unchanged = { id: known.id, key: known.key, sessionId: known.sessionId ?? null };
      return checkouts.updateOne(unchanged, { set, unset: ['sessionId'] });
    }
    const reservation = { ...subject, ...set };
    const isReserved = await tryCommit([
      checkouts.inserting(reservation),
      owners.locking({ id: subject.ownerId }),
    ]);
    return isReserved ? reservation : null;
  };

  /** The page of the stored session if it is still open for the same order; otherwise the session is ended. */
  const reuseOrEnd = async (
    { sessionId, fingerprint, expiresAt }: CheckoutDocument & { sessionId: string },
    wanted: string,
    subject: CheckoutSubject,
  ): Promise<PaymentPage | null> => {
    const isWanted = fingerprint === wanted && isUsable(expiresAt);
    const session = isWanted
      ? await requireGateway().checkoutSession(sessionId)
      : await requireGateway().expireCheckout(sessionId);
    if (session?.['status'] === 'complete') await subject.onPaid?.(session);
    if (isWanted && asObject(session?.['customer'])['deleted'] === true)
      throw billingErrors.CUSTOMER_NOT_FOUND();
    return isWanted && session?.['status'] === 'open' ? pageOf(session) : null;
  };

  /** Stores the session of a reservation; null if the reservation was replaced. */
  const record = async ({ id, key }: CheckoutDocument, session: OpenSession) =>
    checkouts.updateOne(
      { id, key },
      { set: { sessionId: session.id, expiresAt: session.expiresAt ?? clock.now() + RETENTION_MS } },
    );

  return {
    /**
     * The open session for the same order, or a new one after the previous session of the subject was expired.
     * @throws VERSION_CONFLICT if another order for the subject came first, CUSTOMER_NOT_FOUND if the customer was deleted
     *   at the provider, and what `CheckoutSessions.createCheckout` throws
     */
    async open(subject: CheckoutSubject, checkout: Checkout): Promise<OpenedCheckout> {
      const gateway = requireGateway();
      const { ownerId } = subject;
      const id = checkoutIdOf(subject);
      const fingerprint = sha256(JSON.stringify(checkout));
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        const known = await checkouts.findOne({ id });
        if (known?.sessionId !== undefined) {
          const { sessionId } = known;
          const page = await reuseOrEnd({ ...known, sessionId }, fingerprint, subject);
          if (page) return { sessionId, ...page };
        }
        const isShared = known !== null && known.sessionId === undefined && known.fingerprint === fingerprint;
        const reservation = isShared ? known : await reserve(known, { id, ownerId }, fingerprint);
        if (!reservation) continue;
        const session = await createSession(gateway, checkout, reservation.key);
        if (!(await record(reservation, session))) {
          await gateway.expireCheckout(session.id);
          throw checkoutReplaced();
        }
        const { id: sessionId, expiresAt, ...page } = session;
        if (isUsable(expiresAt)) return { sessionId, ...page };
        // A response that the provider repeats may be about a session that has expired since; a new session lasts 24 hours.
        if (!isShared) throw malformed('A new checkout session that expires within the hour or has expired.');
      }
      throw checkoutReplaced();
    },
  };
}

export const checkoutReplaced = () =>
  httpErrors.VERSION_CONFLICT({
    message: 'Another purchase was started in the meantime. Continue with that one or start again.',
  });

/** Without a given quantity, tries 1 and then none: only the provider knows whether the price is metered. */
async function createSession(
  gateway: CheckoutSessions,
  checkout: Checkout,
  key: string,
): Promise<OpenSession> {
  const { item } = checkout;
  if (!item || item.quantity !== undefined) return gateway.createCheckout(checkout, key);
  const single = { ...checkout, item: { ...item, quantity: 1 } };
  return gateway.createCheckout(single, key).catch((error: unknown) => {
    if (isPriceNotAllowed(error)) return gateway.createCheckout(checkout, `${key}-metered`);
    throw error;
  });
}
