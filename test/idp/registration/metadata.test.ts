import t, { type Test } from 'tap';
import { revocationKey } from '../../../src/core/http/revocation-list.js';
import { DAY, HOUR, MINUTE } from '../../../src/core/kernel/clock.js';
import { createDocuments, documentCollection } from '../../../src/core/outbound/documents.js';
import { revocationCollection } from '../../../src/idp/oidc/revocations/service.js';
import { metadataIdProblem } from '../../../src/idp/provisioning/client-uris.js';
import { auditOf } from '../../kit/app.js';
import { asserted, assertion, clientKey, type DocumentHost, documentHost } from '../../kit/client-keys.js';
import {
  authorizePath,
  CALLBACK,
  claimsOf,
  codeIn,
  type IdpAppOptions,
  ISSUER,
  idpApp,
  idpStore,
  search,
} from '../../kit/idp.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { addResource, FILES } from '../../kit/resources.js';
import { sentence } from '../../kit/sentences.js';
import { words } from '../../kit/words.js';

/** Clients whose identifier is the address of their metadata. */

const LOOPBACK = 'http://127.0.0.1/cb';

async function start(t: Test, options: IdpAppOptions = {}, more: Record<string, unknown> = {}) {
  const host = await documentHost(t);
  const id = `${host.url}/client.json`;
  const document = { client_id: id, client_name: 'Tool', redirect_uris: [CALLBACK, LOOPBACK], ...more };
  host.documents['/client.json'] = document;
  const idp = await idpApp(t, { clientIdMetadata: true, loopbackDocuments: true, ...options });
  const client = { id, redirectUri: CALLBACK };
  const signIn = async (parameters: Record<string, string> = {}) => {
    const { browser, page } = await idp.visit(client, parameters);
    return { browser, page, person: await idp.makeHuman() };
  };
  return { idp, host, id, client, document, signIn };
}

async function codeFor(
  t: Test,
  started: Awaited<ReturnType<typeof start>>,
  more: Record<string, string> = {},
) {
  const { browser, page, person } = await started.signIn(more);
  t.equal(page.status, 200, page.body.slice(0, 300));
  const { location } = await browser.submit(page, { handle: person.handle, password: person.password });
  return { code: codeIn(location), browser, person };
}

t.test('a person signs in to an unregistered client, and it refreshes', async (t) => {
  const started = await start(t);
  const { idp, host, client, id } = started;
  const { code } = await codeFor(t, started, { scope: 'openid offline_access' });
  const { status, body } = await idp.redeem(client, code);
  t.equal(status, 200);
  t.match(JSON.parse(Buffer.from(body.id_token.split('.')[1], 'base64url').toString()), { aud: id });
  t.equal((await idp.userinfo(body.access_token)).status, 200);
  t.same(host.requests, ['/client.json'], 'one request for all of it');

  idp.clock.advance(10 * MINUTE);
  host.answer = (_, response) => void response.writeHead(503).end();
  const refreshed = await idp.refresh(client, body.refresh_token);
  t.equal(refreshed.status, 200, 'a copy of the last day serves while the host has a problem');
  idp.clock.advance(MINUTE + 1);
  t.equal((await idp.authorize(client)).status, 400, 'but not for a new sign-in');
  host.answer = (_, response) => void response.writeHead(410).end();
  idp.clock.advance(MINUTE + 1);
  t.equal((await idp.refresh(client, refreshed.body.refresh_token)).status, 401, 'the client is gone');
});

