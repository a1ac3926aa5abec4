import { once } from 'node:events';
import { createServer } from 'node:net';
import type { TObject } from 'typebox';
import {
  type Advice,
  applicableAdvice,
  ConfigurationError,
  type Problem,
} from '../config/configuration-error.js';
import { developmentSecretsProblem } from '../config/development-secrets.js';
import { describeOptions } from '../config/option-rows.js';
import type { Resolved } from '../config/options.js';
import type { Health, Product } from '../ops/health.js';
import { inspectStore } from '../storage/inspect.js';
import { type ListeningError, listenAddress, listeningProblem, urlHost } from './listening.js';
import type { ServerConfiguration } from './options.js';
import { unlistedProxyAdvice } from './proxies.js';

/** Tries what the start of a program tries, and undoes it. */

export interface Finding {
  /** A `problem` keeps the program from starting; a `warning` lets it work and is advise. */
  level: 'problem' | 'warning' | 'ok';
  /** A variable, or what else it is about. */
  about: string;
  message: string;
  /** What to do. */
  remedy?: string;
}

export interface DoctorTarget<Values extends { databaseUri: string }> {
  /** What `/health` names a running server of this program. */
  product: Product;
  /** The options of the plugin and of its server. */
  schemas: readonly TObject[];
  /** @throws ConfigurationError */
  resolve(): [server: Resolved<ServerConfiguration>, plugin: Resolved<Values>];
  /** The variable of the store. */
  storeVariable: string;
  portVariable: string;
  hostVariable: string;
  proxyVariable: string;
  /** What works and is advise. Never holds a secret. */
  advise(plugin: Resolved<Values>, server: Resolved<ServerConfiguration>): Advice[];
  /** Takes the state out of an answer of `/health`. */
  unwrapHealth(answer: unknown): unknown;
}

/** Everything at once: configuration, store, port. */
export async function diagnose<Values extends { databaseUri: string }>(
  patient: DoctorTarget<Values>,
): Promise<Finding[]> {
  let resolved: ReturnType<DoctorTarget<Values>['resolve']>;
  try {
    resolved = patient.resolve();
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return error.details.map((problem) => explain('problem', problem, patient.schemas));
  }
  const [server, plugin] = resolved;
  const mode = plugin.production ? 'production' : 'development';
  return [
    { level: 'ok', about: 'configuration', message: `is complete for ${mode}` },
    ...[...plugin.warnings, ...server.warnings].map((problem) =>
      explain('warning', problem, patient.schemas),
    ),
    ...madeUp(plugin),
    ...applicableAdvice(patient.advise(plugin, server)).map((advice) => ({
      level: 'warning' as const,
      ...advice,
    })),
    await examineStore(plugin.values.databaseUri, patient.storeVariable),
    ...(await examinePort(server, patient)),
  ];
}

/** A problem of the configuration, whose message begins with its variable. */
function explain(
  level: Finding['level'],
  { message: sentence, remedy: own }: Problem,
  schemas: readonly TObject[],
): Finding {
  const [, about = 'configuration', message = sentence] = /^([A-Z][A-Z0-9_]+)\s(.*)$/s.exec(sentence) ?? [];
  // A problem that brings a remedy has no other: "unset it" and "set it" must not stand together.
  if (own !== undefined) return { level, about, message, remedy: own };
  const variable = about.replace(/_FILE$/, '');
  const rows = schemas.flatMap(describeOptions);
  const row = rows.find(({ env, fallbackEnv }) => [env, fallbackEnv].includes(variable));
  if (!row) return { level, about, message };
  const file = row.secret ? `, or ${row.env}_FILE to a file that holds it` : '';
  // Where the sentence repeats what the variable is for, the remedy says how to set it.
  const doc = sentence.includes(row.doc) ? '' : ` ${row.doc}`;
  return { level, about, message, remedy: `Set ${row.env}${file}.${doc}` };
}

function madeUp({ generated: { names, file } }: Resolved<unknown>): Finding[] {
  if (names.length === 0) return [];
  const about = names.join(', ');
  const problem = developmentSecretsProblem(file, names);
  if (problem !== null) {
    const message = `cannot save the values generated for development: ${problem}`;
    return [{ level: 'problem', about, message, remedy: 'Set them, or grant this user write access.' }];
  }
  return [
    { level: 'ok', about, message: `generated for development and saved in ${file}; required in production` },
  ];
}

async function examineStore(uri: string, about: string): Promise<Finding> {
  try {
    return { level: 'ok', about, message: `names a store that ${await inspectStore(uri)}` };
  } catch (error) {
    const { message, remedy } = error as Error & { remedy?: string };
    return { level: 'problem', about, message, ...(remedy && { remedy }) };
  }
}

async function examinePort<Values extends { databaseUri: string }>(
  server: Resolved<ServerConfiguration>,
  patient: DoctorTarget<Values>,
): Promise<Finding[]> {
  const { host, port } = listenAddress(server);
  const names = { port: patient.portVariable, host: patient.hostVariable };
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
    const message = port === 0 ? 'is 0: any free port' : `${port} is free`;
    return [{ level: 'ok', about: names.port, message }];
  } catch (error) {
    const problem = listeningProblem(error as ListeningError, names);
    const isInUse = problem?.about === 'port' && (error as ListeningError).code === 'EADDRINUSE';
    const health = isInUse ? await askServer(`http://${urlHost(host)}:${port}/health`, patient) : null;
    if (health) {
      const message = `${port} is in use by ${patient.product} itself, which is already running`;
      const running: Finding = { level: 'ok', about: names.port, message };
      return [running, ...unlistedProxy(health, patient.proxyVariable, server.values.trustProxy)];
    }
    if (!problem) throw error;
    return [{ level: 'problem', ...problem, about: names[problem.about] }];
  } finally {
    probe.close();
  }
}

/** What the running server met. */
function unlistedProxy(
  { unlistedProxy: address }: Health,
  about: string,
  trusted: ServerConfiguration['trustProxy'],
): Finding[] {
  return address === undefined
    ? []
    : [{ level: 'warning', about, ...unlistedProxyAdvice(address, about, trusted) }];
}

/** What the server that listens there says of itself; `null` when it is not the program that would start. */
async function askServer(
  address: string,
  { product, unwrapHealth }: Pick<DoctorTarget<never>, 'product' | 'unwrapHealth'>,
): Promise<Health | null> {
  try {
    const answer = await fetch(address, { redirect: 'error', signal: AbortSignal.timeout(2000) });
    const health = unwrapHealth(await answer.json()) as Partial<Health> | null | undefined;
    return answer.ok && health?.status === 'ok' && health.product === product ? (health as Health) : null;
  } catch {
    // Not every program that listens speaks HTTP and JSON.
    return null;
  }
}
