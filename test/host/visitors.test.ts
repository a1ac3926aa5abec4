import express from 'express';
import fastify from 'fastify';
import t from 'tap';
import { createServer, saasBackend } from '../../src/index.js';
import { PASSWORD, testOptions } from '../kit/app.js';
import { saasPluginOptions } from '../kit/host.js';
import { listen } from '../kit/listener.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Pages that an application renders on the server, and forms: who is signed in, by the cookie of the session. */

const ADA = { email: 'ada@example.test', password: PASSWORD };
const MODE = { 'content-type': 'application/json', 'session-mode': 'cookie' };

const cookiesOf = (headers: Headers): string =>
  headers
    .getSetCookie()
    .map((line) => line.split(';')[0])
    .join('; ');

async function signUp(url: string) {
  const answer = await fetch(`${url}/api/auth/register`, {
    method: 'POST',
    headers: MODE,
    body: JSON.stringify(ADA),
  });
  const { data } = (await answer.json()) as { data: { accessToken: string } };
  return { cookie: cookiesOf(answer.headers), authorization: `Bearer ${data.accessToken}` };
}

const seenAt = async (url: string, headers: Record<string, string>, method = 'GET') =>
  (await fetch(url, { method, headers })).text();

t.test('Express and node:http: a page reads the session of the cookie', async (t) => {
  const backend = createServer({ ...testOptions(temporaryFolder(t)), organizations: true, middleware: true });
  t.teardown(() => backend.stop());
  const app = express();
  app.use(backend.middleware);
  app.all('/page', async (request, response) => {
    const found = await backend.getSession(request);
    response.json(found && [found.user.email, found.organization, found.features]);
  });
  const url = await listen(t, app);
  t.equal(await seenAt(`${url}/page`, {}), 'null', 'a visitor');

  const { cookie, authorization } = await signUp(url);
  const signedIn = JSON.stringify([ADA.email, null, []]);
  t.equal(await seenAt(`${url}/page`, { cookie: `theme=dark; ${cookie}` }), signedIn);
  t.equal(await seenAt(`${url}/page`, { authorization }), signedIn);
  t.equal(await seenAt(`${url}/page`, { cookie, authorization: 'Bearer x' }), 'null', 'the token decides');
  t.equal(await seenAt(`${url}/page`, { cookie: 'saas-session=garbage' }), 'null');

  const ofOther = { cookie, origin: 'https://evil.example.test', 'sec-fetch-site': 'cross-site' };
  t.equal(
    await seenAt(`${url}/page`, { cookie, 'sec-fetch-site': 'cross-site' }),
    signedIn,
    'a link in a mail',
  );
  t.equal(await seenAt(`${url}/page`, ofOther, 'POST'), 'null', 'a form of another site');
  t.equal(await seenAt(`${url}/page`, { cookie, 'sec-fetch-site': 'same-origin' }, 'POST'), signedIn);

  const organization = await fetch(`${url}/api/organizations`, {
    method: 'POST',
    headers: { ...MODE, authorization },
    body: JSON.stringify({ name: 'Analytical Engines' }),
  });
  t.equal(organization.status, 201);
  const organizations = (await (
    await fetch(`${url}/api/organizations`, { headers: { authorization } })
  ).json()) as { data: { active: string | null } };
  const seen = await backend.getSession({ method: 'GET', headers: { cookie } });
  t.equal(seen?.organization?.id ?? null, organizations.data.active);

  await fetch(`${url}/api/auth/logout`, { method: 'POST', headers: { ...MODE, cookie }, body: '{}' });
  t.equal(await seenAt(`${url}/page`, { cookie }), 'null', 'after the sign-out');
});

t.test('Fastify: a page reads the session of the cookie', async (t) => {
  const app = fastify();
  t.teardown(() => app.close());
  await app.register(saasBackend, saasPluginOptions(t));
  app.get('/page', async (request) => (await app.saas.getSession(request))?.user.email ?? 'nobody');
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.equal(await seenAt(`${url}/page`, {}), 'nobody');
  const { cookie } = await signUp(url);
  t.equal(await seenAt(`${url}/page`, { cookie }), ADA.email);
});
