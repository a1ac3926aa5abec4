import { once } from 'node:events';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import Fastify from 'fastify';
import t from 'tap';
import { createAudit } from '../../src/ops/audit.js';
import { createCommandContext, followLifecycle } from '../../src/server/module-context.js';
import { openStore } from '../../src/storage/open.js';
import { temporaryFolder } from '../kit/tmp.js';

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
