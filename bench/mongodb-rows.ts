/**
 * The rows on MongoDB: those of SQLite, with a mongod on the same machine. The goals are lower: each call crosses a socket,
 * and mongod shares the processors.
 */
import { sessionOfPeer } from './better-auth.js';
import { code } from './idp-rows.js';
import { type Mongod, startMongod } from './mongod.js';
import type { Result } from './report.js';
import type { Bench, Row } from './rounds.js';
import { login, me, refresh } from './saas-rows.js';
import { webhook } from './webhook-row.js';
import { scaling, workers } from './workers-row.js';

/** Started by the first row. */
let server: Promise<Mongod> | undefined;

/** Stops the mongod of the rows, if it was started. */
export async function stopMongod(): Promise<void> {
  const mongod = await server?.catch(() => undefined);
  await mongod?.stop();
}

/** Runs a row on MongoDB. Without a mongod it is skipped, which the results say. */
function onMongodb(row: Row): Row {
  return async (bench: Bench): Promise<Result[]> => {
    server ??= startMongod();
    let mongod: Mongod;
    try {
      mongod = await server;
    } catch (error) {
      return [{ what: bench.row, skipped: `no mongod: ${(error as Error).message.split('\n')[0]}` }];
    }
    const results = await row({ ...bench, mongod });
    await bench.lab.clear();
    await mongod.clear();
    return results.map((result) => ({ ...result, what: `MongoDB: ${result.what}` }));
  };
}

export const mongodbRows: Record<string, Row> = {
  'mongodb-me': onMongodb(me(0.25)),
  'mongodb-peer': onMongodb(sessionOfPeer),
  'mongodb-refresh': onMongodb(refresh(0.08)),
  'mongodb-code': onMongodb(code(1.7)),
  'mongodb-login': onMongodb(login),
  'mongodb-webhook': onMongodb(webhook),
  'mongodb-workers': onMongodb((bench) => workers(bench.quick ? 2 : 4)(bench)),
  'mongodb-scaling': onMongodb(scaling),
};
