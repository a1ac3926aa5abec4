import t, { type Test } from 'tap';
import { type Answer, basic } from '../../kit/app.js';
import { FuzzConnection } from '../../kit/fuzz/connection.js';
import { bytesOf, type Pair } from '../../kit/fuzz/request.js';
import {
  ADMIN_TOKEN,
  authorizePath,
  codeIn,
  type IdpApp,
  idpApp,
  redemption,
  search,
} from '../../kit/idp.js';

/** Malicious requests, sent to every endpoint of OpenID Connect. */

/** Every endpoint that reads a body, and its limit in bytes. */
const BODIES: Record<string, number> = {
  '/authorize': 16 * 1024,
  '/authorize/login': 16 * 1024,
  '/authorize/consent': 16 * 1024,
  '/token': 64 * 1024,
  '/par': 8 * 1024,
  '/revoke': 16 * 1024,
  '/introspect': 16 * 1024,
  '/userinfo': 16 * 1024,
  '/logout': 16 * 1024,
  '/authorize/sign-up': 16 * 1024,
  '/account/password': 16 * 1024,
  '/account/name': 16 * 1024,
  '/account/delete': 16 * 1024,
};

const PATHS = [
  ...Object.keys(BODIES),
  '/.well-known/openid-configuration',
  '/.well-known/jwks.json',
  '/jwks',
];

/** The headers of a browser in which a person is signed in, which the account pages require before they read a body. */
async function signedIn(idp: IdpApp): Promise<(path: string) => Record<string, string>> {
  const { browser, page } = await idp.visit(await idp.createClient());
  const { handle, password } = await idp.makeHuman();
  await browser.submit(page, { handle, password });
  const cookie = `__Host-idp-session=${browser.cookies()['__Host-idp-session']}`;
  return (path) => (path.startsWith('/account') ? { cookie } : {});
}