t.test(
  'a client that states that it refreshes tokens gets a refresh token, and the page says so',
  async (t) => {
    for (const grants of [undefined, ['authorization_code'], ['authorization_code', 'refresh_token']]) {
      const started = await start(t, {}, grants && { grant_types: grants });
      const { idp, client } = started;
      await addResource(t, idp);
      const asked = { resource: FILES, scope: 'files:read' };
      const isLasting = grants?.includes('refresh_token') === true;
      t.equal(/90 days/.test((await idp.visit(client, asked)).page.body), isLasting);
      const { code } = await codeFor(t, started, asked);
      const { body } = await idp.redeem(client, code);
      t.equal('refresh_token' in body, isLasting, String(grants));
      t.equal(body.scope, isLasting ? 'offline_access files:read' : 'files:read');
      t.equal(claimsOf(body.access_token).scope, 'files:read');
    }
  },
);

t.test('an error leads to the address of such a client only after a person was asked', async (t) => {
  const { idp, client } = await start(t, {}, { post_logout_redirect_uris: [CALLBACK] });
  const refused = async (more: Record<string, string>, cookie = '') =>
    idp.request('GET', authorizePath(client, more), { headers: { cookie } });
  for (const more of [{ scope: 'openid', max_age: 'x' }, { response_type: 'token' }, { prompt: 'none' }]) {
    const answer = await refused(more);
    t.match(answer, { status: 400, headers: { location: undefined } }, JSON.stringify(more));
    t.match(
      answer.text,
      /The request cannot be answered[\s\S]*Its name is not verified[\s\S]*Return to the application/,
    );
    t.match(answer.text, /error&#x3D;(invalid_request|unsupported_response_type|login_required)/, 'a link');
  }
  const { browser, page } = await idp.visit(client);
  const denied = await browser.submit(page, { decision: 'deny' }, '/authorize/consent');
  t.match(
    [denied.status, denied.location],
    [303, /error=access_denied/],
    'the first sign-in can be cancelled',
  );
  const registered = await idp.createClient();
  t.match(
    (await idp.authorize(registered, undefined, { prompt: 'none' })).headers['location'],
    /login_required/,
  );
  const out = search({ client_id: client.id, post_logout_redirect_uri: CALLBACK, state: 's' });
  const left = await idp.request('GET', `/logout?${out}`);
  t.match([left.status, left.text], [200, /You are signed out[\s\S]*Return to the application/]);
});

t.test('operators see who has signed in to which of them, and block and admit one', async (t) => {
  const started = await start(t, { publicUrl: undefined, limits: false });
  const { idp, client, id, host } = started;
  await addResource(t, idp);
  const operator = await makeOperator(t, idp, 'olga');
  const { get } = await enterConsole(idp, operator);
  await idp.authorize(client);
  t.match(
    (await get('/metadata-clients')).body,
    'Nobody has signed in to such an application.',
    'only shown',
  );
  const { code } = await codeFor(t, started, {
    scope: 'openid files:read offline_access',
    resource: FILES,
  });
  const { access_token: token, refresh_token: refresh } = (await idp.redeem(client, code)).body;
  idp.clock.advance(2 * DAY);
  await codeFor(t, started);
  await get('/metadata-clients');
  const again = await enterConsole(idp, operator);
  const list = async (query = '') =>
    (await again.get(`/metadata-clients${query}`)).body.replaceAll('&#x2F;', '/');
  t.match((await again.get('/clients')).body, 'href="./metadata-clients"');
  const times = [...(await list()).matchAll(/<time datetime="([^"]*)"/g)].map(([, time = '']) =>
    Date.parse(time),
  );
  t.ok((times[1] ?? 0) - (times[0] ?? 0) >= 2 * DAY, 'first and last use');
  for (const shown of [id, new URL(id).host, 'Tool']) t.match(await list(), shown);
  t.match(await list(`?q=${encodeURIComponent(id.slice(0, -5))}`), id);
  t.notMatch(await list('?q=other.example.test'), id);
  t.match((await again.get('/metadata-clients.csv')).body, /^Client ID,Host,Name,First used,[\s\S]*Tool/);

  const [, path = ''] = /(metadata-clients\/[^"]*)\/block"/.exec(await list()) ?? [];
  t.equal((await again.get(`/${path}/admit`)).status, 404);
  t.match((await again.act(`/${path}/block`)).body, 'The application is blocked.');
  t.equal((await again.get(`/${path}/block`)).status, 404);
  host.requests.length = 0;
  t.match((await idp.authorize(client)).status, 400);
  t.equal((await idp.refresh(client, refresh)).status, 401);
  t.same(host.requests, [], 'its host is not asked');
  const listed = revocationCollection(await idpStore(t, idp));
  t.ok(await listed.findOne({ key: revocationKey('client_id', claimsOf(token).client_id) }));
  idp.clock.advance(200 * DAY);
  const documents = documentCollection(await idpStore(t, idp));
  await createDocuments(documents, {
    ...{ send: async () => ({}) as never, clock: idp.clock, onFailure: () => undefined },
  }).purge.run({ signal: new AbortController().signal } as never);
  const later = await enterConsole(idp, operator);
  t.match((await later.act(`/${path}/admit`)).body, 'The application is admitted.', 'it does not expire');
  t.equal((await idp.visit(client)).page.status, 200);
  const records = (await auditOf(await idpStore(t, idp))).filter(({ subject }) => subject === id);
  t.match(records.map(({ event, by }) => [event, by]).sort(), [
    ['client.admitted', 'olga'],
    ['client.blocked', 'olga'],
  ]);
});

t.test('the page names the whole host, warns of programs on the device and of a first visit', async (t) => {
  const started = await start(t);
  const { idp, host, client } = started;
  const { host: name } = new URL(host.url);
  const page = async (redirectUri: string) =>
    (await idp.visit({ ...client, redirectUri })).page.body.replaceAll('&#x2F;', '/');
  const first = await page('http://127.0.0.1:5555/cb');
  t.match(first, `<code>${name}</code>`);
  t.match(first, 'program on this device');
  t.match(first, sentence('client.first-visit'));
  t.notMatch(await page(CALLBACK), 'program on this device');
  await codeFor(t, started);
  t.notMatch(await page(CALLBACK), sentence('client.first-visit'));
  t.notMatch((await idp.visit(await idp.createClient())).page.body, 'not verified');
});

t.test('consent is asked each time for a client that any program on the device can present', async (t) => {
  const started = await start(t);
  const { idp, client } = started;
  const { browser } = await codeFor(t, started);
  const again = async (redirectUri: string) =>
    browser.open((await idp.listen()) + authorizePath({ ...client, redirectUri }));
  const consent = await again(CALLBACK);
  if (consent.location === undefined) await browser.submit(consent, { decision: 'allow' });
  t.ok((await again(CALLBACK)).location, 'a web application is remembered');
  const asked = await again(LOOPBACK);
  t.notOk(asked.location);
  t.ok((await browser.submit(asked, { decision: 'allow' })).location);
  t.notOk((await again(LOOPBACK)).location);
});

t.test('a client with a key in its document authenticates with it', async (t) => {
  const key = clientKey();
  const started = await start(
    t,
    {},
    {
      token_endpoint_auth_method: 'private_key_jwt',
      jwks: { keys: [key.jwk] },
    },
  );
  const { idp, client, id } = started;
  const { code } = await codeFor(t, started);
  t.equal((await idp.redeem(client, code)).status, 401, 'client_id alone');
  const signed = asserted(await assertion(key, { clientId: id, issuer: ISSUER, now: idp.clock.now() }));
  t.equal((await idp.redeem(client, code, signed)).status, 200);
});

t.test('only canonical https addresses with a path are identifiers', async (t) => {
  const good = [
    'https://app.example/c',
    'https://app.example:8443/a/b.json',
    'https://xn--bcher-kva.example/c',
  ];
  for (const id of good) t.equal(metadataIdProblem(id, false), null, id);
  for (const id of [
    ...words(`
      https://app.example https://app.example/ http://app.example/c http://127.0.0.1/c https://u@app.example/c
      https://u:p@app.example/c https://app.example/c?x https://app.example/c#x https://app.example/a/../c
      https://app.example/./c https://app.example/%2e%2e/c https://APP.example/c https://app.example:443/c
      https://app.example./c https:/app.example/c https://app.example\\c ftp://app.example/c cid_x
      https://app.example/${'x'.repeat(500)} https://127.1/c`),
    ...['https://app.example/\tc', ' https://app.example/c', ''],
  ])
    t.ok(metadataIdProblem(id, false), id);
  t.equal(metadataIdProblem('http://127.0.0.1:5000/c', true), null);
});

t.test('a document that breaks a rule is refused, and nothing is issued', async (t) => {
  const { idp, host, client, document } = await start(t);
  const broken: Record<string, unknown> = {
    'no JSON object': [document],
    'another client_id': { ...document, client_id: `${document.client_id}/` },
    'no client_id': { ...document, client_id: undefined },
    'a secret': { ...document, client_secret: 'x' },
    'a method with a secret': { ...document, token_endpoint_auth_method: 'client_secret_basic' },
    'a symmetric method': { ...document, token_endpoint_auth_method: 'client_secret_jwt' },
    'no key': { ...document, token_endpoint_auth_method: 'private_key_jwt' },
    'a symmetric key': {
      ...document,
      token_endpoint_auth_method: 'private_key_jwt',
      jwks: { keys: [{ kty: 'oct', k: 'eA' }] },
    },
    'no redirect': { ...document, redirect_uris: [] },
    'a redirect without TLS': { ...document, redirect_uris: [CALLBACK, 'http://app.example.test/cb'] },
    'a script': { ...document, redirect_uris: [CALLBACK, 'javascript:alert(1)'] },
    'another flow': { ...document, response_types: ['token'] },
    'another grant': { ...document, grant_types: ['password'] },
    'a name with a direction mark': { ...document, client_name: 'a\u202eb' },
    'logout at another host': { ...document, backchannel_logout_uri: 'https://other.example/out' },
    'a text': 'x',
  };
  for (const [name, value] of Object.entries(broken)) {
    host.documents['/client.json'] = value;
    idp.clock.advance(MINUTE + 1);
    const answer = await idp.authorize(client);
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, name);
    t.notOk(answer.headers['location']);
  }
});

t.test('responses that are no small JSON document are refused, and no redirect is followed', async (t) => {
  const { idp, host, client, document } = await start(t);
  const text = JSON.stringify(document);
  const json = { 'content-type': 'application/json' };
  const answers: Record<string, DocumentHost['answer']> = {
    redirect: (_, response) => void response.writeHead(302, { location: '/other.json' }).end(),
    'another type': (_, response) => void response.writeHead(200, { 'content-type': 'text/html' }).end(text),
    'too long': (_, response) => void response.writeHead(200, json).end(text + ' '.repeat(16 * 1024)),
    endless: (_, response) => {
      response.writeHead(200, json);
      const write = () => {
        while (!response.destroyed && response.write(' '.repeat(4096)));
        response.once('drain', write);
      };
      write();
    },
    compressed: (_, response) =>
      void response.writeHead(200, { ...json, 'content-encoding': 'gzip' }).end(text),
    'not found': (_, response) => void response.writeHead(404, json).end(text),
    'no UTF-8': (_, response) => void response.writeHead(200, json).end(Buffer.from([0x22, 0xff, 0x22])),
    broken: (_, response) => void response.destroy(),
  };
  for (const [name, answer] of Object.entries(answers)) {
    host.answer = answer;
    idp.clock.advance(MINUTE + 1);
    t.match(await idp.authorize(client), { status: 400, body: { error: 'invalid_request' } }, name);
  }
  t.notOk(host.requests.includes('/other.json'));
  t.notOk(host.requests.some((path) => path !== '/client.json'));
});

t.test('a copy is fresh for as long as its headers say, within five minutes and a day', async (t) => {
  const cases: [headers: Record<string, string>, freshMs: number][] = [
    [{}, 5 * MINUTE],
    [{ 'cache-control': 'no-store' }, 5 * MINUTE],
    [{ 'cache-control': 'max-age=1' }, 5 * MINUTE],
    [{ 'cache-control': 'public, max-age=3600', age: '600' }, 50 * MINUTE],
    [{ 'cache-control': 'max-age=9999999' }, 24 * HOUR],
    [{ expires: new Date(2 * HOUR).toUTCString(), date: new Date(HOUR).toUTCString() }, HOUR],
  ];
  for (const [headers, freshMs] of cases) {
    const { idp, host, client } = await start(t);
    host.headers = { ...host.headers, date: new Date(0).toUTCString(), ...headers };
    const requests = async () => {
      t.equal((await idp.authorize(client)).status, 200);
      return host.requests.length;
    };
    t.equal(await requests(), 1);
    idp.clock.advance(freshMs - 1);
    t.equal(await requests(), 1, JSON.stringify(headers));
    idp.clock.advance(1);
    t.equal(await requests(), 2, JSON.stringify(headers));
  }
});

t.test('concurrent visitors cause one request, and a failure none for a minute', async (t) => {
  const { idp, host, client } = await start(t);
  const visitors = Array.from({ length: 20 }, () => idp.authorize(client));
  t.ok((await Promise.all(visitors)).every(({ status }) => status === 200));
  t.equal(host.requests.length, 1);
  host.documents = {};
  idp.clock.advance(6 * MINUTE);
  for (let visit = 0; visit < 5; visit++) t.equal((await idp.authorize(client)).status, 400);
  t.equal(host.requests.length, 2);
});

t.test('an address pays for the requests that it causes', async (t) => {
  const { idp, host, client } = await start(t, { limits: true });
  const visit = (id: string, from: string) => idp.request('GET', authorizePath({ ...client, id }), { from });
  const statuses = [];
  for (let path = 0; path < 31; path++)
    statuses.push((await visit(`${host.url}/${path}.json`, '198.51.100.7')).status);
  t.same(statuses, [...Array(30).fill(400), 429]);
  t.equal(host.requests.length, 30);
  t.equal((await visit(client.id, '198.51.100.8')).status, 200, 'another address is not affected');
  t.equal((await visit(client.id, '198.51.100.7')).status, 200, 'a fresh copy costs nothing');
});

t.test('the operator decides which hosts may name themselves', async (t) => {
  const lists: [IdpAppOptions, number][] = [
    [{}, 200],
    [{ clientIdMetadataHosts: ['127.0.0.1'] }, 200],
    [{ clientIdMetadataHosts: ['app.example', '*.0.0.1'] }, 200],
    [{ clientIdMetadataHosts: ['app.example'] }, 400],
    [{ clientIdMetadataDeniedHosts: ['127.0.0.1'] }, 400],
    [{ clientIdMetadataHosts: ['127.0.0.1'], clientIdMetadataDeniedHosts: ['*.0.1'] }, 400],
    [{ clientIdMetadata: false }, 400],
  ];
  for (const [options, status] of lists) {
    const { idp, host, client } = await start(t, options);
    t.equal((await idp.authorize(client)).status, status, JSON.stringify(options));
    t.equal(host.requests.length, status === 200 ? 1 : 0);
    const metadata = (await idp.request('GET', '/.well-known/openid-configuration')).body;
    t.equal(
      metadata.client_id_metadata_document_supported,
      options.clientIdMetadata === false ? undefined : true,
    );
  }
});

t.test('an agent does not sign in to an unregistered client', async (t) => {
  const { idp, client } = await start(t);
  const answer = await idp.authorize(client, await idp.mintAgent());
  t.match(new URL(answer.headers['location'] ?? 'none:').searchParams.get('error'), 'access_denied');
});
