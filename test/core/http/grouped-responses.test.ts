import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { access, registerRoutes } from '../../../src/core/http/routes.js';
import { pluginRules } from '../../kit/plugin-rules.js';

/** A server with `GET /:name`, and what it processed and sent, in order. A hook of the host spoils `/unsendable`. */
async function start(t: Test, respond: (name: string, order: string[]) => unknown) {
  const order: string[] = [];
  const app = fastify();
  t.teardown(() => app.close());
  app.addHook('onSend', ({ url }, _reply, payload, done) =>
    done(null, url === '/x/unsendable' ? 1 : payload),
  );
  await registerRoutes(app, pluginRules(), async (instance) => {
    instance.get<{ Params: { name: string } }>(
      '/:name',
      { config: access('public') },
      async (request, reply) => {
        const { name } = request.params;
        order.push(`${name} processed`);
        reply.raw.once('finish', () => order.push(`${name} sent`));
        return respond(name, order);
      },
    );
  });

  await app.ready();

  /** Sends requests one after another in one turn of the event loop. Of connections, the system decides which turn it is. */
  const send = async (...names: string[]): Promise<number[]> => {
    const responses = await Promise.all(
      names.map(async (name) => {
        await setImmediate();
        return app.inject(`/x/${name}`);
      }),
    );
    await setImmediate();
    return responses.map((response) => response.statusCode);
  };
  // Responses are grouped when the last turn had several.
  await send('a', 'b', 'c');
  order.length = 0;
  return { order, send };
}

t.test('responses of one turn of the event loop are sent after its requests were processed', async (t) => {
  const { order, send } = await start(t, () => 'text');
  t.same(await send('a', 'b', 'c'), [200, 200, 200]);
  t.same(order, ['a processed', 'b processed', 'c processed', 'a sent', 'b sent', 'c sent']);
});

t.test('a client that is alone does not wait for the end of the turn', async (t) => {
  const { order, send } = await start(t, (_name, order) => {
    setImmediate().then(() => order.push('end of turn'));
    return 'text';
  });
  await send('a');
  order.length = 0;
  await send('a');
  t.same(order.slice(0, 3), ['a processed', 'a sent', 'end of turn']);
});

t.test(
  'a response that fails when it is sent is an error, and the others of its turn are sent',
  async (t) => {
    const { send } = await start(t, () => 'text');
    t.same(await send('a', 'unsendable', 'c'), [200, 500, 200]);
  },
);

t.test('a stream that fails before the end of the turn ends only its own response', async (t) => {
  const { send } = await start(t, (name) => {
    if (name !== 'broken') return 'text';
    const stream = new Readable({ read() {} });
    setImmediate().then(() => stream.destroy(new Error('the disk failed')));
    return stream;
  });
  t.same(await send('a', 'broken', 'c'), [200, 500, 200]);
});