/** In the format of this product's errors, not of the framework's. */
function isOurs(t: Test, { status, headers, text, body }: Answer, name: string): void {
  t.match(headers, { 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' }, name);
  if (status < 400) return;
  if (headers['content-type']?.startsWith('text/html')) t.match(text, /<h1>/, name);
  else t.match(body, { error: /^[a-z_]+$/, error_description: /./, statusCode: undefined }, name);
}

t.test('a body is read up to its limit and refused beyond it', async (t) => {
  const idp = await idpApp(t);
  const headersFor = await signedIn(idp);
  for (const [path, limit] of Object.entries(BODIES)) {
    const fill = (length: number) => `x=${'y'.repeat(length - 2)}`;
    const headers = headersFor(path);
    const most = await idp.request('POST', path, { form: fill(limit), headers });
    t.ok(most.status < 500 && most.status !== 413, `${path}: ${most.status}`);
    const more = await idp.request('POST', path, { form: fill(limit + 1), headers });
    t.equal(more.status, 413, path);
    isOurs(t, more, path);
  }
});

t.test('a body must be a declared, unencoded form or JSON', async (t) => {
  const idp = await idpApp(t);
  const headersFor = await signedIn(idp);
  const types = [
    ...['text/plain', 'multipart/form-data; boundary=x', 'application/xml', 'application/jsonx', 'x', ';'],
    ...['text/html', 'application/x-www-form-urlencodedx', 'application/jwt', 'application/cbor'],
  ];
  for (const path of Object.keys(BODIES)) {
    for (const type of types) {
      const headers = { ...headersFor(path), 'content-type': type };
      const answer = await idp.request('POST', path, { form: 'token=x', headers });
      t.equal(answer.status, 415, `${path} ${type}`);
      isOurs(t, answer, path);
    }
    for (const encoding of ['gzip', 'br', 'deflate', 'zstd', 'identity, gzip']) {
      const headers = { ...headersFor(path), 'content-encoding': encoding };
      t.equal((await idp.request('POST', path, { form: 'a=b', headers })).status, 415, `${path} ${encoding}`);
    }
  }
  // RFC 9110 §9.3.1: the content of a GET request has no meaning.
  const headers = { 'content-encoding': 'gzip' };
  t.equal((await idp.request('GET', '/userinfo', { headers })).status, 401);
});

t.test('every field accepts only one string', async (t) => {
  const idp = await idpApp(t);
  const headersFor = await signedIn(idp);
  const client = await idp.createClient();
  const own = { client_id: client.id, client_secret: client.secret };
  const fields: Record<string, string[]> = {
    '/authorize/login': ['interaction', 'handle', 'password'],
    '/authorize/consent': ['interaction', 'decision'],
    '/authorize/sign-up': ['interaction', 'handle', 'name', 'password', 'password_confirm'],
    '/account/password': ['form', 'current_password', 'password', 'password_confirm'],
    '/account/name': ['form', 'name'],
    '/account/sessions/end': ['form', 'sid'],
    '/account/applications/disconnect': ['form', 'client_id'],
    '/account/delegations/end': ['form', 'delegation'],
    '/account/agents/stop': ['form', 'agent'],
    '/account/delete': ['form', 'confirm', 'password'],
    '/revoke': ['token', 'token_type_hint', 'client_id', 'client_secret'],
    '/introspect': ['token', 'token_type_hint', 'client_id', 'client_secret'],
    '/logout': ['id_token_hint', 'state', 'client_id', 'confirm'],
    '/authorize': ['client_id', 'state', 'redirect_uri'],
    '/token': ['grant_type', 'code', 'redirect_uri', 'client_id', 'client_secret', 'code_verifier'],
  };
  for (const [path, names] of Object.entries(fields)) {
    const right = {
      ...Object.fromEntries(names.map((name) => [name, 'x'])),
      ...(names.includes('token') && own),
    };
    const headers = headersFor(path);
    for (const name of names) {
      for (const value of [null, 1, true, {}, { $ne: '' }, [['x']], [null], [{}]]) {
        const answer = await idp.request('POST', path, { body: { ...right, [name]: value }, headers });
        const message = `${path} ${name}: ${JSON.stringify(value)}`;
        t.match(answer, { status: 400, body: { error: 'invalid_request' } }, message);
      }
      const twice = await idp.request('POST', path, { form: `${search(right)}&${name}=y`, headers });
      const isRefused =
        twice.status === 303 ? await idp.request('GET', twice.headers['location'] ?? '') : twice;
      t.equal(isRefused.status, 400, `${path} ${name} twice`);
    }
    for (const body of [
      'null',
      '[]',
      '"x"',
      '{"__proto__":{"x":1}}',
      '{"constructor":{"prototype":{"x":1}}}',
      '{"a":1e400}',
      '['.repeat(8000),
    ]) {
      t.equal(
        (await idp.request('POST', path, { body, headers })).status,
        400,
        `${path} ${body.slice(0, 40)}`,
      );
    }
    for (const form of [
      '__proto__=1&x=1',
      'constructor[prototype][x]=1',
      'token[$gt]=',
      'toString=1&valueOf=2',
    ]) {
      const answer = await idp.request('POST', path, { form, headers });
      t.ok(answer.status < 500, `${path} ${form}: ${answer.status}`);
      isOurs(t, answer, path);
    }
  }
  t.equal(({} as Record<string, unknown>)['x'], undefined);
});

t.test('a method that a path does not have is answered 405 with those it has', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const agent = await idp.mintAgent();
  const { calls } = idp.random;
  const only: Record<string, string[]> = {
    '/authorize/login': ['POST'],
    '/authorize/consent': ['POST'],
    '/token': ['POST', 'OPTIONS'],
    '/par': ['POST', 'OPTIONS'],
    '/revoke': ['POST', 'OPTIONS'],
    '/introspect': ['POST'],
    '/authorize': ['GET', 'POST'],
    '/logout': ['GET', 'POST'],
  };
  for (const [path, methods] of Object.entries(only)) {
    for (const method of ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'POST']) {
      if (methods.includes(method)) continue;
      const url = path === '/authorize' ? authorizePath(client) : path;
      const headers = { authorization: basic(agent.handle, agent.password) };
      const answer = await idp.request(method, url, { headers });
      // Without CORS at that path.
      const refused = method === 'OPTIONS' ? [404, undefined] : [405, [...methods].sort().join(', ')];
      t.same([answer.status, answer.headers['allow']], refused, `${method} ${path}`);
      if (method === 'PUT') t.equal(answer.body.error, 'method_not_allowed');
      t.equal(answer.headers['location'], undefined);
    }
  }
  const allowed = async (method: string, path: string) => {
    const { status, headers } = await idp.request(method, path);
    return [status, headers['allow']];
  };
  t.same(await allowed('PUT', `/v1/agents/${agent.sub}`), [405, 'DELETE']);
  t.same(await allowed('POST', '/.well-known/openid-configuration?x'), [405, 'GET, HEAD, OPTIONS']);
  t.same(await allowed('PUT', '/admin'), [405, 'GET, HEAD'], 'in the scope of the console');
  t.same(await allowed('PUT', '/health'), [405, 'GET, HEAD'], 'in that of the server');
  for (const path of ['/nothing', '/v1/agents/', '/register', '/account/', '/account/sign-in/with/x'])
    t.same(await allowed('PUT', path), [404, undefined], path);
  const page = await idp.request('GET', '/authorize/login', { headers: { accept: 'text/html' } });
  t.match([page.status, page.headers['allow'], page.headers['content-type']], [405, 'POST', /^text\/html/]);
  t.equal(idp.random.calls, calls, 'nothing was made');
  const url = await idp.listen();
  const connection = new FuzzConnection(url);
  t.teardown(() => connection.end());
  const canary = 'TRACE-canary';
  for (const path of PATHS) {
    const headers: Pair[] = [['cookie', canary]];
    const answer = await connection.exchange(bytesOf({ method: 'TRACE', path, query: [], headers }));
    t.ok([400, 404, 405].includes(answer?.status ?? 0), `TRACE ${path}`);
    t.notMatch(answer?.body, canary, 'nothing comes back');
  }
});

