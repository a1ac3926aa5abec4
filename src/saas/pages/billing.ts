import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import type { Identity } from '../../core/http/identity.js';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { ownValue } from '../../core/kernel/fields.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { BillingModule } from '../billing/module.js';
import type { HeldView, Plan, Subscription } from '../billing/schemas.js';
import {
  dateText,
  discountText,
  intervalText,
  isMainPlan,
  isTrialPaused,
  laterText,
  nameOf,
  problemOf,
  scheduledText,
  stateOf,
  viewOfInvoice,
  viewOfLimit,
} from './billing-views.js';
import type { PageContext } from './context.js';
import {
  BillingQuery,
  ChangeBody,
  ChangeQuery,
  EmptyBody,
  PriceBody,
  PriceQuery,
  PromotionCodeBody,
  SubscriptionBody,
} from './schemas.js';

export interface BillingPageOptions extends PageContext {
  billing: BillingModule;
  guard: PersonGuard;
}

const NOTICES: Readonly<Record<string, Localized>> = {
  changed: message('user-billing.changed'),
  scheduled: message('user-billing.scheduled'),
  undone: message('user-billing.undone'),
  added: message('user-billing.added'),
  removed: message('user-billing.removed'),
  discounted: message('user-billing.discounted'),
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
  error instanceof AppError && [400, 402, 404, 409, 422, 429, 502, 503].includes(error.statusCode);

/** The page on which users see their plan and payments, and buy, change and cancel. */
export async function billingPagePlugin(fastify: FastifyTypebox, options: BillingPageOptions): Promise<void> {
  const { billing, formatAmount, guard, identityOf, pages, path } = options;
  const config = access('person', { page: true });
  const route = { config, handlerTimeout: PROVIDER_TIMEOUT_MS };
  const own = () => `${path()}/billing`;
  const syncAfterPayment = (request: FastifyRequest, sessionId: string) =>
    billing.subscription
      .sync(identityOf(request).user.id, sessionId)
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
      const notice = ownValue(NOTICES, request.query.done);
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

  fastify.get(
    '/billing/add-on',
    { ...route, schema: { querystring: PriceQuery } },
    async (request, reply) => {
      const { price } = request.query;
      try {
        const [plan, preview] = await Promise.all([
          planOf(price),
          billing.changes.previewAddOn(identityOf(request).user.id, { priceId: price }),
        ]);
        if (!plan) return reply.redirect(own(), 303);
        const view = {
          action: own(),
          price,
          form: guard.formsOf(request).issue(),
          plan: nameOf(plan),
          amount: amountOf(preview.amountDue, preview.currency),
          isFree: preview.amountDue <= 0,
          each: amountOf(plan.amount, plan.currency),
          interval: intervalText(plan),
        };
        return pages.send(reply, { template: 'user-billing-add-on', view, leadsElsewhere: true });
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
    return (await billing.checkout.open(user, { priceId: price, mode }, { isHosted: true })).url;
  });
  post('portal', EmptyBody, async ({ user }) => (await billing.openPortal(user.id, own())).url);
  post('change', ChangeBody, async ({ user }, given, ip) => {
    const { when = 'now' } = given;
    const changed = await billing.changes.change(user.id, { ...orderOf(given), when }, ip);
    return confirmedAt(changed, when === 'now' ? 'changed' : 'scheduled');
  });
  post('add-on', PriceBody, async ({ user }, { price }, ip) =>
    confirmedAt(await billing.changes.setAddOn(user.id, { priceId: price }, ip), 'added'),
  );
  post('remove-add-on', PriceBody, async ({ user }, { price }, ip) => {
    await billing.changes.removeAddOn(user.id, { priceId: price }, ip);
    return `${own()}?done=removed`;
  });
  post('code', PromotionCodeBody, async ({ user }, { subscription, code }, ip) => {
    await billing.changes.applyPromotionCode(user.id, { subscriptionId: subscription, code }, ip);
    return `${own()}?done=discounted`;
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

  /** Where the user confirms the payment of a change, or what has been done. */
  const confirmedAt = ({ scheduledChange, paymentUrl }: Subscription, done: string): string =>
    scheduledChange?.reason === 'pending_payment' && paymentUrl !== null
      ? paymentUrl
      : `${own()}?done=${done}`;

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
      next: scheduledText(held, billing.plans.nameOf),
      canCancel: actions.includes('cancel'),
      canCancelNow:
        !actions.includes('cancel') && !actions.includes('resume') && actions.includes('cancel_now'),
      canResume: actions.includes('resume'),
      resume: message(held.cancelAtPeriodEnd || held.cancelAt ? 'user-billing.keep' : 'user-billing.resume'),
      canUndo: actions.includes('undo_change'),
      addOns: items.filter(isAddOnItem).map(({ priceId, plan: addOn }) => ({
        price: priceId,
        addOn: billing.plans.nameOf(addOn ?? priceId),
      })),
      discount: discountText(held),
      canUseCode:
        actions.includes('cancel') &&
        held.discounts?.length === 0 &&
        billing.plans.checkoutOf(held.priceId ?? '').promotionCodes === true,
      needsMethod: isTrialPaused(held),
      payHref: paymentUrl,
      pay: message(isConfirmed ? 'user-billing.confirm' : 'user-billing.pay'),
    };
  }

  const isAddOnItem = ({ plan }: HeldView['items'][number], index: number): boolean =>
    index > 0 && plan !== null && billing.plans.isIndependent(plan);

  /** A plan for sale, with what the user can do in view of what the user holds. */
  function offerOf(plan: Plan, held: readonly HeldView[]) {
    const family = billing.plans.familyOf(plan.plan) ?? null;
    const isRecurring = plan.interval !== null;
    const isCurrent = held.some(({ priceId, items }) =>
      [priceId, ...items.map((item) => item.priceId)].includes(plan.priceId),
    );
    const running = held.filter((one) => one.kind === 'subscription' && one.family === family);
    const [only] = running;
    const isAddOn = billing.plans.isIndependent(plan.plan);
    // Part of the subscription of the plan, with which it is charged.
    const isPart = held.some(({ items }) => items.some((item) => isAddOn && item.plan === plan.plan));
    const canAdd = isAddOn && isRecurring && !isPart && held.some(isMainPlan);
    const canChange = isRecurring && running.length === 1 && only?.actions.includes('change') === true;
    return {
      price: plan.priceId,
      name: nameOf(plan),
      description: plan.description,
      amount: amountOf(plan.amount, plan.currency),
      interval: intervalText(plan),
      trial: plan.trialDays !== null && message('user-billing.trial-days', { count: String(plan.trialDays) }),
      isAddOn,
      isCurrent,
      canAdd,
      canBuy: !isCurrent && !canAdd && !isPart && (!isRecurring || running.length === 0),
      canChange: !isCurrent && canChange,
      subscription: only?.id,
    };
  }
}

const orderOf = ({ price, subscription }: Static<typeof ChangeQuery>) => ({
  priceId: price,
  ...(subscription !== undefined && { subscriptionId: subscription }),
});

const nullIfRejected = (error: unknown): null => {
  if (isRejected(error)) return null;
  throw error;
};
