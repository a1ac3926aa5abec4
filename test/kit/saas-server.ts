/** An application with the SaaS backend as a program: `node saas-server.js '<options as JSON>'`. */
import { createServer } from '../../src/saas/server.js';

const server = createServer(JSON.parse(process.argv[2] ?? '{}'));
const { fastify } = server;
fastify.post<{ Params: { userId: string } }>('/answer/:userId', ({ params }) =>
  fastify.saas.usage.consume(params.userId, 'answers'),
);
await server.start();
