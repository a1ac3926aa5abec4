import { CLOCK_SKEW_MS, DAY, every, HOUR, SECOND } from '../../core/kernel/clock.js';
import type { Job } from '../../core/ops/jobs.js';
import { lease } from '../../core/ops/outbox.js';
import { createPurge } from '../../core/ops/purge.js';
import type { SendRequest } from '../../core/outbound/request.js';
import { pagesOf } from '../../core/storage/pages.js';
import { type EndpointHealth, failPending } from './health.js';
import { delayAfter, MAX_DELAY_MS, readRetryAfter } from './schedule.js';
import { openSecrets, signatureHeaders } from './signing.js';
import {
  type DeliveryDocument,
  ENDPOINT_PREFIX,
  type EndpointDocument,
  type WebhookDependencies,
} from './store.js';

/** Sends deliveries, each at least once. */
export interface SenderDependencies extends WebhookDependencies {
  health: EndpointHealth;
  send: SendRequest;
  /** Called after each attempt. */
  onAttempt: ((result: 'delivered' | 'refused' | 'unanswered') => void) | undefined;
}

export type Sender = ReturnType<typeof createSender>;

/** How long an endpoint may take to answer. */
export const ANSWER_TIMEOUT_MS = 15 * SECOND;

/** Attempts at one endpoint in parallel. */
const CONCURRENCY = 4;

const BATCH_SIZE = 20;

/** How soon a delivery is found that another process has recorded, or whose time has come. */
const INTERVAL_SECONDS = 5;

/** How long a stopping server waits for answers. */
const STOP_TIMEOUT_MS = 3 * SECOND;

/** How much of an answer is read, for the operator. */
const MAX_ANSWER_BYTES = 300;

const MAX_REASON_LENGTH = 300;

/** The latest attempts that are kept. */
const MAX_HISTORY = 20;

/** How long deliveries are kept, so that the operator can look at them and send them again. */
const RETENTION_MS = 30 * DAY;

interface Result {
  isDelivered: boolean;
  /** As the operator sees it. */
  text: string;
  /** Absent if there was no answer. */
  status?: number;
  answer?: string;
  retryAfterMs?: number | undefined;
}

/** What ends a series of attempts: no further one begins, and a little later the running ones end. */
interface Ends {
  signal: AbortSignal;
  cut: AbortSignal;
}

/** Without control characters and lone surrogates, which the store refuses. */
const printable = (text: string): string =>
  text
    .toWellFormed()
    .replaceAll(/\p{Cc}/gu, ' ')
    .trim();

