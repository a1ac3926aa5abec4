import type { Meter, ObservableCallback } from '@opentelemetry/api';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Registry } from 'prom-client';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { access, type FastifyTypebox } from '../http/routes.js';
import { SECOND } from '../kernel/clock.js';
import { packageVersion } from '../kernel/package-files.js';

/**
 * Metrics in the text format of Prometheus. prom-client is loaded only if they or telemetry are enabled. No label contains what a client
 * chose, so that the number of time series is bounded.
 */

/** The values of the metrics of one process, in a form that can be sent to another process. */
export type MetricValues = readonly object[];

/** The other processes that serve the same port: a response contains the sums over all of them. */
export interface MetricsPeers {
  /** Called once, with the function that reads the values of this process. */
  share(read: () => Promise<MetricValues>): void;
  /** Returns the values of the others, which get those of this process in exchange. Does not reject. */
  collect(own: MetricValues): Promise<MetricValues[]>;
}

/** What a metric is called, without the prefix of the product. */
export interface MetricDefinition<L extends string> {
  name: string;
  help: string;
  labels?: readonly L[];
}

export type Labels<L extends string> = Record<L, string>;

/** One value of a gauge. */
export interface Sample<L extends string> {
  value: number;
  labels: Labels<L>;
}

export type Metrics = Awaited<ReturnType<typeof openMetrics>>;

/** The option of both products. */
export function metricsOption(env: string, credentials: string) {
  return option(Type.Boolean({ default: false }), {
    env,
    doc: `Serve metrics for Prometheus at \`/metrics\`, with ${credentials}: docs/operate/metrics.md.`,
  });
}

const RESPONSE_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Shorter than the timeout of a scrape, which is ten seconds by default. */
const READ_TIMEOUT_MS = 2 * SECOND;

/** The route of requests that matched none. */
const UNKNOWN_ROUTE = 'unknown';

type Client = typeof import('prom-client');

/** The metrics of Node.js. One registry for each process, because their observers cannot be removed. */
let processRegistry: Registry | undefined;

function registryOfProcess({ Registry, collectDefaultMetrics }: Client): Registry {
  if (!processRegistry) {
    processRegistry = new Registry();
    collectDefaultMetrics({ register: processRegistry });
  }
  return processRegistry;
}

/**
 * Loads prom-client.
 *
 * @param product the prefix of all names, except for those of Node.js
 * @param meter of OpenTelemetry, which gets the same metrics except for those of Node.js
 */