t.test('of two conflicting headers one counts, never a mix', async (t) => {
  const idp = await idpApp(t);
  const [client, other] = [await idp.createClient(), await idp.createClient()];
  const [agent, stranger] = [await idp.mintAgent(), await idp.mintAgent()];
  const connection = new FuzzConnection(await idp.listen());
  t.teardown(() => connection.end());
  const get = async (path: string, headers: Pair[]) => {
    const [pathname = '', query = ''] = path.split('?');
    const pairs = [...new URLSearchParams(query)] as Pair[];
    return connection.exchange(bytesOf({ method: 'GET', path: pathname, query: pairs, headers }));
  };
  const as = (handle: string, password: string | undefined): Pair => [
    'authorization',
    basic(handle, password),
  ];
  const subOf = async (headers: Pair[]) => {
    const answer = await get(authorizePath(client), headers);
    if (answer?.status !== 302) return answer?.status;
    const { body } = await idp.redeem(client, codeIn(answer.header('location')));
    return (await idp.userinfo(body.access_token)).body.sub;
  };
  const [mine, foreign] = [as(agent.handle, agent.password), as(stranger.handle, stranger.password)];
  t.equal(await subOf([mine, foreign]), agent.sub, 'the first');
  t.equal(await subOf([foreign, mine]), stranger.sub);
  t.equal(await subOf([as(agent.handle, 'wrong'), mine]), 401);
  t.equal(await subOf([['authorization', 'Bearer x'], mine]), 401);
  t.equal(await subOf([mine, ['authorization', '']]), agent.sub);

  const code = await idp.codeFor(client, agent);
  const form = [...new URLSearchParams(redemption(client, code))].filter(
    ([name]) => !name.startsWith('client_'),
  );
  const token = (headers: Pair[]) =>
    connection.exchange(
      bytesOf({ method: 'POST', path: '/token', query: [], headers, body: { form: form as Pair[] } }),
    );
  t.equal(
    (await token([as(other.id, other.secret), as(client.id, client.secret)]))?.status,
    400,
    'of another client',
  );
  t.equal((await token([as(client.id, 'x'), as(client.id, client.secret)]))?.status, 401);
  t.equal((await token([as(client.id, client.secret), as(other.id, other.secret)]))?.status, 200);

  for (const accept of ['application/json', 'text/html']) {
    const twice = await get('/authorize', [
      ['accept', accept],
      ['accept', 'text/html'],
      ['host', 'evil.test'],
    ]);
    t.match(twice?.header('content-type'), /^text\/html/);
    t.notMatch(twice?.body, 'evil.test');
  }
});

