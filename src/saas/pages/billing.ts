import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Identity } from '../../core/http/identity.js';
import { type Localized, longDate, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { BillingModule } from '../billing/module.js';
import type { HeldView, Invoice, Plan, QuotaView } from '../billing/schemas.js';
import type { PageContext } from './context.js';
import { BillingQuery, ChangeBody, ChangeQuery, EmptyBody, PriceBody, SubscriptionBody } from './schemas.js';

export interface BillingPageOptions extends PageContext {
  billing: BillingModule;
  guard: PersonGuard;
}

const NOTICES: Readonly<Record<string, Localized>> = {
  changed: message('user-billing.changed'),
  scheduled: message('user-billing.scheduled'),
  undone: message('user-billing.undone'),
  cancelled: message('user-billing.cancelled'),
  resumed: message('user-billing.resumed'),
};

/** Requests to the payment provider, some of which make several calls. */
const PROVIDER_TIMEOUT_MS = 20_000;

const SESSION_ID = /^[A-Za-z0-9_]+$/;

/** How long users who return from the payment page wait for the new state. */
const RETURN_TIMEOUT_MS = 5_000;

/** Errors of the provider, and of an order that it does not accept: the page says so and stays. */
const isRejected = (error: unknown): error is AppError =>
  error instanceof AppError && [400, 402, 404, 409, 422, 502, 503].includes(error.statusCode);

/** The page on which users see their plan and payments, and buy, change and cancel. */
export async function billingPagePlugin(fastify: FastifyTypebox, options: BillingPageOptions): Promise<void> {
  const { billing, formatAmount, guard, identityOf, pages, path } = options;
  const config = access('person', { page: true });
  const route = { config, handlerTimeout: PROVIDER_TIMEOUT_MS };
  const own = () => `${path()}/billing`;
  const syncAfterPayment = (request: FastifyRequest, sessionId: string) =>
    billing.subscription
      .sync(identityOf(request).user, sessionId)
      .catch((err) => request.log.warn({ err }, 'the state after a payment could not be fetched'));

  const withoutHead = { ...route, exposeHeadRoute: false };
  fastify.get(
    '/billing',
    { ...withoutHead, schema: { querystring: BillingQuery } },
    async (request, reply) => {
      const { session_id: sessionId } = request.query;
      if (sessionId !== undefined) {
        // The user returns from the payment page, perhaps before the webhook arrives, which makes up for a failure and for what takes longer.
        const fetched = SESSION_ID.test(sessionId) && syncAfterPayment(request, sessionId);
        await Promise.race([fetched, sleep(RETURN_TIMEOUT_MS, undefined, { ref: false })]);
        return reply.redirect(own(), 303);
      }
      const notice = NOTICES[request.query.done ?? ''];
      return pages.send(reply, await pageOf(request, notice && { notice }));
    },
  );

  fastify.get(
    '/billing/change',
    { ...route, schema: { querystring: ChangeQuery } },
    async (request, reply) => {
      const { price, subscription } = request.query;
      const { id } = identityOf(request).user;
      try {
        const [plan, preview, { holdings }] = await Promise.all([
          planOf(price),
          billing.changes.preview(id, orderOf(request.query)),
          billing.subscription.holdings(id),
        ]);
        if (!plan) return reply.redirect(own(), 303);
        const view = {
          action: own(),
          price,
          subscription,
          form: guard.formsOf(request).issue(),
          plan: nameOf(plan),
          amount: amountOf(preview.amountDue, preview.currency),
          isFree: preview.amountDue <= 0,
          next:
            preview.nextChargeAt &&
            message('user-billing.next-charge', { when: dateText(preview.nextChargeAt) }),
          later: laterText(holdings.find((held) => held.id === subscription)),
        };
        return pages.send(reply, { template: 'user-billing-change', view, leadsElsewhere: true });
      } catch (error) {
        return sendProblem(request, reply, error);
      }
    },
  );

  /** A form that does something and returns to the page, or leads to the provider. */
  const post = <Body extends typeof EmptyBody>(
    action: string,
    body: Body,
    act: (identity: Identity, given: Static<Body>, ip: string) => Promise<string>,
  ) =>
    fastify.post(`/billing/${action}`, { ...route, schema: { body } }, async (request, reply) => {
      try {
        const given = request.body as Static<Body>;
        return reply.redirect(await act(identityOf(request), given, requestSource(request).ip), 303);
      } catch (error) {
        return sendProblem(request, reply, error);
      }
    });

  post('checkout', PriceBody, async ({ user }, { price }) => {
    const plan = await planOf(price);
    const mode = plan?.interval === null ? 'payment' : 'subscription';
    return (await billing.checkout.open(user, { priceId: price, mode })).url;
  });
  post('portal', EmptyBody, async ({ user }) => (await billing.openPortal(user, own())).url);
  post('change', ChangeBody, async ({ user }, given, ip) => {
    const { when = 'now' } = given;
    const { paymentUrl, scheduledChange } = await billing.changes.change(
      user.id,
      { ...orderOf(given), when },
      ip,
    );
    if (scheduledChange?.reason === 'pending_payment' && paymentUrl !== null) return paymentUrl;
    return `${own()}?done=${when === 'now' ? 'changed' : 'scheduled'}`;
  });
  post('undo', SubscriptionBody, async ({ user }, { subscription }, ip) => {
    await billing.changes.undoChange(user.id, { subscriptionId: subscription }, ip);
    return `${own()}?done=undone`;
  });
  post('cancel', SubscriptionBody, async ({ user }, { subscription }, ip) => {
    await billing.changes.cancel(user.id, { subscriptionId: subscription, when: 'period_end' }, ip);
    return `${own()}?done=cancelled`;
  });
  // A subscription that cannot end with its period, such as one whose first payment is missing.
  post('cancel-now', SubscriptionBody, async ({ user }, { subscription }, ip) => {
    await billing.changes.cancel(user.id, { subscriptionId: subscription, when: 'now' }, ip);
    return `${own()}?done=cancelled`;
  });
  post('resume', SubscriptionBody, async ({ user }, { subscription }, ip) => {
    await billing.changes.resume(user.id, { subscriptionId: subscription }, ip);
    return `${own()}?done=resumed`;
  });

  async function sendProblem(request: FastifyRequest, reply: FastifyReply, error: unknown) {
    if (!isRejected(error)) throw error;
    const page = await pageOf(request, { problems: [problemOf(error)] });
    return pages.send(reply.code(error.statusCode), page);
  }

  /** Empty if it is unknown. */
  function amountOf(amount: number | null, currency: string | null): Localized {
    return ({ locale }) =>
      amount === null || currency === null ? '' : formatAmount(amount, currency, locale);
  }

  async function planOf(priceId: string): Promise<Plan | undefined> {
    return (await billing.catalog.plans()).find((plan) => plan.priceId === priceId);
  }

  async function pageOf(
    request: FastifyRequest,
    state: { notice?: Localized; problems?: Localized[] } = {},
  ): Promise<Page> {
    const { user } = identityOf(request);
    const [{ holdings }, limits, plans, invoices] = await Promise.all([
      billing.subscription.holdings(user.id),
      billing.quotas.list(user.id),
      billing.catalog.plans().catch(nullIfRejected),
      billing.catalog.invoices(user.id).catch(nullIfRejected),
    ]);
    const isCurrent = ({ kind, entitled, actions }: HeldView) =>
      entitled || (kind === 'subscription' && actions.length > 0);
    const held = holdings.filter(isCurrent);
    const offers = plans?.filter(({ priceId }) => priceId !== null).map((plan) => offerOf(plan, held)) ?? [];
    const view = {
      path: own(),
      accountHref: path(),
      form: guard.formsOf(request).issue(),
      held: held.map(heldViewOf),
      holdsNothing: held.length === 0,
      limits: limits.map(viewOfLimit),
      hasLimits: limits.length > 0,
      isUnavailable: plans === null,
      // Of an account that has bought before.
      hasPortal: (invoices ?? []).length > 0 || held.some(({ kind }) => kind === 'subscription'),
      plans: offers.filter(({ isAddOn }) => !isAddOn),
      addOns: offers.filter(({ isAddOn }) => isAddOn),
      hasAddOns: offers.some(({ isAddOn }) => isAddOn),
      invoices: invoices?.map((invoice) => ({
        ...viewOfInvoice(invoice),
        amount: amountOf(
          invoice.status === 'paid' ? invoice.amountPaid : invoice.amountDue,
          invoice.currency,
        ),
      })),
      hasInvoices: (invoices ?? []).length > 0,
      ...state,
    };
    return { template: 'user-billing', view, leadsElsewhere: true };
  }

  function heldViewOf(held: HeldView) {
    const { id, name, price, quantity, actions, items, scheduledChange, paymentUrl } = held;
    const isConfirmed = scheduledChange?.reason === 'pending_payment';
    return {
      id,
      name,
      amount: price && items.length === 1 ? amountOf(price.amount, price.currency) : '',
      interval: price && items.length === 1 ? intervalText(price) : '',
      seats: quantity !== null && quantity > 1 && String(quantity),
      state: stateOf(held),
      next: scheduledText(held),
      canCancel: actions.includes('cancel'),
      canCancelNow:
        !actions.includes('cancel') && !actions.includes('resume') && actions.includes('cancel_now'),
      canResume: actions.includes('resume'),
      resume: message(held.cancelAtPeriodEnd || held.cancelAt ? 'user-billing.keep' : 'user-billing.resume'),
      canUndo: actions.includes('undo_change'),
      needsMethod: isTrialPaused(held),
      payHref: paymentUrl,
      pay: message(isConfirmed ? 'user-billing.confirm' : 'user-billing.pay'),
    };
  }

  /** A plan for sale, with what the user can do in view of what the user holds. */
  function offerOf(plan: Plan, held: readonly HeldView[]) {
    const family = billing.plans.familyOf(plan.plan) ?? null;
    const isRecurring = plan.interval !== null;
    const isCurrent = held.some(({ priceId, items }) =>
      [priceId, ...items.map((item) => item.priceId)].includes(plan.priceId),
    );
    const running = held.filter((one) => one.kind === 'subscription' && one.family === family);
    const [only] = running;
    const canChange = isRecurring && running.length === 1 && only?.actions.includes('change') === true;
    return {
      price: plan.priceId,
      name: nameOf(plan),
      description: plan.description,
      amount: amountOf(plan.amount, plan.currency),
      interval: intervalText(plan),
      trial: plan.trialDays !== null && message('user-billing.trial-days', { count: String(plan.trialDays) }),
      isAddOn: billing.plans.isIndependent(plan.plan),
      isCurrent,
      canBuy: !isCurrent && (!isRecurring || running.length === 0),
      canChange: !isCurrent && canChange,
      subscription: only?.id,
    };
  }
}

const isTrialPaused = ({ status, pauseReason }: HeldView): boolean =>
  status === 'paused' && pauseReason !== 'pause_requested';

/** When a subscription can be changed instead of now. */
const laterText = (held: HeldView | undefined): Localized | undefined =>
  held?.currentPeriodEnd && !held.cancelAt && !held.cancelAtPeriodEnd
    ? message('user-billing-change.later', { when: dateText(held.currentPeriodEnd) })
    : undefined;

const orderOf = ({ price, subscription }: Static<typeof ChangeQuery>) => ({
  priceId: price,
  ...(subscription !== undefined && { subscriptionId: subscription }),
});

const nullIfRejected = (error: unknown): null => {
  if (isRejected(error)) return null;
  throw error;
};

/** The sentences of errors that have one; for others, that of a failure of the provider. */
const PROBLEMS: Readonly<Record<string, Localized>> = {
  PAYMENT_METHOD_REQUIRED: message('user-billing.trial-paused'),
  PAYMENT_DECLINED: message('user-billing.problems.PAYMENT_DECLINED'),
  ALREADY_SUBSCRIBED: message('user-billing.problems.ALREADY_SUBSCRIBED'),
  CURRENCY_MISMATCH: message('user-billing.problems.CURRENCY_MISMATCH'),
  PRICE_NOT_ALLOWED: message('user-billing.problems.PRICE_NOT_ALLOWED'),
  SUBSCRIPTION_NOT_CHANGEABLE: message('user-billing.problems.SUBSCRIPTION_NOT_CHANGEABLE'),
};

const problemOf = ({ code }: AppError): Localized =>
  PROBLEMS[code] ?? message('user-billing.problems.PAYMENT_PROVIDER_ERROR');

const dateText = (timestamp: string): Localized => longDate(Date.parse(timestamp));

const nameOf = ({ name, plan }: Plan): string => name ?? plan;

/** How something that the user holds stands, in a sentence. */
function stateOf(one: HeldView): Localized {
  const { kind, status, entitled, trialEnd, collectionPause, ...held } = one;
  const { currentPeriodEnd, cancelAt, cancelAtPeriodEnd, family } = held;
  const end = cancelAt ?? (cancelAtPeriodEnd ? currentPeriodEnd : null);
  if (kind === 'purchase') return message('user-billing.bought');
  if (kind === 'grant')
    return currentPeriodEnd === null
      ? message('user-billing.granted')
      : message('user-billing.ends', { when: dateText(currentPeriodEnd) });
  if (status === 'incomplete') return message('user-billing.incomplete');
  if (status === 'past_due' || status === 'unpaid') return message('user-billing.past-due');
  if (status === 'paused')
    return message(isTrialPaused(one) ? 'user-billing.trial-paused' : 'user-billing.on-hold');
  if (end !== null) return message('user-billing.ends', { when: dateText(end) });
  if (collectionPause) return message('user-billing.paused');
  if (status === 'trialing' && trialEnd !== null)
    return message('user-billing.trial', { when: dateText(trialEnd) });
  if (currentPeriodEnd !== null) return message('user-billing.renews', { when: dateText(currentPeriodEnd) });
  return message(entitled || family === null ? 'user-billing.active' : 'user-billing.no-access');
}

/** A change that is scheduled. */
function scheduledText({ scheduledChange }: HeldView): Localized | undefined {
  if (!scheduledChange) return undefined;
  const { reason, at, items } = scheduledChange;
  if (reason === 'pending_payment') return message('user-billing.change-unpaid');
  if (at === null || items.length === 0) return undefined;
  const [{ plan, priceId }] = items as [HeldView['items'][number]];
  return message('user-billing.changes', { plan: plan ?? priceId, when: dateText(at) });
}

/** `per month`, `every 3 months`. */
function intervalText({ interval, intervalCount }: Pick<Plan, 'interval' | 'intervalCount'>): Localized {
  if (interval === null) return message('user-billing.once');
  return (catalogue) => {
    const count = intervalCount ?? 1;
    const format = { style: 'unit', unit: interval, unitDisplay: 'long' } as const;
    const parts = new Intl.NumberFormat(catalogue.locale, format).formatToParts(count);
    // `per month` instead of `per 1 month`.
    const named = count === 1 ? parts.filter(({ type }) => type === 'unit') : parts;
    return catalogue.text('user-billing.every', { period: named.map(({ value }) => value).join('') });
  };
}

/** How much of a limit is used, in a sentence. */
function viewOfLimit({ name, limit, used, credits, resetsAt }: QuotaView) {
  const values = { used: String(used), limit: String(limit) };
  return {
    name,
    text: limit === null ? message('user-billing.used', values) : message('user-billing.used-of', values),
    credits: credits > 0 && message('user-billing.credits', { count: String(credits) }),
    resets: resetsAt !== null && message('user-billing.resets', { when: dateText(resetsAt) }),
  };
}

const viewOfInvoice = ({ number, status, createdAt, url }: Invoice) => ({
  number: number ?? '',
  date: dateText(createdAt),
  isPaid: status === 'paid',
  isOpen: status === 'open',
  url,
});
