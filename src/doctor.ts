import { once } from 'node:events';
import { createServer } from 'node:net';
import type { TObject } from 'typebox';
import { ConfigurationError } from './kernel/configuration-error.js';
import { keepingProblem } from './kernel/development-secrets.js';
import { describeOptions } from './kernel/option-rows.js';
import type { Resolved } from './kernel/options.js';
import type { Health } from './ops/health.js';
import { urlHost } from './server-assembly.js';
import type { ServerConfiguration } from './server-options.js';
import { adviceOn } from './server-proxies.js';
import { inspectStore } from './storage/inspect.js';

/** Looks at what a program would start with, and changes nothing. */

export interface Finding {
  /** A `problem` keeps the program from starting; a `warning` lets it work and is unwise. */
  level: 'problem' | 'warning' | 'ok';
  /** A variable, or what else it is about. */
  about: string;
  message: string;
  /** What to do. */
  remedy?: string;
}

/** Whether it applies, to which variable, what is unwise about that, and what would be wiser. */
export type Advice = [applies: boolean, about: string, message: string, remedy: string];

export interface Patient<Values extends { databaseUri: string }> {
  /** The options of the plugin and of its server. */
  schemas: readonly TObject[];
  /** @throws ConfigurationError */
  resolve(): [server: Resolved<ServerConfiguration>, plugin: Resolved<Values>];
  /** The variable of the store. */
  storeVariable: string;
  portVariable: string;
  proxyVariable: string;
  /** What works and is unwise. Never holds a secret. */
  unwise(plugin: Resolved<Values>, server: Resolved<ServerConfiguration>): Advice[];
}

/** Everything at once: configuration, store, port. */
export async function examine<Values extends { databaseUri: string }>(
  patient: Patient<Values>,
): Promise<Finding[]> {
  let resolved: ReturnType<Patient<Values>['resolve']>;
  try {
    resolved = patient.resolve();
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return error.problems.map((problem) => explain('problem', problem, patient.schemas));
  }
  const [server, plugin] = resolved;
  const mode = plugin.production ? 'production' : 'development';
  return [
    { level: 'ok', about: 'configuration', message: `is complete for ${mode}` },
    ...[...plugin.warnings, ...server.warnings].map((text) => explain('warning', text, patient.schemas)),
    ...madeUp(plugin),
    ...patient.unwise(plugin, server).flatMap(warn),
    await examineStore(plugin.values.databaseUri, patient.storeVariable),
    ...(await examinePort(server, patient)),
  ];
}

function warn([applies, about, message, remedy]: Advice): Finding[] {
  return applies ? [{ level: 'warning', about, message, remedy }] : [];
}

/** A sentence of the configuration that begins with its variable. */
function explain(level: Finding['level'], sentence: string, schemas: readonly TObject[]): Finding {
  const [, about = 'configuration', message = sentence] = /^([A-Z][A-Z0-9_]+)\s(.*)$/s.exec(sentence) ?? [];
  const variable = about.replace(/_FILE$/, '');
  const rows = schemas.flatMap(describeOptions);
  const row = rows.find(({ env, fallbackEnv }) => [env, fallbackEnv].includes(variable));
  if (!row) return { level, about, message };
  const file = row.secret ? `, or ${row.env}_FILE to a file that holds it` : '';
  // Where the sentence repeats what the variable is for, the remedy says how to set it.
  const remedy = sentence.includes(row.doc) ? '' : ` ${row.doc}`;
  return { level, about, message, remedy: `Set ${row.env}${file}.${remedy}` };
}

function madeUp({ generated: { names, file } }: Resolved<unknown>): Finding[] {
  if (names.length === 0) return [];
  const about = names.join(', ');
  const problem = keepingProblem(file);
  if (problem !== null) {
    const message = `made up for development cannot be kept: ${problem}`;
    return [{ level: 'problem', about, message, remedy: 'Set them, or let this user write there.' }];
  }
  return [
    { level: 'ok', about, message: `made up for development and kept in ${file}; production needs them set` },
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

async function examinePort(
  { values, production }: Resolved<ServerConfiguration>,
  { portVariable: about, proxyVariable }: Pick<Patient<never>, 'portVariable' | 'proxyVariable'>,
): Promise<Finding[]> {
  const { port, host = production ? '0.0.0.0' : '127.0.0.1' } = values;
  if (port === 0) return [{ level: 'ok', about, message: 'is 0: any free port' }];
  const probe = createServer();
  try {
    probe.listen(port, host);
    await once(probe, 'listening');
    return [{ level: 'ok', about, message: `${port} is free` }];
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const health = code === 'EADDRINUSE' ? await askServer(host, port) : null;
    if (health) {
      const message = `${port} is in use by a server that answers /health: it runs already`;
      return [{ level: 'ok', about, message }, ...unlistedProxy(health, proxyVariable, values.trustProxy)];
    }
    const inUse = code === 'EADDRINUSE' ? 'is in use' : `cannot be listened at (${code})`;
    const remedy = 'Choose another one, or stop what listens there.';
    return [{ level: 'problem', about, message: `${port} ${inUse}`, remedy }];
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
  return address === undefined ? [] : [{ level: 'warning', about, ...adviceOn(address, about, trusted) }];
}

/** What the server that listens there says of itself; `null` when it is none of ours. */
async function askServer(host: string, port: number): Promise<Health | null> {
  try {
    const answer = await fetch(`http://${urlHost(host)}:${port}/health`, {
      signal: AbortSignal.timeout(2000),
    });
    // One of the two programs wraps what it says.
    const { data, ...bare } = (await answer.json()) as Partial<Health> & { data?: Partial<Health> };
    const health = data ?? bare;
    return answer.ok && health.status === 'ok' ? (health as Health) : null;
  } catch {
    // Whatever listens, it is no server of ours.
    return null;
  }
}
