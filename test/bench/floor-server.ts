/** `hello`: bare Fastify. `jwt`: Fastify and @fastify/jwt. `floor-server.js <kind> <port>` responds with ANSWER. */
import fastify from 'fastify';

const [kind, port] = process.argv.slice(2);
const answer = JSON.parse(process.env['ANSWER'] ?? '{}');
const app = fastify();

if (kind === 'jwt') {
  await app.register(import('@fastify/jwt'), { secret: 'secret of a local baseline' });
  app.get('/token', async () => ({
    token: app.jwt.sign({ sub: 'usr_0', sid: 'ses_0' }, { expiresIn: '1h' }),
  }));
  app.get('/', { onRequest: (request) => request.jwtVerify() }, async () => answer);
} else {
  app.get('/', async () => answer);
}

await app.listen({ host: '127.0.0.1', port: Number(port) });
