// The backend as middleware: Express, Connect or bare node:http.
import express from 'express';
import { createServer } from 'saas-backend';

const backend = createServer({ middleware: true });
const app = express();
// Before any body parser: the payment webhook is verified byte by byte.
app.use(backend.middleware);
// The same guards require a signed-in user, or a plan, on your own routes.
app.get('/notes', backend.requireUser, (request, response) => {
  response.json({ owner: request.saas.user.email });
});
app.get('/reports', backend.requireEntitled('pro'), (_request, response) => response.send('For subscribers'));
app.get('/', (_request, response) => response.send('My own page'));

const server = app.listen(Number(process.env.PORT ?? 3000), () => {
  // The origin of its pages: cookies of sessions and passkeys belong to it, not to 127.0.0.1.
  console.log(`http://localhost:${server.address().port}`);
});
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => server.close(() => backend.stop()));
