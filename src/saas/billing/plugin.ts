import { type Static, type TSchema, Type } from 'typebox';
import { type ActingProgram, actingProgramOf } from '../../core/http/identity.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { After, Envelope, ok } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { CheckoutService } from './checkout/service.js';
import type { Catalog } from './plans/catalog.js';
import type { OpenPortal } from './portal.js';
import type { PurchaseList } from './purchases.js';
import type { Quotas } from './quotas/service.js';
import {
  CheckoutAnswer,
  CheckoutBody,
  DuplicateSubscriptions,
  HoldingsAnswer,
  InvoicesAnswer,
  PlansAnswer,
  PortalAnswer,
  PortalBody,
  PurchasesAnswer,
  PurchasesQuery,
  type Subscription,
  SubscriptionAnswer,
  SubscriptionQuery,
  SyncBody,
  UsageAnswer,
} from './schemas.js';
import type { SubscriptionChanges } from './subscription/changes.js';
import type { Duplicates } from './subscription/duplicates.js';
import {
  AddOnBody,
  AddOnQuery,
  AddOnRemovalBody,
  CancelBody,
  ChangeBody,
  ChangePreviewAnswer,
  ChangeQuery,
  PromotionCodeBody,
  TargetBody,
} from './subscription/schemas.js';
import type { SubscriptionService } from './subscription/service.js';

/** Timeout of a whole request, which may make several calls to the provider. */
const PROVIDER_TIMEOUT_MS = 10_000;

/** The same with a payment, which banks confirm slowly, and a look at its result. */
const CHANGE_TIMEOUT_MS = 20_000;

export interface BillingPluginOptions {
  openPortal: OpenPortal;
  checkout: CheckoutService;
  subscription: SubscriptionService;
  catalog: Catalog;
  changes: SubscriptionChanges;
  /** Whether users may pause their subscription. */
  allowPause: boolean;
  purchases: PurchaseList;
  quotas: Quotas;
}

/** The routes for users: buying, reading and managing subscriptions. */
export async function billingPlugin(fastify: FastifyTypebox, options: BillingPluginOptions): Promise<void> {
  addHostedPages(fastify, options);
  addReading(fastify, options);
  addChanges(fastify, options);
}

function addHostedPages(fastify: FastifyTypebox, { checkout, openPortal }: BillingPluginOptions): void {
  // For people only: both answers are addresses at which anyone who has them acts as the person at the payment provider.
  fastify.post(
    '/billing/create-checkout-session',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { body: CheckoutBody, response: { 200: CheckoutAnswer } },
    },
    async (request) => ok(await checkout.open(request.saas.user, request.body)),
  );

  fastify.post(
    '/billing/create-portal-session',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { body: PortalBody, response: { 200: PortalAnswer } },
    },
    async (request) => ok(await openPortal(request.saas.user, request.body.returnPath)),
  );
}

function addReading(
  fastify: FastifyTypebox,
  { subscription, catalog, purchases, quotas }: BillingPluginOptions,
): void {
  fastify.get(
    '/billing/subscription',
    {
      config: access('user', { agentScope: 'billing:read' }),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { querystring: SubscriptionQuery, response: { 200: SubscriptionAnswer } },
    },
    async (request) => {
      const withNextInvoice = request.query.include === 'nextInvoice';
      return ok(await subscription.current(request.saas.user.id, { withNextInvoice }));
    },
  );

  fastify.get(
    '/billing/holdings',
    {
      config: access('user', { agentScope: 'billing:read' }),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { response: { 200: HoldingsAnswer } },
    },
    async (request) => ok(await subscription.holdings(request.saas.user.id)),
  );

  fastify.get(
    '/billing/usage',
    {
      config: access('user', { agentScope: 'billing:read' }),
      schema: { response: { 200: UsageAnswer } },
    },
    async (request) => ok(await quotas.list(request.saas.user.id)),
  );

  fastify.post(
    '/billing/sync',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { body: SyncBody, response: { 200: SubscriptionAnswer } },
    },
    async (request) => ok(await subscription.sync(request.saas.user, request.body.sessionId)),
  );

  fastify.get(
    '/billing/invoices',
    {
      config: access('user', { agentScope: 'billing:read' }),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { response: { 200: InvoicesAnswer } },
    },
    async (request) => ok(await catalog.invoices(request.saas.user.id)),
  );

  fastify.get(
    '/billing/purchases',
    {
      config: access('user', { agentScope: 'billing:read' }),
      schema: { querystring: PurchasesQuery, response: { 200: PurchasesAnswer } },
    },
    async (request) => {
      const { items, next } = await purchases.page(request.saas.user.id, request.query.after);
      return ok({ purchases: items, next });
    },
  );

  fastify.get(
    '/billing/plans',
    {
      config: access('public'),
      handlerTimeout: PROVIDER_TIMEOUT_MS,
      schema: { response: { 200: PlansAnswer } },
    },
    async () => ok(await catalog.plans()),
  );
}

