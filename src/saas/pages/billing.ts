import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { mountPath } from '../../core/config/public-url.js';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { formatAmount } from '../../core/kernel/currencies.js';
import { AppError } from '../../core/kernel/errors.js';
import { ownValue } from '../../core/kernel/fields.js';
import type { Buyer } from '../billing/checkout/service.js';
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
import type { PagesWith } from './context.js';
import {
  BillingQuery,
  ChangeBody,
  ChangeQuery,
  CheckoutForm,
  EmptyBody,
  PriceBody,
  PriceQuery,
  PromotionCodeBody,
  SubscriptionBody,
} from './schemas.js';

export interface BillingPageOptions extends PagesWith<'billing'> {
  /** The path of the page, below the account page. */
  base: '/billing' | '/organization/:organization/billing';
  /** Whose subscriptions it shows. @throws AppError unless the person may see them */
  billedOf(request: FastifyRequest): Promise<Billed>;
}

/** The user, or an organization. */
export interface Billed {
  owner: Buyer;
  /** The address of the page. */
  own: string;
  /** Of an organization. */
  organization?: { name: string; href: string; members: number };
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

/** The page on which users see the plan and payments of their own or of an organization, and buy, change and cancel. */
export async function billingPagePlugin(fastify: FastifyTypebox, options: BillingPageOptions): Promise<void> {
  const { billing, pages, publicUrl, base, billedOf } = options;
  const config = access('person', { page: true });
  const route = { config, handlerTimeout: PROVIDER_TIMEOUT_MS };
  /** Relative to the public address, whose path pages have in their addresses. */
  const returnPathOf = ({ own }: Billed) => own.slice(mountPath(publicUrl()).length);
  const syncAfterPayment = (request: FastifyRequest, { owner }: Billed, sessionId: string) =>
    billing.subscription
      .sync(owner.id, sessionId)
      .catch((err) => request.log.warn({ err }, 'the state after a payment could not be fetched'));

  const withoutHead = { ...route, exposeHeadRoute: false };
  fastify.get(base, { ...withoutHead, schema: { querystring: BillingQuery } }, async (request, reply) => {
    const billed = await billedOf(request);
    const { session_id: sessionId } = request.query;
    if (sessionId !== undefined) {
      // The user returns from the payment page, perhaps before the webhook arrives, which makes up for a failure and for what takes longer.
      const fetched = SESSION_ID.test(sessionId) && syncAfterPayment(request, billed, sessionId);
      await Promise.race([fetched, sleep(RETURN_TIMEOUT_MS, undefined, { ref: false })]);
      return reply.redirect(billed.own, 303);
    }
    const notice = ownValue(NOTICES, request.query.done);
    return pages.send(reply, await pageOf(billed, notice && { notice }));
  });

  fastify.get(
    `${base}/change`,
    { ...route, schema: { querystring: ChangeQuery } },
    async (request, reply) => {
      const { price, subscription, quantity } = request.query;
      const billed = await billedOf(request);
      const { id } = billed.owner;
      try {
        const [plan, preview, { holdings }] = await Promise.all([
          planOf(price),
          billing.changes.preview(id, orderOf(request.query)),
          billing.subscription.holdings(id),
        ]);
        if (!plan) return reply.redirect(billed.own, 303);
        const view = {
          action: billed.own,
          price,
          subscription,
          quantity,
          plan: quantity === undefined ? nameOf(plan) : `${nameOf(plan)} × ${quantity}`,
          amount: amountOf(preview.amountDue, preview.currency),
          isFree: preview.amountDue <= 0,
          next:
            preview.nextChargeAt &&
            message('user-billing.next-charge', { when: dateText(preview.nextChargeAt) }),
          later: laterText(holdings.find((held) => held.id === subscription)),
        };
        return pages.send(reply, { template: 'user-billing-change', view, leadsElsewhere: true });
      } catch (error) {
        return sendProblem(reply, billed, error);
      }
    },
  );

  fastify.get(`${base}/add-on`, { ...route, schema: { querystring: PriceQuery } }, async (request, reply) => {
    const { price } = request.query;
    const billed = await billedOf(request);
    try {
      const [plan, preview] = await Promise.all([
        planOf(price),
        billing.changes.previewAddOn(billed.owner.id, { priceId: price }),
      ]);
      if (!plan) return reply.redirect(billed.own, 303);
      const view = {
        action: billed.own,
        price,
        plan: nameOf(plan),
        amount: amountOf(preview.amountDue, preview.currency),
        isFree: preview.amountDue <= 0,
        each: amountOf(plan.amount, plan.currency),
        interval: intervalText(plan),
      };
      return pages.send(reply, { template: 'user-billing-add-on', view, leadsElsewhere: true });
    } catch (error) {
      return sendProblem(reply, billed, error);
    }
  });

  /** A form that does something and returns to the page, or leads to the provider. */
  const post = <Body extends typeof EmptyBody>(
    action: string,
    body: Body,
    act: (billed: Billed, given: Static<Body>, ip: string) => Promise<string>,
  ) =>
    fastify.post(`${base}/${action}`, { ...route, schema: { body } }, async (request, reply) => {
      const billed = await billedOf(request);
      try {
        const given = request.body as Static<Body>;
        return reply.redirect(await act(billed, given, requestSource(request).ip), 303);
      } catch (error) {
        return sendProblem(reply, billed, error);
      }
    });

  post('checkout', CheckoutForm, async ({ owner }, given) => {
    const plan = await planOf(given.price);
    const mode = plan?.interval === null ? 'payment' : 'subscription';
    return (await billing.checkout.open(owner, { ...orderOf(given), mode }, { isHosted: true })).url;
  });
  post(
    'portal',
    EmptyBody,
    async (billed) => (await billing.openPortal(billed.owner.id, returnPathOf(billed))).url,
  );
  post('change', ChangeBody, async (billed, given, ip) => {
    const { when = 'now' } = given;
    const changed = await billing.changes.change(billed.owner.id, { ...orderOf(given), when }, ip);
    return confirmedAt(billed, changed, when === 'now' ? 'changed' : 'scheduled');
  });
  post('add-on', PriceBody, async (billed, { price }, ip) =>
    confirmedAt(billed, await billing.changes.setAddOn(billed.owner.id, { priceId: price }, ip), 'added'),
  );
  post('remove-add-on', PriceBody, async (billed, { price }, ip) => {
    await billing.changes.removeAddOn(billed.owner.id, { priceId: price }, ip);
    return `${billed.own}?done=removed`;
  });
  post('code', PromotionCodeBody, async (billed, { subscription, code }, ip) => {
    await billing.changes.applyPromotionCode(billed.owner.id, { subscriptionId: subscription, code }, ip);
    return `${billed.own}?done=discounted`;
  });
  post('undo', SubscriptionBody, async (billed, { subscription }, ip) => {
    await billing.changes.undoChange(billed.owner.id, { subscriptionId: subscription }, ip);
    return `${billed.own}?done=undone`;
  });
  post('cancel', SubscriptionBody, async (billed, { subscription }, ip) => {
    await billing.changes.cancel(billed.owner.id, { subscriptionId: subscription, when: 'period_end' }, ip);
    return `${billed.own}?done=cancelled`;
  });
  // A subscription that cannot end with its period, such as one whose first payment is missing.
  post('cancel-now', SubscriptionBody, async (billed, { subscription }, ip) => {
    await billing.changes.cancel(billed.owner.id, { subscriptionId: subscription, when: 'now' }, ip);
    return `${billed.own}?done=cancelled`;
  });
  post('resume', SubscriptionBody, async (billed, { subscription }, ip) => {
    await billing.changes.resume(billed.owner.id, { subscriptionId: subscription }, ip);
    return `${billed.own}?done=resumed`;
  });

  /** Where the user confirms the payment of a change, or what has been done. */
  const confirmedAt = (
    { own }: Billed,
    { scheduledChange, paymentUrl }: Subscription,
    done: string,
  ): string =>
    scheduledChange?.reason === 'pending_payment' && paymentUrl !== null ? paymentUrl : `${own}?done=${done}`;

  async function sendProblem(reply: FastifyReply, billed: Billed, error: unknown) {
    if (!isRejected(error)) throw error;
    const page = await pageOf(billed, { problems: [problemOf(error)] });
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
    { owner, own, organization }: Billed,
    state: { notice?: Localized; problems?: Localized[] } = {},
  ): Promise<Page> {
    const [{ holdings }, limits, plans, invoices] = await Promise.all([
      billing.subscription.holdings(owner.id),
      billing.quotas.list(owner.id),
      billing.catalog.plans().catch(nullIfRejected),
      billing.catalog.invoices(owner.id).catch(nullIfRejected),
    ]);
    const isCurrent = ({ kind, entitled, actions }: HeldView) =>
      entitled || (kind === 'subscription' && actions.length > 0);
    const held = holdings.filter(isCurrent);
    // A plan with seats is for an organization: bought for a user, its members would have nothing of it.
    const isForOwner = ({ priceId }: Plan) =>
      priceId !== null && (organization || billing.plans.seatsOf(priceId) === undefined);
    const offers = plans?.filter(isForOwner).map((plan) => offerOf(plan, held, organization?.members)) ?? [];
    const view = {
      path: own,
      organization,
      held: held.map(heldViewOf),
      holdsNothing: held.length === 0,
      limits: limits.map(viewOfLimit),
      hasLimits: limits.length > 0,
      isUnavailable: plans === null,
      hasPlans: plans === null || offers.some(({ isAddOn }) => !isAddOn),
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

  /** How many seats of a plan can be bought; undefined if nobody chooses them. */
  function seatsOf({ priceId }: Plan, members: number) {
    if (priceId === null || billing.plans.seatsOf(priceId) !== 'limit') return undefined;
    const { min = 1, max } = billing.plans.checkoutOf(priceId).quantity ?? {};
    return { least: Math.max(min, members), most: max };
  }

  /** A plan for sale, with what the user can do in view of what the user holds. */
  function offerOf(plan: Plan, held: readonly HeldView[], members = 1) {
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
    const seats = seatsOf(plan, members);
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
      // Of a plan that is held already, only the seats can change.
      canChange: canChange && (!isCurrent || seats !== undefined),
      seats: seats && { ...seats, value: (isCurrent && only?.quantity) || seats.least },
      subscription: only?.id,
    };
  }
}

const orderOf = ({ price, subscription, quantity }: Static<typeof ChangeQuery>) => ({
  priceId: price,
  ...(quantity !== undefined && { quantity: Number(quantity) }),
  ...(subscription !== undefined && { subscriptionId: subscription }),
});

const nullIfRejected = (error: unknown): null => {
  if (isRejected(error)) return null;
  throw error;
};
