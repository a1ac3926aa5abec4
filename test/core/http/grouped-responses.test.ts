import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import fastify from 'fastify';
import t, { type Test } from 'tap';
import { access, openScope } from '../../../src/core/http/scope.js';
import { scopeRules } from '../../kit/scope-rules.js';

/** A server with `GET /:name`, and what it processed and sent, in order. A hook of the host spoils `/unsendable`. */
async function start(t: Test, respond: (name: string, order: string[]) => unknown) {
  const order: string[] = [];
  const app = fastify();
  t.teardown(() => app.close());
  app.addHook('onSend', ({ url }, _reply, payload, done) =>
    done(null, url === '/x/unsendable' ? 1 : payload),
  );
  await openScope(app, scopeRules(), async (scope) => {
    scope.get<{ Params: { name: string } }>(
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
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const sockets: Socket[] = [];

  /** Sends a request on a connection each, all in one turn. Returns the status codes. */
  const send = async (...names: string[]): Promise<string[]> => {
    while (sockets.length < names.length) {
      const socket = connect(port, '127.0.0.1').setEncoding('latin1');
      t.teardown(() => socket.destroy());
      await once(socket, 'connect');
      sockets.push(socket);
    }
    const answers = names.map((name, index) => {
      const socket = sockets[index] as Socket;
      socket.write(`GET /x/${name} HTTP/1.1\r\nhost: x\r\n\r\n`);
      return once(socket, 'data');
    });
    return (await Promise.all(answers)).map(([text]) => String(text).slice(9, 12));
  };
  // Responses are grouped when the last turn had several.
  await send('a', 'b', 'c');
  order.length = 0;
  return { order, send };
}

t.test('responses of one turn of the event loop are sent after its requests were processed', async (t) => {
  const { order, send } = await start(t, () => 'text');
  t.same(await send('a', 'b', 'c'), ['200', '200', '200']);
  t.same(order, ['a processed', 'b processed', 'c processed', 'a sent', 'b sent', 'c sent']);
});

t.test('a client that is alone does not wait for the end of the turn', async (t) => {
  const { order, send } = await start(t, (_name, order) => {
    setImmediate(() => order.push('end of turn'));
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
    t.same(await send('a', 'unsendable', 'c'), ['200', '500', '200']);
  },
);

t.test('a stream that fails before the end of the turn ends only its own response', async (t) => {
  const { send } = await start(t, (name) => {
    if (name !== 'broken') return 'text';
    const stream = new Readable({ read() {} });
    setImmediate(() => stream.destroy(new Error('the disk failed')));
    return stream;
  });
  t.same(await send('a', 'broken', 'c'), ['200', '500', '200']);
});
