import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Identity } from '../../core/http/identity.js';
import { type Localized, longDate, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import type { PersonGuard } from '../../shared/account-pages/guard.js';
import type { BillingModule } from '../billing/module.js';
import type { Invoice, Plan, Subscription } from '../billing/schemas.js';
import type { PageContext } from './context.js';
import { BillingQuery, EmptyBody, PriceBody, PriceQuery } from './schemas.js';

export interface BillingPageOptions extends PageContext {
  billing: BillingModule;
  guard: PersonGuard;
}

const NOTICES: Readonly<Record<string, Localized>> = {
  changed: message('user-billing.changed'),
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
  error instanceof AppError && [402, 404, 409, 422, 502, 503].includes(error.statusCode);

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
    { ...route, schema: { querystring: PriceQuery } },
    async (request, reply) => {
      const { price } = request.query;
      const { id } = identityOf(request).user;
      try {
        const [plan, preview] = await Promise.all([
          planOf(price),
          billing.changes.preview(id, { priceId: price }),
        ]);
        if (!plan) return reply.redirect(own(), 303);
        const view = {
          action: own(),
          price,
          form: guard.formsOf(request).issue(),
          plan: nameOf(plan),
          amount: amountOf(preview.amountDue, preview.currency),
          isFree: preview.amountDue <= 0,
          next:
            preview.nextChargeAt &&
            message('user-billing.next-charge', { when: dateText(preview.nextChargeAt) }),
        };
        return pages.send(reply, { template: 'user-billing-change', view });
      } catch (error) {
        return sendProblem(request, reply, error);
      }
    },
  );

  /** A form that does something and returns to the page, or leads to the provider. */
  const post = <Body extends typeof EmptyBody | typeof PriceBody>(
    action: string,
    body: Body,
    act: (identity: Identity, price: string, ip: string) => Promise<string>,
  ) =>
    fastify.post(`/billing/${action}`, { ...route, schema: { body } }, async (request, reply) => {
      const given = request as FastifyRequest<{ Body: { form: string; price?: string } }>;
      try {
        return reply.redirect(
          await act(identityOf(request), given.body.price ?? '', requestSource(request).ip),
          303,
        );
      } catch (error) {
        return sendProblem(request, reply, error);
      }
    });

  post('checkout', PriceBody, async ({ user }, priceId) => {
    const plan = await planOf(priceId);
    const mode = plan?.interval === null ? 'payment' : 'subscription';
    return (await billing.checkout.open(user, { priceId, mode })).url;
  });
  post('portal', EmptyBody, async ({ user }) => (await billing.openPortal(user, own())).url);
  post('change', PriceBody, async ({ user }, priceId, ip) => {
    await billing.changes.change(user.id, { priceId }, ip);
    return `${own()}?done=changed`;
  });
  post('cancel', EmptyBody, async ({ user }, _, ip) => {
    await billing.changes.cancel(user.id, { when: 'period_end' }, ip);
    return `${own()}?done=cancelled`;
  });
  post('resume', EmptyBody, async ({ user }, _, ip) => {
    await billing.changes.resume(user.id, {}, ip);
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
    const [subscription, plans, invoices] = await Promise.all([
      billing.subscription.current(user.id, { withNextInvoice: false }),
      billing.catalog.plans().catch(nullIfRejected),
      billing.catalog.invoices(user.id).catch(nullIfRejected),
    ]);
    const isSubscribed = subscription.entitled && subscription.priceId !== null;
    const view = {
      path: own(),
      accountHref: path(),
      form: guard.formsOf(request).issue(),
      plan: subscription.entitled ? planNameOf(subscription, plans) : message('user-billing.no-plan'),
      state: stateOf(subscription),
      canCancel: isSubscribed && !endsOf(subscription),
      canResume: isSubscribed && endsOf(subscription),
      hasActions: isSubscribed || (invoices ?? []).length > 0,
      isUnavailable: plans === null,
      hasPortal: (invoices ?? []).length > 0 || isSubscribed,
      plans: plans
        ?.filter(({ priceId }) => priceId !== null)
        .map((plan) => ({
          ...viewOfPlan(plan, subscription, isSubscribed),
          amount: amountOf(plan.amount, plan.currency),
        })),
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
}

const nullIfRejected = (error: unknown): null => {
  if (isRejected(error)) return null;
  throw error;
};

/** The sentences of errors that have one; for others, that of a failure of the provider. */
const PROBLEMS: Readonly<Record<string, Localized>> = {
  PAYMENT_DECLINED: message('user-billing.problems.PAYMENT_DECLINED'),
  ALREADY_SUBSCRIBED: message('user-billing.problems.ALREADY_SUBSCRIBED'),
  CURRENCY_MISMATCH: message('user-billing.problems.CURRENCY_MISMATCH'),
  PRICE_NOT_ALLOWED: message('user-billing.problems.PRICE_NOT_ALLOWED'),
  SUBSCRIPTION_NOT_CHANGEABLE: message('user-billing.problems.SUBSCRIPTION_NOT_CHANGEABLE'),
};

const problemOf = ({ code }: AppError): Localized =>
  PROBLEMS[code] ?? message('user-billing.problems.PAYMENT_PROVIDER_ERROR');

const dateText = (timestamp: string): Localized => longDate(Date.parse(timestamp));

const endsOf = ({ cancelAtPeriodEnd, cancelAt }: Subscription): boolean =>
  cancelAtPeriodEnd === true || cancelAt !== null;

const nameOf = ({ name, plan }: Plan): string => name ?? plan;

function planNameOf({ priceId, plan }: Subscription, plans: readonly Plan[] | null): string {
  const known = plans?.find((one) => one.priceId === priceId) ?? plans?.find((one) => one.plan === plan);
  return known ? nameOf(known) : plan;
}

/** What is due next, in a sentence. */
function stateOf(subscription: Subscription): Localized | undefined {
  const { status, entitled, trialEnd, currentPeriodEnd, cancelAt } = subscription;
  if (status === 'past_due' || status === 'unpaid') return message('user-billing.past-due');
  if (!entitled) return undefined;
  const end = cancelAt ?? currentPeriodEnd;
  if (endsOf(subscription) && end !== null) return message('user-billing.ends', { when: dateText(end) });
  if (status === 'trialing' && trialEnd !== null)
    return message('user-billing.trial', { when: dateText(trialEnd) });
  const isGranted = status === 'granted';
  if (currentPeriodEnd !== null)
    return message(isGranted ? 'user-billing.ends' : 'user-billing.renews', {
      when: dateText(currentPeriodEnd),
    });
  return isGranted ? message('user-billing.granted') : undefined;
}

/** `per month`, `every 3 months`. */
function intervalText({ interval, intervalCount }: Plan): Localized {
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

const viewOfPlan = (plan: Plan, current: Subscription, isSubscribed: boolean) => ({
  price: plan.priceId,
  name: nameOf(plan),
  description: plan.description,
  interval: intervalText(plan),
  trial: plan.trialDays !== null && message('user-billing.trial-days', { count: String(plan.trialDays) }),
  isCurrent: isSubscribed && plan.priceId === current.priceId,
  canChange: isSubscribed && plan.interval !== null && plan.priceId !== current.priceId,
  canBuy: !isSubscribed || plan.interval === null,
});

const viewOfInvoice = ({ number, status, createdAt, url }: Invoice) => ({
  number: number ?? '',
  date: dateText(createdAt),
  isPaid: status === 'paid',
  isOpen: status === 'open',
  url,
});
