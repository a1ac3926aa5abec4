import type { Worker } from 'node:cluster';
import { SECOND } from '../src/core/kernel/clock.js';
import type { MetricsPeers, MetricValues } from '../src/core/ops/metrics.js';

/**
 * Metrics of `serve --workers N`: the worker that receives a scrape asks the primary, which asks the other workers. The
 * primary adds up nothing, so that it does not have to load prom-client.
 */

/** The messages, all of which have the property `metrics`. */
type Message =
  /** From a worker: it responds to `read`. */
  | { metrics: 'ready' }
  /** From a worker: its own values, and the request for those of the others. */
  | { metrics: 'collect'; id: number; values: MetricValues }
  /** To a worker: the request for its values. */
  | { metrics: 'read'; id: number }
  /** From a worker: the response to `read`; to a worker: the response to `collect`. */
  | { metrics: 'values'; id: number; values: MetricValues }
  | { metrics: 'collected'; id: number; others: MetricValues[] };

const isMessage = (message: unknown): message is Message =>
  typeof message === 'object' && message !== null && 'metrics' in message;

/** How long the primary waits for a worker. */
const READ_TIMEOUT_MS = 2 * SECOND;

/** How long a worker waits for the primary. */
const COLLECT_TIMEOUT_MS = READ_TIMEOUT_MS + SECOND;

/** Requests that wait for a response, by number. */
class Pending<R> {
  readonly #resolvers = new Map<number, (result: R | undefined) => void>();
  #count = 0;

  /** Sends a request and resolves with its response; with `undefined` after the timeout. */
  ask(timeoutMs: number, send: (id: number) => void): Promise<R | undefined> {
    const id = this.#count++;
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.settle(id), timeoutMs);
      this.#resolvers.set(id, (result) => {
        clearTimeout(timer);
        resolve(result);
      });
      send(id);
    });
  }

  settle(id: number, result?: R): void {
    this.#resolvers.get(id)?.(result);
    this.#resolvers.delete(id);
  }

  settleAll(): void {
    for (const id of [...this.#resolvers.keys()]) this.settle(id);
  }
}

/** In a worker: the other workers. */
export function createMetricsPeers(): MetricsPeers {
  const pending = new Pending<MetricValues[]>();
  // The channel closes when the primary ends, and this worker with it.
  const send = (message: Message) => void (process.connected && process.send?.(message));
  return {
    share(read) {
      process.on('message', (message) => {
        if (!isMessage(message)) return;
        if (message.metrics === 'collected') pending.settle(message.id, message.others);
        if (message.metrics !== 'read') return;
        const { id } = message;
        read().then(
          (values) => send({ metrics: 'values', id, values }),
          () => undefined,
        );
      });
      send({ metrics: 'ready' });
    },
    collect: async (values) =>
      (await pending.ask(COLLECT_TIMEOUT_MS, (id) => send({ metrics: 'collect', id, values }))) ?? [],
  };
}

/**
 * In the primary: returns a function that adds a worker. Prometheus takes a sum that decreases for a restart of the
 * program, so the latest values of a worker count when it does not respond, and those of its counters also after its end.
 */
export function relayMetrics(): (worker: Worker) => void {
  const latest = new Map<Worker, MetricValues>();
  const requests = new Map<Worker, Pending<MetricValues>>();
  let ended: MetricValues = [];

  const read = async (worker: Worker): Promise<MetricValues> => {
    const values = await requests.get(worker)?.ask(READ_TIMEOUT_MS, (id) => {
      if (worker.isConnected()) worker.send({ metrics: 'read', id } satisfies Message);
      else requests.get(worker)?.settle(id);
    });
    // A worker that has ended meanwhile is part of `ended`.
    if (values && requests.has(worker)) latest.set(worker, values);
    return latest.get(worker) ?? [];
  };

  const respond = async (asking: Worker, id: number): Promise<void> => {
    const workers = [...requests.keys()].filter((worker) => worker !== asking);
    const others = await Promise.all(workers.map(read));
    if (asking.isConnected())
      asking.send({ metrics: 'collected', id, others: [...others, ended] } satisfies Message);
  };

  return (worker) => {
    worker.on('message', (message) => {
      if (!isMessage(message)) return;
      if (message.metrics === 'ready') requests.set(worker, new Pending());
      if (message.metrics === 'values') requests.get(worker)?.settle(message.id, message.values);
      if (message.metrics !== 'collect') return;
      latest.set(worker, message.values);
      void respond(worker, message.id);
    });
    worker.once('exit', () => {
      const pending = requests.get(worker);
      ended = addCounters(ended, latest.get(worker) ?? []);
      requests.delete(worker);
      latest.delete(worker);
      pending?.settleAll();
    });
  };
}

/** A metric as prom-client describes it. */
interface Metric {
  name: string;
  type: string;
  values: { metricName?: string; labels: Record<string, string | number>; value: number }[];
}

/** Adds up the values that only increase; those of the other metrics end with their process. */
function addCounters(sums: MetricValues, values: MetricValues): MetricValues {
  const metrics = new Map((sums as Metric[]).map((metric) => [metric.name, metric]));
  for (const metric of values as Metric[]) {
    if (metric.type !== 'counter' && metric.type !== 'histogram') continue;
    const known = new Map(
      metrics.get(metric.name)?.values.map((entry) => [keyOf(entry), entry] as const) ?? [],
    );
    for (const entry of metric.values) {
      const before = known.get(keyOf(entry))?.value ?? 0;
      known.set(keyOf(entry), { ...entry, value: before + entry.value });
    }
    metrics.set(metric.name, { ...metric, values: [...known.values()] });
  }
  return [...metrics.values()];
}

const keyOf = ({ metricName, labels }: Metric['values'][number]): string =>
  JSON.stringify([metricName, Object.entries(labels).sort(([one], [other]) => (one < other ? -1 : 1))]);
