import type { IncomingMessage } from 'node:http';
import { ok } from '../http/schemas.js';
import { access, originOf, type Scope } from '../http/scope.js';
import type { Catalog } from './catalog.js';
import {
  CheckoutAnswer,
  CheckoutBody,
  InvoicesAnswer,
  PlansAnswer,
  PortalAnswer,
  PortalBody,
  SubscriptionAnswer,
  SyncBody,
  WebhookAnswer,
} from './schemas.js';
import type { Billing } from './service.js';
import type { SubscriptionService } from './subscription.js';
import type { Webhook } from './webhook.js';

const BODY_LIMIT = 512 * 1024;

/** For a request as a whole, however many calls to the provider it takes. Milliseconds. */
const PROVIDER_TIMEOUT = 10_000;

export interface BillingPluginOptions {
  billing: Billing;
  subscription: SubscriptionService;
  catalog: Catalog;
}

/** What users buy, have and manage. */
export async function billingPlugin(scope: Scope, deps: BillingPluginOptions): Promise<void> {
  const { billing, subscription, catalog } = deps;

  scope.post(
    '/billing/create-checkout-session',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT,
      schema: { body: CheckoutBody, response: { 200: CheckoutAnswer } },
    },
    async (request) => ok(await billing.checkout(request.saas.user, request.body)),
  );

  scope.post(
    '/billing/create-portal-session',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT,
      schema: { body: PortalBody, response: { 200: PortalAnswer } },
    },
    async (request) => ok(await billing.portal(request.saas.user, request.body.returnPath)),
  );

  scope.get(
    '/billing/subscription',
    { config: access('user'), schema: { response: { 200: SubscriptionAnswer } } },
    async (request) => ok(await subscription.current(request.saas.user.id)),
  );

  scope.post(
    '/billing/sync',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT,
      schema: { body: SyncBody, response: { 200: SubscriptionAnswer } },
    },
    async (request) => ok(await subscription.sync(request.saas.user, request.body.sessionId)),
  );

  scope.get(
    '/billing/invoices',
    {
      config: access('user'),
      handlerTimeout: PROVIDER_TIMEOUT,
      schema: { response: { 200: InvoicesAnswer } },
    },
    async (request) => ok(await catalog.invoices(request.saas.user.id)),
  );

  scope.get(
    '/billing/plans',
    {
      config: access('public'),
      handlerTimeout: PROVIDER_TIMEOUT,
      schema: { response: { 200: PlansAnswer } },
    },
    async () => ok(await catalog.plans()),
  );
}

/** Where the payment provider delivers its events: the raw body counts, byte by byte. */
export async function webhookPlugin(scope: Scope, { webhook }: { webhook: Webhook }): Promise<void> {
  scope.removeContentTypeParser('application/json');
  scope.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (_request: unknown, body: Buffer) => body,
  );
  // Some parsers leave an empty `req.body` on what they did not read.
  const readBefore = new WeakSet<IncomingMessage>();
  scope.addHook('onRequest', async ({ raw }) => void (raw.readableEnded && readBefore.add(raw)));

  scope.post(
    '/billing/webhook',
    {
      config: access('public', { duringMaintenance: true, unmetered: true }),
      bodyLimit: BODY_LIMIT,
      schema: { response: { 200: WebhookAnswer } },
    },
    async (request) => {
      const signature = request.headers['payment-signature'] || request.headers['stripe-signature'];
      const outcome = await webhook.receive({
        signature: Array.isArray(signature) ? undefined : signature,
        body: readBefore.has(request.raw) ? bytesKeptIn(request.raw) : bytesOf(request.body),
        ip: originOf(request).ip,
      });
      return ok({ received: true as const, outcome });
    },
  );
}

const bytesOf = (body: unknown): Buffer => (Buffer.isBuffer(body) ? body : Buffer.alloc(0));

/**
 * The bytes as they were signed. A host that has read them already must have kept them in `req.rawBody`;
 * without, every signature would look false, so this is our failure to report and not the provider's.
 */
function bytesKeptIn({ body, rawBody }: IncomingMessage & { body?: unknown; rawBody?: unknown }): Buffer {
  const kept = [rawBody, body].find(Buffer.isBuffer);
  if (kept) return kept;
  if (typeof rawBody === 'string') return Buffer.from(rawBody);
  throw new Error(
    'The host parsed the body of the payment webhook before this middleware. Mount the middleware before the ' +
      'body parser, or keep the bytes in req.rawBody (express.json: verify: (req, _res, raw) => { req.rawBody = raw }).',
  );
}