function addChanges(fastify: FastifyTypebox, { changes, allowPause }: BillingPluginOptions): void {
  /** A route that changes the user's subscription. */
  const postChange = <Body extends TSchema>(
    path: string,
    body: Body,
    change: (
      userId: string,
      order: Static<Body>,
      ip: string,
      actor: ActingProgram | undefined,
    ) => Promise<Subscription>,
  ) =>
    fastify.post(
      path,
      {
        config: access('user', { agentScope: 'billing:write' }),
        handlerTimeout: CHANGE_TIMEOUT_MS,
        schema: { body, response: { 200: SubscriptionAnswer } },
      },
      async (request) =>
        ok(
          await change(
            request.saas.user.id,
            request.body as Static<Body>,
            requestSource(request).ip,
            actingProgramOf(request.saas),
          ),
        ),
    );

  postChange('/billing/subscription/change', ChangeBody, changes.change);
  postChange('/billing/subscription/change/undo', TargetBody, changes.undoChange);
  postChange('/billing/subscription/add-ons', AddOnBody, changes.setAddOn);
  postChange('/billing/subscription/add-ons/remove', AddOnRemovalBody, changes.removeAddOn);
  postChange('/billing/subscription/promotion-code', PromotionCodeBody, changes.applyPromotionCode);
  postChange('/billing/subscription/cancel', CancelBody, changes.cancel);
  postChange('/billing/subscription/resume', TargetBody, changes.resume);
  postChange('/billing/subscription/pause', TargetBody, async (userId, order, ip, actor) => {
    if (!allowPause) throw httpErrors.FORBIDDEN({ message: 'Subscriptions cannot be paused here.' });
    return changes.pause(userId, order, ip, actor);
  });

  /** A route that shows what a change would charge. */
  const getPreview = <Query extends typeof ChangeQuery | typeof AddOnQuery>(
    path: string,
    querystring: Query,
    preview: SubscriptionChanges['preview'],
  ) =>
    fastify.get(
      path,
      {
        config: access('user', { agentScope: 'billing:read' }),
        handlerTimeout: CHANGE_TIMEOUT_MS,
        schema: { querystring, response: { 200: ChangePreviewAnswer } },
      },
      async (request) => {
        const { quantity, ...order } = request.query as Static<typeof ChangeQuery>;
        const count = quantity === undefined ? {} : { quantity: Number(quantity) };
        return ok(await preview(request.saas.user.id, { ...order, ...count }));
      },
    );

  getPreview('/billing/subscription/change/preview', ChangeQuery, changes.preview);
  getPreview('/billing/subscription/add-ons/preview', AddOnQuery, changes.previewAddOn);
}

/** The routes for the operator. */
export async function billingAdminPlugin(fastify: FastifyTypebox, duplicates: Duplicates): Promise<void> {
  fastify.get(
    '/api/billing/duplicate-subscriptions',
    {
      config: access('admin'),
      schema: {
        querystring: Type.Object({ after: After }, { additionalProperties: false }),
        response: { 200: Envelope(DuplicateSubscriptions) },
      },
    },
    async (request) => ok(await duplicates.list(request.query.after)),
  );
}
