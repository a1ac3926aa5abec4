import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { ok } from '../../../core/http/schemas.js';
import { toSeconds } from '../../../core/kernel/clock.js';
import { AppError } from '../../../core/kernel/errors.js';
import type { BillingContext } from '../context.js';
import { billingErrors } from '../errors.js';
import { isLiveKey } from '../options.js';
import { WebhookAnswer } from '../schemas.js';
import { EVENT_OUTCOMES, type EventOutcome } from '../store.js';
import type { EventProcessor } from './processor.js';
import { parseEvent } from './provider-objects.js';

/** `duplicate`: it was completed by an earlier delivery. */
export type WebhookOutcome = EventOutcome | 'duplicate';

/** One delivery of an event. */
export interface Delivery {
  signature: string | undefined;
  body: Buffer;
  ip: string;
}

export type Webhook = ReturnType<typeof createWebhook>;

export function createWebhook(
  { webhookSecrets: secrets, config, audit, clock, metrics }: BillingContext,
  processor: EventProcessor,
) {
  const verifier = createSignatureVerifier(secrets);
  // The events of the provider's test mode have no effect.
  const ignoresTestEvents = isLiveKey(config.paymentSecretKey);
  const count = metrics?.counter({
    name: 'webhook_events_total',
    help: 'Deliveries of payment events by outcome.',
    labels: ['outcome'],
    initial: [...EVENT_OUTCOMES, 'duplicate', 'rejected', 'failed'].map((outcome) => ({ outcome })),
  });

  const process = async ({ signature, body, ip }: Delivery): Promise<WebhookOutcome> => {
    if (secrets.length === 0) throw billingErrors.BILLING_NOT_CONFIGURED();
    const { matched, problem } = verifier.verify(signature, body, clock.now());
    if (matched === undefined) {
      // Requests without a signature are common scans and are not audited.
      if (signature !== undefined) await audit.recordFailure({ event: 'webhook.rejected', ip });
      // For the log: the response does not tell a forger what was wrong.
      throw billingErrors.INVALID_SIGNATURE({ cause: new Error(problem) });
    }
    const payload = body.toString('utf8');
    const event = parseEvent(payload, matched);
    // Not stored: its repetition is ignored again, and the events of others are not kept.
    if (!event || (ignoresTestEvents && event.livemode === false)) return 'ignored';
    return processor.receive(event, payload);
  };

  return {
    /**
     * Verifies and processes one delivery of an event.
     * @throws BILLING_NOT_CONFIGURED, INVALID_SIGNATURE, INVALID_JSON, VALIDATION_ERROR, EVENT_IN_PROGRESS
     */
    async receive(delivery: Delivery): Promise<WebhookOutcome> {
      try {
        const outcome = await process(delivery);
        count?.({ outcome });
        return outcome;
      } catch (error) {
        const isRejected = error instanceof AppError && error.statusCode === 400;
        count?.({ outcome: isRejected ? 'rejected' : 'failed' });
        throw error;
      }
    },
  };
}

/** A delivery is rejected if its time differs from the current time by more, in either direction. */
const TOLERANCE_SECONDS = 300;

/** Exceeds the needs of a rotation of secrets; further signatures are ignored. */
const MAX_SIGNATURES = 16;

/**
 * The provider's webhook signature: `t=<seconds>,v1=<hex>[,v1=<hex>…]`, where v1 is the HMAC-SHA256 of
 * `<t>.<raw body>`. Verified here because the provider's SDK accepts times in the far future.
 */
function createSignatureVerifier(secrets: readonly string[]) {
  const keys = secrets.map((secret) => createSecretKey(Buffer.from(secret)));
  return {
    /** The signature that matched, or what is wrong. `now` as Unix time in milliseconds. */
    verify(header: string | undefined, rawBody: Buffer, now: number): { matched?: string; problem?: string } {
      const signed = parseSignatureHeader(header);
      if (!signed)
        return { problem: header === undefined ? 'There is no signature.' : 'The signature is malformed.' };
      const difference = Math.abs(toSeconds(now) - Number(signed.time));
      if (difference > TOLERANCE_SECONDS)
        return { problem: `The signature and the clock of this server are ${difference} seconds apart.` };
      const expected = keys.map((key) => sign(key, signed.time, rawBody));
      // Every pair is compared, so that the response time does not reveal which one matched.
      const matching = signed.signatures.filter((candidate) => {
        const bytes = Buffer.from(candidate, 'hex');
        return expected.map((digest) => timingSafeEqual(digest, bytes)).includes(true);
      });
      const [matched] = matching;
      if (matched !== undefined) return { matched };
      const remedy = 'Compare PAYMENT_WEBHOOK_SECRET with the secret of this endpoint in this mode.';
      return { problem: `No signature fits the body of ${rawBody.length} bytes. ${remedy}` };
    },
  };
}

function sign(key: KeyObject, time: string, rawBody: Buffer): Buffer {
  return createHmac('sha256', key).update(`${time}.`).update(rawBody).digest();
}

/** The time and the well-formed v1 signatures; `null` unless there is exactly one time. */
function parseSignatureHeader(header: string | undefined): { time: string; signatures: string[] } | null {
  const times: string[] = [];
  const signatures: string[] = [];
  for (const pair of (header ?? '').split(',', MAX_SIGNATURES + 1)) {
    const text = pair.trim();
    if (text.startsWith('t=')) times.push(text.slice(2));
    else if (/^v1=[0-9a-f]{64}$/.test(text)) signatures.push(text.slice(3));
  }
  const [time] = times;
  if (time === undefined || times.length > 1 || !/^\d{1,12}$/.test(time)) return null;
  return { time, signatures };
}

const BODY_LIMIT = 512 * 1024;

/** The route for the provider's events, whose signature covers the bytes of the body. */
export async function webhookPlugin(fastify: FastifyTypebox, webhook: Webhook): Promise<void> {
  fastify.removeContentTypeParser('application/json');
  fastify.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (_request: unknown, body: Buffer) => body,
  );
  // Some body parsers of hosts set an empty `req.body` on requests that they did not read.
  const readBefore = new WeakSet<IncomingMessage>();
  fastify.addHook('onRequest', ({ raw }, _reply, done) => {
    if (raw.readableEnded) readBefore.add(raw);
    done();
  });

  fastify.post(
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
        ip: requestSource(request).ip,
      });
      return ok({ received: true as const, outcome });
    },
  );
}

const bytesOf = (body: unknown): Buffer => (Buffer.isBuffer(body) ? body : Buffer.alloc(0));

/**
 * The signed bytes of a body that the host has read already and kept in `req.rawBody`. Without them no signature could be
 * verified, which is an error of this installation and not of the provider.
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