t.test('client credentials are parsed strictly at every endpoint', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const secret = client.secret as string;
  const right = basic(client.id, secret);
  const encoded = right.slice('Basic '.length);
  const bytes = (text: string | Buffer) => `Basic ${Buffer.from(text).toString('base64')}`;
  const refused = [
    ...[
      '',
      'Basic',
      'Basic ',
      'Basic  ',
      `Basic\t${encoded}`,
      ` ${encoded}`,
      `Basic,${encoded}`,
      `Basic ${encoded} x`,
    ],
    ...[
      `Basic ${encoded}, Bearer x`,
      `Bearer ${encoded}`,
      `BasicX ${encoded}`,
      `Basic ${client.id}:${secret}`,
    ],
    ...[bytes(''), bytes(':'), bytes(client.id), bytes(`${client.id}:`), bytes(`:${secret}`)],
    ...[
      bytes(`${client.id}:${secret}\0`),
      bytes(`${client.id}:${secret}\n`),
      bytes(`\ufeff${client.id}:${secret}`),
    ],
    ...[
      bytes(Buffer.from(`${client.id}:\xff\xfe`, 'latin1')),
      bytes(`${client.id}%ff:${secret}`),
      bytes('%:%'),
    ],
    ...[bytes('__proto__:x'), bytes('constructor:prototype'), bytes(`{"$ne":""}:${secret}`)],
  ];
  for (const path of ['/token', '/revoke', '/introspect']) {
    for (const authorization of refused) {
      const answer = await idp.request('POST', path, { form: 'token=x', headers: { authorization } });
      t.match(answer, { status: 401, body: { error: 'invalid_client' } }, `${path} ${authorization}`);
      t.match(answer.headers['www-authenticate'], /^Basic realm="idp"/);
    }
    for (const authorization of [right, right.replace('Basic', 'bASIC'), `Basic   ${encoded}  `]) {
      const answer = await idp.request('POST', path, { form: 'token=x', headers: { authorization } });
      t.equal(answer.status, path === '/token' ? 400 : 200, `${path} ${authorization}`);
    }
    const both = { form: search({ token: 'x', client_secret: secret }), headers: { authorization: right } };
    t.match(await idp.request('POST', path, both), { status: 400, body: { error: 'invalid_request' } }, path);
    const other = { form: search({ token: 'x', client_id: 'cid_0' }), headers: { authorization: right } };
    t.match(await idp.request('POST', path, other), { status: 401, body: { error: 'invalid_client' } }, path);
    const query = `${path}?${search({ client_id: client.id, client_secret: secret })}`;
    t.equal(
      (await idp.request('POST', query, { form: 'token=x' })).status,
      401,
      'nothing is read from the query',
    );
  }
});

t.test('an error is a page for browsers and JSON for other clients', async (t) => {
  const idp = await idpApp(t);
  const wanted = (accept: string | undefined): RegExp =>
    accept?.includes('text/html') ? /^text\/html/ : /^application\/json/;
  const pages = ['/authorize', '/logout?id_token_hint=x', '/account/password', '/nothing'];
  const accepts = [
    ...[undefined, '', '*/*', 'application/json', 'text/html', 'text/*', 'image/png', ';', ',,,', '\x80'],
    ...[
      'text/html,application/xhtml+xml;q=0.9,*/*;q=0.8',
      'application/json, text/html;q=0.1',
      'x'.repeat(4000),
    ],
  ];
  for (const accept of accepts) {
    const headers = accept === undefined ? {} : { accept };
    for (const path of pages) {
      const answer = await idp.request('GET', path, { headers });
      t.match(answer.headers['content-type'], wanted(accept), `${path} for ${accept}`);
      isOurs(t, answer, path);
    }
    for (const path of ['/token', '/revoke', '/introspect', '/userinfo']) {
      const answer = await idp.request('POST', path, { headers });
      t.match(answer.headers['content-type'], /^application\/json/, `${path} for ${accept}`);
    }
  }
});

t.test('clients cannot inject header lines into any answer', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const state = 'a\r\nset-cookie: evil=1\r\n\r\n<h1>\u2028\u0085\0';
  const isOne = (location: string | undefined | null, message: string) => {
    t.match(location, /^[\x21-\x7e]+$/, message);
    t.equal(new URL(location ?? '', 'https://id.example.test').searchParams.get('state'), state, message);
  };
  const { browser, page } = await idp.visit(client, { state });
  isOne(
    (await browser.submit(page, { handle: human.handle, password: human.password })).location,
    'the form',
  );
  const origin = await idp.listen();
  isOne((await browser.open(origin + authorizePath(client, { state }))).location, 'the session');
  const consent = await browser.open(origin + authorizePath(client, { state, prompt: 'consent' }));
  isOne((await browser.submit(consent, { decision: 'deny' })).location, 'a refusal');
  isOne(
    (await browser.open(origin + authorizePath(client, { state, response_type: 'x' }))).location,
    'an error',
  );
  const posted = await idp.request('POST', '/authorize', { form: search({ state, client_id: client.id }) });
  isOne(posted.headers['location'], 'POST');
  const asked = await idp.request('POST', '/logout', { form: search({ state }) });
  isOne(asked.headers['location'], 'logout');
  for (const name of ['x-request-id', 'x-forwarded-for', 'user-agent', 'referer', 'accept-language']) {
    const { headers } = await idp.request('GET', '/authorize', { headers: { [name]: ADMIN_TOKEN } });
    t.notMatch(JSON.stringify(headers), ADMIN_TOKEN, name);
  }
});
