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
// `entitled` alone says who may use what: a subscription that was cancelled or never paid has a status, too.
app.get('/reports', { onRequest: app.saas.requireEntitled('pro') }, async () => 'For subscribers');
app.get('/plan', { onRequest: app.saas.requireUser }, async (request) => {
  const { entitled, plan } = request.saas.user.subscription;
  return { plan, canExport: entitled };
});

console.log(await app.listen({ port: Number(process.env.PORT ?? 3000) }));
