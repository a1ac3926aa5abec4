/**
 * The rows that run on each engine. The goals of the servers are lower: each call crosses a socket, and they share the processors with
 * the program.
 */
import { commit } from './commit-row.js';
import { code } from './idp-rows.js';
import { peer } from './peer-rows.js';
import { pocketBase } from './pocketbase.js';
import type { Result } from './report.js';
import type { Bench, Row } from './rounds.js';
import { login, me, refresh } from './saas-rows.js';
import { type DatabaseServer, SERVERS, type ServerEngine } from './servers.js';
import { supabaseAuth } from './supabase-auth.js';
import { webhook } from './webhook-row.js';
import { workers } from './workers-row.js';

/** Started by the first row of each. */
const started = new Map<ServerEngine, Promise<DatabaseServer>>();

/** Stops the servers of the rows that were started. */
export async function stopServers(): Promise<void> {
  for (const starting of started.values())
    await starting.then(
      (server) => server.stop(),
      () => undefined,
    );
}

/** Runs a row on a server. Without one it is skipped, which the results say. */
function onServer(engine: ServerEngine, row: Row): Row {
  return async (bench: Bench): Promise<Result[]> => {
    const starting = started.get(engine) ?? SERVERS[engine]();
    started.set(engine, starting);
    let database: DatabaseServer;
    try {
      database = await starting;
    } catch (error) {
      return [{ what: bench.row, skipped: `no server: ${(error as Error).message.split('\n')[0]}` }];
    }
    const results = await row({ ...bench, database });
    await bench.lab.clear();
    await database.clear();
    return results.map((result) => ({ ...result, what: `${engine}: ${result.what}` }));
  };
}

function rowsOn(engine: ServerEngine, rows: Record<string, Row>): Record<string, Row> {
  const entries = Object.entries(rows);
  return Object.fromEntries(
    entries.map(([name, row]) => [`${engine.toLowerCase()}-${name}`, onServer(engine, row)]),
  );
}

export const engineRows: Record<string, Row> = {
  me: me(0.9),
  refresh: refresh(0.27),
  code: code(4),
  login,
  webhook: webhook(0.12),
  commit: commit(1.3),
  peer: peer(pocketBase, 1),
  workers: workers(2),
  ...rowsOn('PostgreSQL', {
    me: me(0.25),
    refresh: refresh(0.1),
    code: code(),
    login,
    webhook: webhook(),
    commit: commit(3),
    peer: peer(supabaseAuth, 5),
    workers: workers(2),
  }),
  ...rowsOn('MongoDB', {
    me: me(0.25),
    refresh: refresh(0.08),
    code: code(1.7),
    login,
    webhook: webhook(),
    commit: commit(3),
    workers: workers(2),
  }),
};
