// Both plugins in your own Fastify application.
import Fastify from 'fastify';
import { identityProvider, saasBackend } from 'saas-backend';

const app = Fastify();
await app.register(saasBackend, { prefix: '/api' });
await app.register(identityProvider, { prefix: '/idp' });

// The same guard requires a signed-in user on your own routes.
app.get('/notes', { onRequest: app.saas.requireUser }, async (request) => ({
  owner: request.saas.user.email,
}));
// Check `entitled`, not the status: a cancelled or unpaid subscription also has a status.
app.get('/reports', { onRequest: app.saas.requireEntitled('pro') }, async () => 'For subscribers');
app.get('/plan', { onRequest: app.saas.requireUser }, async (request) => {
  const { entitled, plan } = request.saas.user.subscription;
  return { plan, canExport: entitled };
});

await app.listen({ port: Number(process.env.PORT ?? 3000) });
// The origin of its pages: cookies of sessions and passkeys belong to it, not to 127.0.0.1.
console.log(`http://localhost:${app.server.address().port}`);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => app.close());
