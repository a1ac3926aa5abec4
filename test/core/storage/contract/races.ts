/** Concurrent conditional writes succeed once. */
import { once } from 'node:events';
import type { Test } from 'tap';
import { begin, type Fresh, startWorker, thing } from '../kit.js';

/** What a worker reports: the documents that it has changed with the document and without, and its other calls. */
interface Report {
  won: string[];
  opened: string[];
  lost: number;
}

/** This part of the contract. */
export function races(t: Test, fresh: Fresh): void {
  t.test('of fifty concurrent conditional calls one succeeds', async (t) => {
    const { all } = await begin(t, fresh);
    await all.insert(thing('1', { group: null }));
    await all.insert(thing('2', { count: 0 }));
    const fifty = <R>(call: (i: number) => Promise<R>): Promise<R>[] =>
      Array.from({ length: 50 }, (_, i) => call(i));
    const taken = await Promise.all(
      fifty((i) => all.updateOne({ id: '1', group: null }, { set: { group: `w${i}` } })),
    );
    const won = taken.filter((doc) => doc !== null);
    t.equal(won.length, 1);
    t.strictSame(await all.findOne({ id: '1' }), won[0]);
    const changed = await Promise.all(
      fifty((i) => all.changeOne({ id: '2', group: null }, { set: { group: `w${i}` } })),
    );
    t.equal(changed.filter((isChanged) => isChanged).length, 1);
    t.equal((await all.findOne({ id: '2' }))?.group, `w${changed.indexOf(true)}`);
    const removed = await Promise.all(fifty(() => all.deleteOne({ id: '1' })));
    t.equal(removed.filter((doc) => doc !== null).length, 1);
    await Promise.all(fifty(() => all.updateOne({ id: '2' }, { inc: { count: 1 } })));
    await Promise.all(fifty(() => all.changeOne({ id: '2' }, { inc: { count: 1 } })));
    t.equal((await all.findOne({ id: '2' }))?.count, 100, 'no increment is lost');
    const inserted = await Promise.allSettled(fifty(() => all.insert(thing('3'))));
    t.equal(inserted.filter(({ status }) => status === 'fulfilled').length, 1);
  });

  t.test('of four processes one succeeds', async (t) => {
    const { uri, all } = await begin(t, fresh);
    const ids = Array.from({ length: 200 }, (_, i) => `t${i}`);
    await Promise.all(ids.map((id) => all.insert(thing(id, { group: null, count: 0 }))));
    const workers = await Promise.all(['a', 'b', 'c', 'd'].map(() => startWorker(t, uri, 'race')));
    const answers = workers.map((worker) => Promise.race([once(worker, 'message'), once(worker, 'exit')]));
    for (const worker of workers) worker.send('go');
    const reports = (await Promise.all(answers)).map(([report]) => report as Report);
    t.notOk(
      reports.some((report) => typeof report !== 'object'),
      'none ended early',
    );
    t.strictSame(reports.flatMap(({ won }) => won).sort(), [...ids].sort(), 'each is won once');
    t.strictSame(
      reports.flatMap(({ opened }) => opened).sort(),
      [...ids].sort(),
      'without the document, too',
    );
    const calls = reports.map(({ won, lost }) => won.length + lost);
    t.strictSame(calls, [200, 200, 200, 200], 'every other call returned null');
    t.equal(await all.count({ count: 8 }), ids.length, 'no increment is lost');
  });
}
