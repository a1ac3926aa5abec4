import { once } from 'node:events';
import { createServer } from 'node:net';
import type { TObject } from 'typebox';
import {
  applicableWarnings,
  ConfigurationError,
  type ConfigurationWarning,
  type Problem,
} from '../config/configuration-error.js';
import { developmentSecretsProblem } from '../config/development-secrets.js';
import { describeOptions } from '../config/option-rows.js';
import type { Resolved } from '../config/options.js';
import { systemClock } from '../kernel/clock.js';
import type { Health, Product } from '../ops/health.js';
import { inspectStore, lowDiskSpace, serverTimeOf } from '../storage/inspect.js';
import { rejectStoreOfOther } from './claimed-store.js';
import { clockProblem } from './clock-check.js';
import { type ListeningError, listenAddress, listeningProblem, urlHost } from './listening.js';
import { type ServerConfiguration, variableOf } from './options.js';
import { unlistedProxyWarning } from './proxies.js';

/** Checks whether a program could start, without changing anything. */

export interface Finding {
  /** A `problem` prevents the start, a `warning` does not. */
  level: 'problem' | 'warning' | 'ok';
  /** A variable or another subject. */
  about: string;
  message: string;
  remedy?: string;
}

export interface DoctorTarget<Values extends { databaseUri: string }> {
  /** The name of a running server of this program in `/health`. */
  product: Product;
  /** The options of the plugin and of its server. */
  schemas: readonly TObject[];
  /** @throws ConfigurationError */
  resolve(): [server: Resolved<ServerConfiguration>, plugin: Resolved<Values>];
  /** Warnings about a valid configuration. Never contain a secret. */
  warningsOf(plugin: Resolved<Values>, server: Resolved<ServerConfiguration>): ConfigurationWarning[];
  /** Extracts the state from a response of `/health`. */
  unwrapHealth(answer: unknown): unknown;
}

/** Checks configuration, store and port. */
export async function diagnose<Values extends { databaseUri: string }>(
  target: DoctorTarget<Values>,
): Promise<Finding[]> {
  let resolved: ReturnType<DoctorTarget<Values>['resolve']>;
  try {
    resolved = target.resolve();
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return error.details.map((problem) => toFinding('problem', problem, target.schemas));
  }
  const [server, plugin] = resolved;
  const mode = plugin.production ? 'production' : 'development';
  return [
    { level: 'ok', about: 'configuration', message: `is complete for ${mode}` },
    ...[...plugin.warnings, ...server.warnings].map((problem) =>
      toFinding('warning', problem, target.schemas),
    ),
    ...generatedFindings(plugin),
    ...applicableWarnings(target.warningsOf(plugin, server)).map((advice) => ({
      level: 'warning' as const,
      ...advice,
    })),
    ...(await checkStore(plugin.values.databaseUri, target.product)),
    ...(await checkPort(server, target)),
  ];
}

/** @param problem whose message begins with its variable */
function toFinding(
  level: Finding['level'],
  { message: sentence, remedy: own }: Problem,
  schemas: readonly TObject[],
): Finding {
  const [, about = 'configuration', message = sentence] = /^([A-Z][A-Z0-9_]+)\s(.*)$/s.exec(sentence) ?? [];
  // The generic remedy below would contradict the specific one.
  if (own !== undefined) return { level, about, message, remedy: own };
  const variable = about.replace(/_FILE$/, '');
  const rows = schemas.flatMap(describeOptions);
  const row = rows.find(({ env, fallbackEnv }) => [env, fallbackEnv].includes(variable));
  if (!row) return { level, about, message };
  const file = row.file ? `, or ${row.env}_FILE to a file that contains it` : '';
  // Does not repeat a description that the message contains.
  const doc = sentence.includes(row.doc) ? '' : ` ${row.doc}`;
  return { level, about, message, remedy: `Set ${row.env}${file}.${doc}` };
}

function generatedFindings({ generated: { names, file } }: Resolved<unknown>): Finding[] {
  if (names.length === 0) return [];
  const about = names.join(', ');
  const problem = developmentSecretsProblem(file, names);
  if (problem !== null) {
    const message = `cannot save the values generated for development: ${problem}`;
    return [{ level: 'problem', about, message, remedy: 'Set them, or grant this user write access.' }];
  }
  return [
    { level: 'ok', about, message: `generated for development and kept in ${file}; required in production` },
  ];
}

async function checkStore(uri: string, product: Product): Promise<Finding[]> {
  const about = variableOf(product, 'DATABASE_URI');
  try {
    const message = `names a store that ${await inspectStore(uri)}`;
    await rejectStoreOfOther(uri, product);
    const space = lowDiskSpace(uri);
    const clocks = await compareClocks(uri);
    return [
      { level: 'ok', about, message },
      ...(space === undefined ? [] : [{ level: 'warning' as const, about, ...space }]),
      ...(clocks ? [{ level: 'warning' as const, about: 'clock', ...clocks }] : []),
    ];
  } catch (error) {
    const { message, remedy } = error as Error & { remedy?: string };
    return [{ level: 'problem', about, message, ...(remedy && { remedy }) }];
  }
}

async function compareClocks(uri: string): Promise<Pick<Finding, 'message' | 'remedy'> | null> {
  const problem = await clockProblem(() => serverTimeOf(uri), systemClock);
  return problem && { message: problem.message, remedy: problem.remedy };
}

async function checkPort<Values extends { databaseUri: string }>(
  server: Resolved<ServerConfiguration>,
  target: DoctorTarget<Values>,
): Promise<Finding[]> {
  const { host, port } = listenAddress(server);
  const names = { port: variableOf(target.product, 'PORT'), host: variableOf(target.product, 'HOST') };
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
    const message = port === 0 ? 'is 0: any free port' : `${port} is free`;
    return [{ level: 'ok', about: names.port, message }];
  } catch (error) {
    const problem = listeningProblem(error as ListeningError, names);
    const isInUse = problem?.about === 'port' && (error as ListeningError).code === 'EADDRINUSE';
    const health = isInUse ? await fetchHealth(`http://${urlHost(host)}:${port}/health`, target) : null;
    if (health) {
      const message = `${port} is in use by ${target.product} itself, which is already running`;
      const running: Finding = { level: 'ok', about: names.port, message };
      return [running, ...unlistedProxyFinding(health, target.product, server.values.trustProxy)];
    }
    if (!problem) throw error;
    return [{ level: 'problem', ...problem, about: names[problem.about] }];
  } finally {
    probe.close();
  }
}

/** The unlisted proxy that a running server has detected. */
function unlistedProxyFinding(
  { unlistedProxy: address }: Health,
  product: Product,
  trusted: ServerConfiguration['trustProxy'],
): Finding[] {
  const about = variableOf(product, 'TRUST_PROXY');
  return address === undefined
    ? []
    : [{ level: 'warning', about, ...unlistedProxyWarning(address, about, trusted) }];
}

/** The `/health` of the server that uses the port; `null` if it is another program. */
async function fetchHealth(
  address: string,
  { product, unwrapHealth }: Pick<DoctorTarget<never>, 'product' | 'unwrapHealth'>,
): Promise<Health | null> {
  try {
    const answer = await fetch(address, { redirect: 'error', signal: AbortSignal.timeout(2000) });
    const health = unwrapHealth(await answer.json()) as Partial<Health> | null | undefined;
    return answer.ok && health?.status === 'ok' && health.product === product ? (health as Health) : null;
  } catch {
    // Another program may not speak HTTP or JSON.
    return null;
  }
}
