import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import Fastify from 'fastify';
import t from 'tap';
import { HOUR } from '../../../src/core/kernel/clock.js';
import { createAudit } from '../../../src/core/ops/audit.js';
import { createCommandContext, followLifecycle } from '../../../src/core/server/module-context.js';
import { openStore } from '../../../src/core/storage/open.js';
import { fakeClock } from '../../kit/clock.js';
import { temporaryFolder } from '../../kit/tmp.js';

t.test('a server that closes stops its jobs and waits for them', async (t) => {
  const store = await openStore(`sqlite:${join(temporaryFolder(t), 'jobs.db')}`);
  t.teardown(() => store.close());
  const warn = (message: string) => t.fail(message);
  const context = createCommandContext(store, { production: false, warn, createAudit });
  const fastify = Fastify();
  let hasEnded = false;
  // Hooks of a close run in the reverse order, so this one stands for the store that the product closes last.
  fastify.addHook('onClose', async () => void t.ok(hasEnded, 'the store is closed after the jobs'));
  followLifecycle(fastify, context, { auditRetentionDays: 30 });
  const started = new Promise<void>((resolve) => {
    context.jobs.add('work', {
      everySeconds: 60,
      async run({ signal }) {
        resolve();
        await once(signal, 'abort');
        // What a job still does after it was told to stop takes many turns of the event loop.
        for (let turn = 0; turn < 1000; turn++) await setImmediate();
        hasEnded = true;
      },
    });
  });
  await fastify.ready();
  await started;
  await fastify.close();
});

t.test(
  'a clock that differs from that of the database server is logged at the start and every hour',
  async (t) => {
    const store = await openStore('sqlite::memory:');
    t.teardown(() => store.close());
    let everyHour = () => {};
    const every = (period: number, run: () => void) => {
      if (period === HOUR) everyHour = run;
      return () => undefined;
    };
    const clock = { now: fakeClock().now, every };
    const lines: string[] = [];
    const context = createCommandContext(store, { production: false, warn: () => undefined, createAudit });
    const log = {
      ...context.log,
      warn: (_details: unknown, message?: string) => void lines.push(`${message}`),
    };
    let offset = 0;
    const serverTime = async () => clock.now() + offset;
    const fastify = Fastify();
    followLifecycle(
      fastify,
      { ...context, clock, log, store: { ...store, serverTime } },
      { auditRetentionDays: 30 },
    );
    await fastify.ready();
    for (const [next, message] of [
      [5000, undefined],
      [7000, /^the clock of this process is 7 seconds behind that of the database server\. Synchronize/],
      [-90_000, /^the clock of this process is 90 seconds ahead of that of the database server\./],
    ] as const) {
      offset = next;
      lines.length = 0;
      everyHour();
      await setImmediate();
      if (message === undefined) t.same(lines, []);
      else t.match(lines, [message]);
    }
    await fastify.close();
  },
);
