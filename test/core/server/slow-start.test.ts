import { mock } from 'node:test';
import t from 'tap';
import { createServer } from '../../../src/index.js';
import { testOptions } from '../../kit/app.js';
import { temporaryFolder } from '../../kit/tmp.js';

t.test('a slow start is waited for', async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  mock.timers.enable({ apis: ['setTimeout'] });
  server.fastify.register(async () => mock.timers.tick(50_000));
  try {
    await server.fastify.ready();
  } finally {
    mock.timers.reset();
  }
  t.equal((await server.fastify.inject('/ready')).statusCode, 200);
});
