/** Acknowledged writes survive kill -9. */
import { once } from 'node:events';
import type { Test } from 'tap';
import { openStore } from '../../../../src/core/storage/open.js';
import { type Fresh, startWorker, things } from '../kit.js';

/** `npm run test:kills` sets more. */
const ROUNDS = Number(process.env['KILL_ROUNDS'] ?? 5);
const WRITES = 100;

/** This part of the contract. */
export function kills(t: Test, fresh: Fresh): void {
  t.test('kill -9 loses no acknowledged write', async (t) => {
    const uri = fresh(t);
    const acknowledged: string[] = [];
    for (let round = 1; round <= ROUNDS; round++) {
      const child = await startWorker(t, uri, 'write');
      child.on('message', (id: string) => {
        if (acknowledged.push(id) >= round * WRITES) child.kill('SIGKILL');
      });
      const [, signal] = await once(child, 'exit');
      t.equal(signal, 'SIGKILL');
    }
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const missing = [];
    for (const id of acknowledged) if (!(await things(store).findOne({ id, count: 1 }))) missing.push(id);
    t.ok(acknowledged.length >= ROUNDS * WRITES);
    t.strictSame(missing, []);
  });
}
