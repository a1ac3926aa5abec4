import type { FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import { actingProgramOf } from '../../core/http/identity.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Envelope, ok } from '../../core/http/schemas.js';
import { httpErrors } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import type { Buyer, CheckoutService } from './checkout/service.js';
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
  PageQuery,
  PlansAnswer,
  PortalAnswer,
  PortalBody,
  PurchasesAnswer,
  type Subscription,
  SubscriptionAnswer,
  SubscriptionQuery,
  SyncBody,
  UsageAnswer,
} from './schemas.js';
import type { SubscriptionChanges } from './subscription/changes.js';
import type { Duplicates } from './subscription/duplicates.js';
import type { ChangedBy } from './subscription/perform.js';
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

/** Who buys: the user of a request, or the organization that it names. @throws AppError if the user may not buy for it */
export type OwnerOf = (request: FastifyRequest) => Promise<Buyer>;

export interface BillingPluginOptions {
  ownerOf: OwnerOf;
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

/** For people only: with the addresses that these routes return, anyone acts as the person at the payment provider. */
const forPeople = { config: access('user'), handlerTimeout: PROVIDER_TIMEOUT_MS };

const reading = access('owner', { agentScope: 'billing:read' });

/** The routes for users: buying, reading and managing subscriptions. */
export async function billingPlugin(fastify: FastifyTypebox, options: BillingPluginOptions): Promise<void> {
  addHostedPages(fastify, options);
  addReading(fastify, options);
  addChanges(fastify, options);
}

function addHostedPages(fastify: FastifyTypebox, options: BillingPluginOptions): void {
  const { ownerOf, checkout, openPortal, subscription } = options;
  fastify.post(
    '/billing/create-checkout-session',
    { ...forPeople, schema: { body: CheckoutBody, response: { 200: CheckoutAnswer } } },
    async (request) => ok(await checkout.open(await ownerOf(request), request.body)),
  );

  fastify.post(
    '/billing/create-portal-session',
    { ...forPeople, schema: { body: PortalBody, response: { 200: PortalAnswer } } },
    async (request) => ok(await openPortal((await ownerOf(request)).id, request.body.returnPath)),
  );

  fastify.post(
    '/billing/sync',
    { ...forPeople, schema: { body: SyncBody, response: { 200: SubscriptionAnswer } } },
    async (request) => ok(await subscription.sync((await ownerOf(request)).id, request.body.sessionId)),
  );
}

function addReading(fastify: FastifyTypebox, options: BillingPluginOptions): void {
  const { ownerOf, subscription, catalog, purchases, quotas } = options;
  const asking = { config: reading, handlerTimeout: PROVIDER_TIMEOUT_MS };
  fastify.get(
    '/billing/subscription',
    { ...asking, schema: { querystring: SubscriptionQuery, response: { 200: SubscriptionAnswer } } },
    async (request) => {
      const withNextInvoice = request.query.include === 'nextInvoice';
      return ok(await subscription.current((await ownerOf(request)).id, { withNextInvoice }));
    },
  );

  fastify.get(
    '/billing/holdings',
    { ...asking, schema: { response: { 200: HoldingsAnswer } } },
    async (request) => ok(await subscription.holdings((await ownerOf(request)).id)),
  );

  fastify.get(
    '/billing/invoices',
    { ...asking, schema: { response: { 200: InvoicesAnswer } } },
    async (request) => ok(await catalog.invoices((await ownerOf(request)).id)),
  );

  fastify.get(
    '/billing/plans',
    { ...asking, config: access('public'), schema: { response: { 200: PlansAnswer } } },
    async () => ok(await catalog.plans()),
  );

  fastify.get(
    '/billing/usage',
    { config: reading, schema: { response: { 200: UsageAnswer } } },
    async (request) => ok(await quotas.list((await ownerOf(request)).id)),
  );

  fastify.get(
    '/billing/purchases',
    { config: reading, schema: { querystring: PageQuery, response: { 200: PurchasesAnswer } } },
    async (request) => {
      const { items, next } = await purchases.page((await ownerOf(request)).id, request.query.after);
      return ok({ purchases: items, next });
    },
  );
}

function addChanges(fastify: FastifyTypebox, { ownerOf, changes, allowPause }: BillingPluginOptions): void {
  /** A route that changes a subscription. */
  const postChange = <Body extends TSchema>(
    path: string,
    body: Body,
    change: (ownerId: string, order: Static<Body>, ...by: ChangedBy) => Promise<Subscription>,
  ) =>
    fastify.post(
      path,
      {
        config: access('owner', { agentScope: 'billing:write' }),
        handlerTimeout: CHANGE_TIMEOUT_MS,
        schema: { body, response: { 200: SubscriptionAnswer } },
      },
      async (request) => {
        const by: ChangedBy = [requestSource(request).ip, actingProgramOf(request.saas)];
        return ok(await change((await ownerOf(request)).id, request.body as Static<Body>, ...by));
      },
    );

  postChange('/billing/subscription/change', ChangeBody, changes.change);
  postChange('/billing/subscription/change/undo', TargetBody, changes.undoChange);
  postChange('/billing/subscription/add-ons', AddOnBody, changes.setAddOn);
  postChange('/billing/subscription/add-ons/remove', AddOnRemovalBody, changes.removeAddOn);
  postChange('/billing/subscription/promotion-code', PromotionCodeBody, changes.applyPromotionCode);
  postChange('/billing/subscription/cancel', CancelBody, changes.cancel);
  postChange('/billing/subscription/resume', TargetBody, changes.resume);
  postChange('/billing/subscription/pause', TargetBody, async (ownerId, order, ...by) => {
    if (!allowPause) throw httpErrors.FORBIDDEN({ message: 'Subscriptions cannot be paused here.' });
    return changes.pause(ownerId, order, ...by);
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
        config: reading,
        handlerTimeout: CHANGE_TIMEOUT_MS,
        schema: { querystring, response: { 200: ChangePreviewAnswer } },
      },
      async (request) => {
        const { quantity, ...order } = request.query as Static<typeof ChangeQuery>;
        const count = quantity === undefined ? undefined : Number(quantity);
        return ok(await preview((await ownerOf(request)).id, defined({ ...order, quantity: count })));
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
      schema: { querystring: PageQuery, response: { 200: Envelope(DuplicateSubscriptions) } },
    },
    async (request) => ok(await duplicates.list(request.query.after)),
  );
}
