import type { IncomingMessage } from 'node:http';
import { access, originOf, type Scope } from '../kernel/http.js';
import { ok } from '../kernel/schemas.js';
import { CheckoutAnswer, CheckoutBody, PortalAnswer, PortalBody, WebhookAnswer } from './schemas.js';
import type { Billing } from './service.js';
import type { Webhook } from './webhook.js';

const BODY_LIMIT = 512 * 1024;

/** The gateway gives up after ten seconds; whatever else hangs ends here. Milliseconds. */
const PROVIDER_TIMEOUT = 15_000;

/** What users buy and manage. */
export async function billingPlugin(scope: Scope, { billing }: { billing: Billing }): Promise<void> {
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
}

/** Where the payment provider delivers its events: the raw body counts, byte by byte. */
export async function webhookPlugin(scope: Scope, { webhook }: { webhook: Webhook }): Promise<void> {
  scope.removeContentTypeParser('application/json');
  scope.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (_request: unknown, body: Buffer) => body,
  );

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
        body: rawBodyOf(request.raw, request.body),
        ip: originOf(request).ip,
      });
      return ok({ received: true as const, outcome });
    },
  );
}

/**
 * The bytes as they were signed. A host that has parsed them already must have kept them in `req.rawBody`;
 * without, every signature would look false, so this is our failure to report and not the provider's.
 */
function rawBodyOf(request: IncomingMessage & { body?: unknown; rawBody?: unknown }, body: unknown): Buffer {
  if (request.body === undefined) return Buffer.isBuffer(body) ? body : Buffer.alloc(0);
  if (Buffer.isBuffer(request.rawBody)) return request.rawBody;
  if (typeof request.rawBody === 'string') return Buffer.from(request.rawBody);
  throw new Error(
    'The host parsed the body of the payment webhook before this middleware. Mount the middleware before the ' +
      'body parser, or keep the bytes in req.rawBody (express.json: verify: (req, _res, raw) => { req.rawBody = raw }).',
  );
}