export async function openMetrics(product: 'saas_backend' | 'idp', peers?: MetricsPeers, meter?: Meter) {
  const client = await import('prom-client');
  const { AggregatorRegistry, Counter, Gauge, Histogram, Registry } = client;
  const registry = new Registry();
  const registries = [registryOfProcess(client), registry];
  const storeGauges: ((target: Registry) => Promise<void>)[] = [];

  const configurationOf = <L extends string>({ name, help, labels = [] }: MetricDefinition<L>) => ({
    name: `${product}_${name}`,
    help,
    labelNames: labels as readonly string[],
  });

  /** Returns the function that counts. @param initial the labels that are present, with 0, before the first event */
  const counter = <L extends string = never>({
    initial = [],
    ...definition
  }: MetricDefinition<L> & { initial?: readonly Labels<L>[] }): ((
    labels: Labels<L>,
    count?: number,
  ) => void) => {
    const metric = new Counter({ ...configurationOf(definition), registers: [registry] });
    const exported = meter?.createCounter(`${product}_${definition.name}`, { description: definition.help });
    const add = (labels: Labels<L>, count = 1) => {
      metric.inc(labels, count);
      exported?.add(count, labels);
    };
    for (const labels of initial) add(labels, 0);
    return add;
  };
  /** Returns the function that records a duration. */
  const histogram = <L extends string>({
    buckets,
    ...definition
  }: MetricDefinition<L> & { buckets: readonly number[] }): ((
    labels: Labels<L>,
    seconds: number,
  ) => void) => {
    const configuration = { ...configurationOf(definition), buckets: [...buckets], registers: [registry] };
    const metric = new Histogram(configuration);
    const exported = meter?.createHistogram(configuration.name, {
      description: definition.help,
      unit: 's',
      advice: { explicitBucketBoundaries: configuration.buckets },
    });
    return (labels, seconds) => {
      metric.observe(labels, seconds);
      exported?.record(seconds, labels);
    };
  };

  const recordDuration = histogram({
    name: 'http_request_duration_seconds',
    help: 'Time from the receipt of a request to the end of its response.',
    labels: ['method', 'route'],
    buckets: RESPONSE_BUCKETS,
  });
  const countResponse = counter({
    name: 'http_requests_total',
    help: 'Responses by method, route and status.',
    labels: ['method', 'route', 'status'],
  });
  const countReadError = counter({
    name: 'scrape_errors_total',
    help: 'Metrics that could not be read from the store.',
    labels: ['metric'],
  });

  const readOwn = async (): Promise<MetricValues> =>
    (await Promise.all(registries.map((one) => one.getMetricsAsJSON()))).flat();
  peers?.share(readOwn);

  /** The metrics of this process, or the sums over all processes. */
  const readProcesses = async (): Promise<string> => {
    if (!peers) return Registry.merge(registries).metrics();
    const own = await readOwn();
    return AggregatorRegistry.aggregate([own, ...(await peers.collect(own))] as object[]).metrics();
  };

  const stopExports: (() => void)[] = [];
  /** Gives the values of a gauge to OpenTelemetry whenever it exports. */
  const exportGauge = <L extends string>(
    { name, help }: MetricDefinition<L>,
    read: () => readonly Sample<L>[] | Promise<readonly Sample<L>[]>,
  ): void => {
    const exported = meter?.createObservableGauge(`${product}_${name}`, { description: help });
    if (!exported) return;
    const observe: ObservableCallback = async (result) => {
      for (const { labels, value } of await read()) result.observe(value, labels);
    };
    exported.addCallback(observe);
    stopExports.push(() => exported.removeCallback(observe));
  };

  /** A value of this process. The response contains the sum over all processes of the port, or their maximum. */
  const gauge = <L extends string = never>(
    { combine = 'sum', ...definition }: MetricDefinition<L> & { combine?: 'sum' | 'max' },
    read: () => readonly Sample<L>[],
  ): void => {
    const metric: InstanceType<typeof Gauge> = new Gauge({
      ...configurationOf(definition),
      aggregator: combine,
      registers: [registry],
      collect() {
        for (const { labels, value } of read()) this.set(labels, value);
      },
    });
    metric.reset();
    exportGauge(definition, read);
  };

  const build = { version: packageVersion(), node: process.version };
  gauge({ name: 'build_info', help: 'Always 1.', labels: ['version', 'node'], combine: 'max' }, () => [
    { labels: build, value: 1 },
  ]);

  return {
    counter,
    histogram,
    gauge,

    /**
     * A value in the store, which is the same for all processes. `read` is called for each response and has to be bounded. If it fails or
     * takes too long, the response does not contain the metric and `scrape_errors_total` is incremented.
     */
    storeGauge<L extends string = never>(
      definition: MetricDefinition<L>,
      read: () => Promise<readonly Sample<L>[]>,
    ) {
      const configuration = configurationOf(definition);
      countReadError({ metric: configuration.name }, 0);
      const readInTime = () =>
        inTime(read()).catch((): null => {
          countReadError({ metric: configuration.name });
          return null;
        });
      storeGauges.push(async (target) => {
        const samples = await readInTime();
        if (!samples) return;
        const gauge = new Gauge({ ...configuration, registers: [target] });
        for (const { labels, value } of samples) gauge.set(labels, value);
      });
      exportGauge(definition, async () => (await readInTime()) ?? []);
    },

    /** Called before the store is closed. */
    close(): void {
      for (const stop of stopExports) stop();
    },

    /** Counts a response and its duration. */
    observeResponse(request: FastifyRequest, reply: FastifyReply) {
      const { method } = request;
      const route = (request.is404 ? undefined : request.routeOptions.url) ?? UNKNOWN_ROUTE;
      countResponse({ method, route, status: String(reply.statusCode) });
      recordDuration({ method, route }, reply.elapsedTime / SECOND);
    },

    /** The response to a scrape. */
    async expose(): Promise<{ contentType: string; text: string }> {
      const stored = new Registry();
      // Before the others, so that the response counts its own errors.
      await Promise.all(storeGauges.map((add) => add(stored)));
      const texts = [await readProcesses(), await stored.metrics()];
      return { contentType: registry.contentType, text: texts.filter((text) => text.trim() !== '').join('') };
    },
  };
}

async function inTime<R>(work: Promise<R>): Promise<R> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('The store did not respond in time.')), READ_TIMEOUT_MS);
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/** The route of the metrics, where a guard for the access level `metrics` exists. */
export async function metricsPlugin(
  fastify: FastifyTypebox,
  { metrics }: { metrics: Pick<Metrics, 'expose'> },
): Promise<void> {
  const config = access('metrics', { duringMaintenance: true, isProbe: true });
  fastify.get('/metrics', { config }, async (_request, reply) => {
    const { contentType, text } = await metrics.expose();
    return reply.type(contentType).send(text);
  });
}