export function createSender(deps: SenderDependencies) {
  const { endpoints, deliveries, health, encryption, send, onAttempt, clock } = deps;
  let wakeUp = () => {};

  const request = async (
    endpoint: EndpointDocument,
    { webhookId, body }: DeliveryDocument,
    cut: AbortSignal,
  ): Promise<Result> => {
    try {
      const secrets = openSecrets(endpoint, { encryption, clock });
      const {
        status,
        headers,
        body: answer,
      } = await send(endpoint.url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'user-agent': 'saas-backend webhooks',
          ...signatureHeaders({ id: webhookId, body }, secrets, clock.now()),
        },
        body,
        maxBytes: MAX_ANSWER_BYTES,
        isExcerpt: true,
        signal: cut,
      });
      const isBusy = status === 429 || status === 503;
      return {
        isDelivered: status >= 200 && status < 300,
        text: `status ${status}`,
        status,
        answer: printable(answer),
        retryAfterMs: isBusy ? readRetryAfter(headers['retry-after'], clock.now()) : undefined,
      };
    } catch (error) {
      const reason = printable(
        (error instanceof Error ? error.message : String(error)).slice(0, MAX_REASON_LENGTH),
      );
      return { isDelivered: false, text: reason || 'no answer' };
    }
  };

  /** The answer to a body that has lost personal data since may repeat them. */
  const dropForeignAnswer = async (sent: DeliveryDocument, now: DeliveryDocument | null): Promise<void> => {
    if (now && now.body !== sent.body) await deliveries.updateOne({ id: now.id }, { unset: ['answer'] });
  };

  /** Makes one attempt. Returns false if the endpoint takes no further ones now. */
  const attempt = async (due: DeliveryDocument, cut: AbortSignal): Promise<boolean> => {
    const { id } = due;
    const endpoint = await endpoints.findOne({ id: due.endpointId });
    if (!endpoint || !health.isOpen(endpoint)) return false;
    const leased = await lease(deliveries, due, clock.now());
    if (!leased) return true;
    const result = await request(endpoint, leased, cut);
    onAttempt?.(result.isDelivered ? 'delivered' : result.status === undefined ? 'unanswered' : 'refused');
    const at = clock.now();
    const own = { id, attempts: leased.attempts };
    const seen = {
      lastResult: result.text,
      history: [...leased.history, { at, result: result.text }].slice(-MAX_HISTORY),
      ...(result.answer && { answer: result.answer }),
    };
    const unset = result.answer ? [] : (['answer'] as const);
    if (result.isDelivered) {
      const ended = { ...seen, status: 'delivered', endedAt: at } as const;
      await dropForeignAnswer(
        leased,
        await deliveries.updateOne(own, { set: ended, unset: [...unset, 'dueAt'] }),
      );
      await health.succeeded(endpoint);
      return true;
    }
    const delay = delayAfter(leased.attempts - (leased.scheduledFrom ?? 0), result.retryAfterMs);
    const repeated = await deliveries.updateOne(
      // Unless it has failed meanwhile, because the endpoint was disabled.
      { ...own, dueAt: leased.dueAt ?? 0 },
      delay === null
        ? { set: { ...seen, status: 'failed', endedAt: at }, unset: [...unset, 'dueAt'] }
        : { set: { ...seen, dueAt: at + delay }, unset },
    );
    await dropForeignAnswer(leased, repeated);
    // An attempt that this process has ended says nothing about the endpoint.
    if (cut.aborted) return false;
    return health.failed(endpoint, result);
  };

  /** Makes the attempts at one endpoint that are due. */
  const deliverTo = async (endpointId: string, { signal, cut }: Ends): Promise<void> => {
    for (;;) {
      const now = clock.now();
      const due = await deliveries.page({
        where: { endpointId, dueAt: { lte: now } },
        sort: 'dueAt',
        limit: BATCH_SIZE,
      });
      // Due implausibly late: scheduled by a clock that has been set back since.
      const late = { endpointId, dueAt: { gt: now + MAX_DELAY_MS + CLOCK_SKEW_MS } };
      const items =
        due.items.length > 0
          ? due.items
          : (await deliveries.page({ where: late, sort: 'dueAt', limit: BATCH_SIZE })).items;
      const queue = items.values();
      let isOpen = items.length > 0;
      const worker = async () => {
        for (const delivery of queue) {
          if (signal.aborted || !isOpen) return;
          if (!(await attempt(delivery, cut))) isOpen = false;
        }
      };
      await Promise.all(Array.from({ length: CONCURRENCY }, worker));
      if (!isOpen || signal.aborted) return;
    }
  };

  const listOpen = async (): Promise<string[]> => {
    const open: string[] = [];
    for await (const items of pagesOf(endpoints, { sort: 'createdAt' }))
      open.push(...items.filter(health.isOpen).map(({ id }) => id));
    return open;
  };

  /** Each endpoint has a series of attempts of its own, so that a slow one does not delay the others. */
  const deliverAll = async (signal: AbortSignal): Promise<void> => {
    const running = new Map<string, Promise<void>>();
    const failures: unknown[] = [];
    const stopping = new AbortController();
    signal.addEventListener('abort', () => {
      setTimeout(() => stopping.abort(), STOP_TIMEOUT_MS).unref();
      wakeUp();
    });
    const stopTimer = every(clock, SECOND, () => wakeUp());
    try {
      while (!signal.aborted && failures.length === 0) {
        const woken = new Promise<void>((resolve) => {
          wakeUp = resolve;
        });
        for (const id of await listOpen()) {
          if (running.has(id)) continue;
          const one = deliverTo(id, { signal, cut: stopping.signal })
            .catch((error: unknown) => failures.push(error))
            .then(() => {
              running.delete(id);
            });
          running.set(id, one);
        }
        await Promise.race([woken, Promise.all(running.values())]);
        if (running.size === 0) break;
      }
      await Promise.all(running.values());
    } finally {
      stopTimer();
    }
    if (failures.length > 0) throw failures[0];
  };

  /** Ends what is left of endpoints that were disabled or removed, also by events that were recorded meanwhile. */
  const endUnsendable = async (): Promise<void> => {
    const now = clock.now();
    const ids: string[] = [];
    for await (const items of pagesOf(endpoints, { sort: 'createdAt' })) {
      for (const { id, disabledAt } of items) {
        ids.push(id);
        if (disabledAt !== undefined) await failPending(deliveries, { endpointId: id, now });
      }
    }
    // Between two endpoints that follow each other, the IDs are of removed ones, or of one that was added since.
    const createdAt = { lt: now - HOUR };
    let gt = ENDPOINT_PREFIX;
    for (const lt of [...ids.sort(), `${ENDPOINT_PREFIX}~`]) {
      await deliveries.deleteMany({ endpointId: { gt, lt }, createdAt });
      gt = lt;
    }
  };

  const purge = createPurge(deliveries, {
    where: () => ({ createdAt: { lt: clock.now() - RETENTION_MS } }),
    sort: 'createdAt',
  });

  return {
    jobs: {
      send: { everySeconds: INTERVAL_SECONDS, run: ({ signal }) => deliverAll(signal) },
      purge: {
        ...purge,
        async run(lease) {
          await endUnsendable();
          return purge.run(lease);
        },
      },
    } satisfies { send: Job; purge: Job },
    /** Has a running job look for deliveries again. */
    notify: () => wakeUp(),
  };
}
