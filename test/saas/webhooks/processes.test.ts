import t, { type Test } from 'tap';
import { onMongod } from '../../core/storage/mongod.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { laboratory, receiver } from './kit.js';

/** Four processes that send at the same time. */

const [PROCESSES, EVENTS] = [4, 100];

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(`${engine}: four processes make one attempt at a time for each delivery`, async (t) => {
    const app = await receiver(t);
    const uri = fresh(t);
    const lab = await laboratory(t, uri);
    await lab.add(app.url);
    for (let index = 0; index < EVENTS; index++) await lab.emit('invoice.paid', { id: `evt_${index}` });
    const running = new Set<unknown>();
    let collisions = 0;
    app.state.answer = async ({ headers }, response) => {
      const id = headers['webhook-id'];
      if (running.has(id)) collisions++;
      running.add(id);
      await new Promise((resolve) => setTimeout(resolve, 20));
      running.delete(id);
      response.writeHead(204).end();
    };
    const workers = Array.from({ length: PROCESSES }, () =>
      startProgram(t, compiled('test/saas/webhooks/send-worker.js'), { args: [uri] }),
    );
    await Promise.all(workers.map((worker) => worker.printed(/^ready/m)));
    for (const worker of workers) worker.signal('SIGUSR2');
    for (const worker of workers) t.equal(await worker.ended(), 0, worker.lines.join('\n'));
    t.equal(collisions, 0);
    t.equal(app.received.length, EVENTS, 'one attempt for each');
    t.equal(new Set(app.received.map(({ headers }) => headers['webhook-id'])).size, EVENTS);
    t.same(new Set(await lab.statuses()), new Set(['delivered']));
  });
}

forEngine('SQLite', (t) => `sqlite:${temporaryFolder(t)}/saas.db`);
await onMongod((server) => forEngine('MongoDB', (t) => server.fresh(t)));
