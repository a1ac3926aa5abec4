// Both plugins in a Fastify application of your own.
import Fastify from 'fastify';
import { identityProvider, saasBackend } from 'saas-backend';

const app = Fastify();
await app.register(saasBackend, { prefix: '/api' });
await app.register(identityProvider, { prefix: '/idp' });

// Your own routes ask for a signed-in user with the same guard.
app.get('/notes', { onRequest: app.saas.requireUser }, async (request) => ({
  owner: request.saas.user.email,
}));

console.log(await app.listen({ port: Number(process.env.PORT ?? 3000) }));
