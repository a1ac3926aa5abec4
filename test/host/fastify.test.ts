import mongodb from '@fastify/mongodb';
import fastify, { type FastifyInstance, type InjectOptions } from 'fastify';
import t, { type Test } from 'tap';
import { identityProvider, saasBackend } from '../../src/index.js';
import { onMongod } from '../core/storage/mongod.js';
import { Agent } from '../kit/agent.js';
import { basic, PASSWORD, SECRETS } from '../kit/app.js';
import { FACTOR_KEY } from '../kit/factors.js';
import {
  createHost,
  type HostOptions,
  idpPluginOptions,
  LOGIN,
  OUTSIDE,
  saasPluginOptions,
} from '../kit/host.js';
import { ADMIN_TOKEN, authorizePath, CALLBACK, codeIn, redemption } from '../kit/idp.js';
import { mailSink, readMail } from '../kit/mail.js';
import { signWebhook } from '../kit/sign-webhook.js';

const json = { 'content-type': 'application/json' };

const saasFirst = (t: Test) => async (host: FastifyInstance) => {
  await host.register(saasBackend, saasPluginOptions(t));
  await host.register(identityProvider, idpPluginOptions(t));
};
const idpFirst = (t: Test) => async (host: FastifyInstance) => {
  await host.register(identityProvider, idpPluginOptions(t));
  await host.register(saasBackend, saasPluginOptions(t));
};

/** Both plugins in one host, registered before or after everything the host has. */
const WAYS: Record<string, (t: Test) => HostOptions> = {
  'last, beside zod': (t) => ({ zod: true, last: idpFirst(t) }),
  'first, beside zod': (t) => ({ zod: true, first: saasFirst(t) }),
  'last, beside compilers of its own': (t) => ({ last: saasFirst(t) }),
};

for (const [name, together] of Object.entries(WAYS)) {
  t.test(`outside our prefixes a host answers byte for byte as without the plugins (${name})`, async (t) => {
    const options = together(t);
    const [alone, withUs] = [
      await createHost(t, { zod: options.zod === true }),
      await createHost(t, options),
    ];
    for (const request of OUTSIDE) {
      for (const login of [{}, LOGIN]) {
        const asked = { ...request, headers: { ...request.headers, ...login } };
        const [before, after] = [await alone.inject(asked), await withUs.inject(asked)];
        const { date: _, ...headers } = before.headers;
        const { date: __, ...headersAfter } = after.headers;
        t.equal(after.statusCode, before.statusCode, `${request.method} ${request.url}`);
        t.same(headersAfter, headers);
        t.equal(after.body.replace('"saas":"object"', '"saas":"undefined"'), before.body);
      }
    }
  });

  t.test(`outside our prefixes the host's log lines do not change (${name})`, async (t) => {
    const options = together(t);
    const logs = await Promise.all(
      [{ zod: options.zod === true }, options].map(async (options) => {
        const lines: string[] = [];
        const host = await createHost(t, { ...options, lines });
        await host.ready();
        lines.length = 0;
        for (const url of ['/user?x=1', '/throws', '/nothing']) await host.inject({ url, headers: LOGIN });
        return lines.map((line) => ({ ...JSON.parse(line), time: 0, responseTime: 0 }));
      }),
    );
    t.ok(logs[0]?.length);
    t.same(logs[1], logs[0]);
  });

  t.test(`under our prefixes the host's conventions have no effect (${name})`, async (t) => {
    const host = await createHost(t, together(t));
    await driveSaas(t, host);
    await driveIdp(t, host, '/idp');
    // Before its stores are removed.
    await host.close();
  });
}

t.test('a schema that a host adds after us does not change how our requests are validated', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await saasFirst(t)(host);
  host.addSchema({ $id: 'User', type: 'object', properties: { nick: { type: 'string' } } });
  const payload = { email: 'ada@example.test', password: 'a sentence is fine', name: 5 };
  const refused = await host.inject({ method: 'POST', url: '/api/auth/register', payload });
  t.equal(refused.statusCode, 400, 'nothing is converted');
  t.match(refused.json().error.details, [{ path: 'name', message: /; given: 5$/ }]);
});

/** One request of each kind to the backend in a host. */
async function driveSaas(t: Test, host: FastifyInstance): Promise<void> {
  const send = (method: 'GET' | 'POST', url: string, more: InjectOptions = {}) =>
    host.inject({ method, url, ...more });
  const registered = await send('POST', '/api/auth/register', {
    payload: { email: 'Ada@example.test', password: PASSWORD },
  });
  t.equal(registered.statusCode, 201, 'our parser, our validator, no login of the host');
  t.equal(registered.json().data.user.email, 'ada@example.test', 'our serializer');
  t.not(registered.headers['x-request-id'], 'host-request');
  const wrong = await send('POST', '/api/auth/login', { payload: { email: null } });
  t.equal(wrong.statusCode, 400);
  t.equal(wrong.json().error.code, 'VALIDATION_ERROR', 'our error handler');
  const missing = await send('GET', '/api/nothing', { headers: LOGIN });
  t.equal(missing.statusCode, 404);
  t.equal(missing.json().error.code, 'NOT_FOUND', 'our 404');
  const form = await send('POST', '/api/auth/login', {
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
    payload: 'email=a@example.test&password=x',
  });
  t.equal(form.statusCode, 415, 'no form parser of the host');
  const { accessToken, user } = registered.json().data;
  const me = (token: string) =>
    send('GET', '/api/auth/me', { headers: { authorization: `Bearer ${token}` } });
  t.equal((await me(accessToken)).json().data.user.id, user.id);
  t.equal((await me(host.jwt.sign({ sub: user.id }))).statusCode, 401, 'no token of the host');
  const verified = await send('GET', '/verify', {
    headers: { ...LOGIN, authorization: `Bearer ${accessToken}` },
  });
  t.equal(verified.statusCode, 418, 'and no token of ours there');
  const asHost = { headers: { authorization: basic('host', 'x') } };
  t.equal((await send('GET', '/admin', asHost)).statusCode, 401, 'no password of the host');
  t.match((await send('GET', '/admin', { headers: { authorization: basic() } })).body, '<!doctype html>');

  const event = JSON.stringify({ type: 'x', data: { object: { id: 'o' } } });
  const { clock } = saasPluginOptions(t);
  const signature = signWebhook(event, SECRETS.paymentWebhookSecret, clock.now());
  const headers = { ...json, 'payment-signature': signature };
  const webhook = await send('POST', '/api/billing/webhook', { headers, payload: event });
  t.equal(webhook.statusCode, 200, 'the raw body');
}

/** An agent’s sign-in at the provider in a host. */
async function driveIdp(t: Test, host: FastifyInstance, prefix: string): Promise<void> {
  const post = async (path: string, payload: object | string, headers: Record<string, string> = {}) =>
    host.inject({ method: 'POST', url: prefix + path, payload, headers });
  const admin = { authorization: `Bearer ${ADMIN_TOKEN}` };
  const made = await post('/v1/clients', { redirect_uris: [CALLBACK] }, admin);
  t.equal(made.statusCode, 201, 'our parser, our validator, no login of the host');
  const { client_id: id, client_secret: secret } = made.json();
  const client = { id, secret, redirectUri: CALLBACK };
  const agent = (await post('/v1/agents', { handle: 'agent@example.test' }, admin)).json();
  const page = await host.inject(prefix + authorizePath(client));
  t.match(page.headers['set-cookie'], [/idp=/, 'seen=by%20host; SameSite=Lax'], 'our cookie, and the host’s');
  const authorization = basic(agent.handle, agent.password);
  const answer = await host.inject({ url: prefix + authorizePath(client), headers: { authorization } });
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  const tokens = await post('/token', redemption(client, codeIn(answer.headers.location)), form);
  t.equal(tokens.statusCode, 200, 'our form parser');
  const bearer = { authorization: `Bearer ${tokens.json().access_token}` };
  const userinfo = await host.inject({ url: `${prefix}/userinfo`, headers: bearer });
  t.equal(userinfo.json().sub, agent.sub);
  const missing = await host.inject({ url: `${prefix}/nothing`, headers: LOGIN });
  t.match(missing.json(), { error: 'not_found' }, 'our 404');
}

t.test("a host's own routes authenticate users with our guards", async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(
    saasBackend,
    saasPluginOptions(t, { prefix: '/backend/v1', adminPath: '/backend/admin' }),
  );
  host.get('/mine', { onRequest: host.saas.requireUser }, async (request) => request.saas.user.email);
  const payload = { email: 'ada@example.test', password: PASSWORD };
  const registered = await host.inject({ method: 'POST', url: '/backend/v1/auth/register', payload });
  const { accessToken, user } = registered.json().data;
  const mine = await host.inject({ url: '/mine', headers: { authorization: `Bearer ${accessToken}` } });
  t.equal(mine.body, 'ada@example.test');
  const refused = await host.inject('/mine');
  t.equal(refused.statusCode, 401);
  t.equal(refused.headers['www-authenticate'], 'Bearer realm="api"');
  t.match(await host.saas.users.find({ email: 'ADA@example.test' }), { id: user.id });
  t.throws(() => Object.assign(host.saas, { requireUser: null }), TypeError, 'frozen');
  t.equal((await host.inject('/api/auth/me')).statusCode, 404);
  t.equal((await host.inject('/backend/admin')).statusCode, 401);
});

t.test('a host keeps its own CORS rules', async (t) => {
  const pluginOptions = saasPluginOptions(t, { corsOrigin: ['https://app.example'] });
  const host = await createHost(t, {
    last: async (host) => void (await host.register(saasBackend, pluginOptions)),
  });
  const answer = await host.inject({ url: '/api/auth/me', headers: { origin: 'https://app.example' } });
  t.equal(answer.headers['access-control-allow-origin'], 'https://host.example');
});

t.test("hooks of the host's root run on our routes, and hooks of sibling plugins do not", async (t) => {
  const lines: string[] = [];
  const host = fastify({ logger: { stream: { write: (line: string) => void lines.push(line) } } });
  t.teardown(() => host.close());
  await host.register(saasBackend, saasPluginOptions(t));
  await host.register(identityProvider, idpPluginOptions(t));
  await host.register(async (mine) => {
    mine.addHook('onRequest', async () => {
      throw new Error('log in at the host');
    });
    mine.get('/mine', async () => 'mine');
  });
  host.addHook('onRequest', async ({ headers }) => {
    if (headers['x-block']) throw Object.assign(new Error('words of the host'), { statusCode: 403 });
  });
  t.equal((await host.inject('/mine')).statusCode, 500);
  t.equal((await host.inject('/api/settings/public')).statusCode, 200);
  t.equal((await host.inject('/idp/jwks')).statusCode, 200);

  const blocked = (url: string) => host.inject({ url, headers: { 'x-block': 'yes' } });
  const refused = await blocked('/api/settings/public');
  t.equal(refused.statusCode, 403);
  t.match(refused.json(), { success: false, error: { code: 'FORBIDDEN' } }, 'in our shape');
  t.match((await blocked('/idp/jwks')).json(), { error: 'forbidden' });
  t.notMatch(refused.body, 'words of the host');
  t.equal(lines.filter((line) => line.includes('words of the host')).length, 2, 'which its log shows');
});

t.test("a refusal by a host's hook keeps its status and Retry-After", async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, saasPluginOptions(t));
  await host.register(identityProvider, idpPluginOptions(t));
  host.addHook('onRequest', async ({ headers }, reply) => {
    const { set, ...thrown } = JSON.parse(String(headers['x-throw']));
    reply.headers(set ?? {});
    throw Object.assign(new Error('words of the host'), thrown);
  });
  const refused = async (url: string, thrown: object) => {
    const answer = await host.inject({ url, headers: { 'x-throw': JSON.stringify(thrown) } });
    t.notMatch(answer.body, 'words of the host');
    t.equal(answer.headers['x-other'], undefined, 'what is about another answer');
    const { error } = answer.json();
    return [answer.statusCode, error.code ?? error, answer.headers['retry-after']];
  };
  const [api, idp] = ['/api/settings/public', '/idp/jwks'];
  t.same(await refused(api, { statusCode: 402 }), [402, 'VALIDATION_ERROR', undefined]);
  t.same(await refused(idp, { statusCode: 451 }), [451, 'invalid_request', undefined]);
  t.same(await refused(api, { status: 403 }), [403, 'FORBIDDEN', undefined]);
  const later = { 'retry-after': '60', 'X-Other': '1' };
  t.same(await refused(api, { status: 429, headers: later }), [429, 'RATE_LIMITED', '60']);
  t.same(await refused(idp, { statusCode: 503, headers: later }), [503, 'temporarily_unavailable', '60']);
  t.same(await refused(api, { statusCode: 503, set: { 'retry-after': '120' } }), [503, 'NOT_READY', '120']);
  t.same(await refused(api, { statusCode: 503 }), [503, 'NOT_READY', '5']);
  t.same(await refused(idp, { statusCode: 302 }), [500, 'server_error', undefined]);
});

t.test("a route that a host's hook hides looks like an unknown route", async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  host.setNotFoundHandler((_request, reply) => void reply.code(404).send('host 404'));
  host.addHook('onRequest', (request, reply, done) => {
    if (request.is404) done();
    else reply.callNotFound();
  });
  await host.register(saasBackend, saasPluginOptions(t));
  await host.register(identityProvider, idpPluginOptions(t));
  for (const [hidden, unknown] of [
    ['/api/auth/me', '/api/nothing'],
    ['/admin', '/admin/nothing'],
    ['/idp/authorize', '/idp/nothing'],
  ]) {
    const [answer, missing] = [await host.inject(String(hidden)), await host.inject(String(unknown))];
    t.equal(answer.statusCode, 404);
    const shapeOf = ({ body }: { body: string }) => body.replace(/req_\w+/, '');
    t.equal(shapeOf(answer), shapeOf(missing));
    t.notMatch(answer.body, 'host 404');
  }
});

t.test(
  'in a host, a method that a path does not have is 405 only for our routes below our prefixes',
  async (t) => {
    const host = fastify();
    t.teardown(() => host.close());
    host.setNotFoundHandler((_request, reply) => void reply.code(404).send('host 404'));
    host.get('/api/mine', async () => 'mine');
    host.put('/api/auth/me', async () => 'mine');
    host.put('/idp/:any', async () => 'mine');
    await host.register(async (instance) => {
      await instance.register(saasBackend, saasPluginOptions(t, { accountPages: true }));
      await instance.register(identityProvider, idpPluginOptions(t));
    });
    await host.register(
      async (instance) => {
        await instance.register(saasBackend, saasPluginOptions(t, { prefix: '/v1', adminPath: '/ops' }));
        // At the root of this scope, where unknown paths are the host's.
        const publicUrl = 'http://app.example.test/below';
        await instance.register(identityProvider, { ...idpPluginOptions(t, { publicUrl }), prefix: '' });
      },
      { prefix: '/below' },
    );
    const answer = async (method: 'DELETE' | 'OPTIONS' | 'POST' | 'PUT', url: string) => {
      const { statusCode, headers, body } = await host.inject({ method, url });
      return headers['allow'] ?? `${statusCode} ${/^(host 404|mine)$/.test(body) ? body : 'ours'}`;
    };
    t.equal(await answer('DELETE', '/api/auth/login'), 'POST');
    t.equal(await answer('DELETE', '/account/password'), 'GET, HEAD, POST');
    t.equal(await answer('DELETE', '/account/'), '404 ours', 'as with GET');
    t.equal(await answer('DELETE', '/idp/token'), 'OPTIONS, POST');
    t.equal(await answer('DELETE', '/idp/admin/audit'), 'GET, HEAD', 'in the scope of the console');
    t.equal(await answer('DELETE', '/below/v1/auth/login'), 'POST');
    t.equal(await answer('DELETE', '/below/ops/mails'), 'GET, HEAD');

    t.equal(await answer('DELETE', '/api/mine'), '404 ours');
    t.equal(await answer('PUT', '/api/auth/me'), '200 mine');
    t.equal(await answer('PUT', '/idp/token'), '200 mine');
    t.equal(await answer('POST', '/.well-known/change-password'), '404 host 404');
    t.equal(await answer('DELETE', '/below/token'), '404 host 404');
    t.equal(await answer('DELETE', '/auth/login'), '404 host 404');
    t.equal(await answer('OPTIONS', '/api/auth/login'), '404 ours', 'without CORS');

    const { headers, body } = await host.inject({ method: 'PUT', url: '/api/auth/login' });
    t.match(JSON.parse(body), { success: false, error: { code: 'METHOD_NOT_ALLOWED', requestId: String } });
    t.match(headers, { 'x-request-id': String, 'cache-control': 'no-store' });
  },
);

t.test('a body that the host has read does not disturb a 404', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  host.addHook('onRequest', async ({ raw }) => void Object.assign(raw, { body: await raw.toArray() }));
  await host.register(saasBackend, saasPluginOptions(t));
  const post = (headers: Record<string, string> = {}) =>
    host.inject({ method: 'POST', url: '/api/nothing', headers, payload: {} });
  t.equal((await post({ 'content-encoding': 'gzip' })).statusCode, 415);
  t.equal((await post()).statusCode, 404);
});

t.test('two instances of each plugin work in two scopes of one application', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  const { url: emailSmtpUrl, next } = await mailSink(t);
  for (const name of ['one', 'two']) {
    await host.register(
      async (instance) => {
        await instance.register(saasBackend, saasPluginOptions(t, { emailSmtpUrl }));
        await instance.register(
          identityProvider,
          idpPluginOptions(t, { publicUrl: `http://app.test/${name}/idp` }),
        );
        instance.get(
          '/mine',
          { onRequest: instance.saas.requireUser },
          async (request) => request.saas.user.email,
        );
        instance.get('/issuer', async () => instance.idp.issuer());
      },
      { prefix: `/${name}` },
    );
  }
  await host.ready();
  const payload = { email: 'ada@example.test', password: PASSWORD };
  const registered = await host.inject({ method: 'POST', url: '/one/api/auth/register', payload });
  const headers = { authorization: `Bearer ${registered.json().data.accessToken}` };
  t.equal((await host.inject({ url: '/one/mine', headers })).body, payload.email);
  t.equal((await host.inject({ url: '/two/mine', headers })).statusCode, 401);
  await next();
  await host.inject({ method: 'POST', url: '/one/api/auth/forgot-password', payload });
  t.match(readMail(await next()).text, 'http://app.example.test/one/api/auth/reset-password?token=');
  t.equal((await host.inject('/two/issuer')).body, 'http://app.test/two/idp');
  for (const name of ['one', 'two']) {
    t.equal((await host.inject(`/${name}/idp/jwks`)).statusCode, 200);
    t.equal(
      (await host.inject(`/${name}/.well-known/oauth-authorization-server/${name}/idp`)).statusCode,
      404,
    );
  }
  // Before its stores are removed.
  await host.close();
});

t.test('the plugins use the client addresses of their host, and say so', async (t) => {
  const behind = { 'x-forwarded-for': '203.0.113.9' };
  for (const [name, variable, path] of [
    ['saas', 'TRUST_PROXY', '/api/health'],
    ['idp', 'IDP_TRUST_PROXY', '/idp/jwks'],
  ] as const) {
    const open = async (trustProxy: string | false, env: Record<string, string> = {}) => {
      const lines: string[] = [];
      const stream = { write: (line: string) => void lines.push(line) };
      const host = fastify({ trustProxy, logger: { level: 'warn', stream } });
      t.teardown(() => host.close());
      if (name === 'saas') await host.register(saasBackend, saasPluginOptions(t, { env }));
      else
        await host.register(
          identityProvider,
          idpPluginOptions(t, { env, prefix: '/idp', publicUrl: 'http://x.test/idp' }),
        );
      const words = () =>
        lines.map((line) => JSON.parse(line).msg as string).filter((text) => /proxy/i.test(text));
      return { host, words };
    };
    const ignorant = await open(false);
    t.same(ignorant.words(), []);
    for (const headers of [{}, behind, behind]) {
      t.equal((await ignorant.host.inject({ url: path, headers })).statusCode, 200);
    }
    t.equal(ignorant.words().length, 1, 'once');
    t.match(
      ignorant.words()[0],
      'The host does not trust 127.0.0.1, so its X-Forwarded-For header is ignored',
    );
    t.match(ignorant.words()[0], "fastify({ trustProxy: '127.0.0.1' })");

    const trusting = await open('127.0.0.1', { [variable]: '127.0.0.1' });
    t.equal((await trusting.host.inject({ url: path, headers: behind })).statusCode, 200);
    t.equal(trusting.words().length, 1);
    t.match(trusting.words()[0], `${variable} has no effect on a plugin`);
  }
});

t.test('a plugin refuses the options of a server by name', async (t) => {
  const refusal = (name: string) =>
    new RegExp(`'${name}' is an option of a server, not of a plugin. Set it where the host creates its own`);
  for (const [name, value] of Object.entries({ trustProxy: ['127.0.0.1'], port: 1, maxConnections: 99 })) {
    const host = fastify();
    t.teardown(() => host.close());
    await t.rejects(
      async () => host.register(saasBackend, saasPluginOptions(t, { [name]: value })),
      refusal(name),
    );
    const other = fastify();
    t.teardown(() => other.close());
    await t.rejects(
      async () => other.register(identityProvider, idpPluginOptions(t, { [name]: value })),
      refusal(name),
    );
  }
});

t.test('an impossible mount prevents the start', async (t) => {
  const refuses = async (reason: RegExp, register: (host: FastifyInstance) => Promise<unknown>) => {
    const host = fastify();
    t.teardown(() => host.close());
    await t.rejects(async () => register(host), reason);
  };
  await refuses(/^saasBackend is already registered on this instance/, async (host) => {
    await host.register(saasBackend, saasPluginOptions(t));
    await host.register(saasBackend, saasPluginOptions(t, { prefix: '/second', adminPath: false }));
  });
  await refuses(/^identityProvider is already registered on this instance/, async (host) => {
    await host.register(identityProvider, idpPluginOptions(t));
    const options = idpPluginOptions(t, { prefix: '/second', publicUrl: 'http://app.test/second' });
    await host.register(identityProvider, options);
  });
  for (const publicUrl of ['http://app.test', 'http://idp']) {
    await refuses(/IDP_PUBLIC_URL must end with the prefix \/idp/, (host) =>
      Promise.resolve(host.register(identityProvider, idpPluginOptions(t, { prefix: '/idp', publicUrl }))),
    );
  }
  await refuses(/^\/admin is already used by another plugin of this package/, async (host) => {
    await host.register(saasBackend, saasPluginOptions(t));
    const options = idpPluginOptions(t, { prefix: '/admin', publicUrl: 'http://app.test/admin' });
    await host.register(identityProvider, options);
  });
  for (const prefix of ['/', '/..', '/a/./b']) {
    await refuses(/'prefix' must be a path/, async (host) => {
      await host.register(saasBackend, saasPluginOptions(t, { prefix }));
    });
  }
  await refuses(/or another decorator is named 'saas'/, async (host) => {
    host.decorate('saas' as string, null);
    await host.register(saasBackend, saasPluginOptions(t));
  });
});

t.test('a route conflict with the host names the option that moves ours', async (t) => {
  const admin = /^GET \/admin is declared by both .*adminPath option.*adminPath: false/;
  const cases: [declare: (host: FastifyInstance) => unknown, reason: RegExp][] = [
    [(host) => host.get('/admin', async () => 'mine'), admin],
    [(host) => host.all('/admin', async () => 'mine'), admin],
    [(host) => host.get('/admin/', async () => 'mine'), /^GET \/admin\/ is declared by both.*adminPath/],
    [(host) => host.post('/api/auth/login', async () => 'mine'), /^POST \/api\/auth\/login .*prefix option/],
    [(host) => host.get('/idp/jwks', async () => 'mine'), /^GET \/idp\/jwks .*provider.*prefix option/],
  ];
  for (const [declare, reason] of cases) {
    for (const isFirst of [true, false]) {
      const host = fastify();
      t.teardown(() => host.close());
      const mount = async () => {
        if (isFirst) declare(host);
        await host.register(saasBackend, saasPluginOptions(t));
        await host.register(identityProvider, idpPluginOptions(t));
        if (!isFirst) declare(host);
        await host.ready();
      };
      const order = isFirst ? 'first' : 'last';
      await t.rejects(mount, { message: reason, code: 'FST_ERR_DUPLICATED_ROUTE' }, `${reason} ${order}`);
    }
  }
  const host = fastify();
  t.teardown(() => host.close());
  host.head('/admin', async () => '');
  host.get('/admin/other', async () => 'mine');
  await host.register(saasBackend, saasPluginOptions(t));
  host.get('/api/mine', async () => 'mine');
  for (const url of ['/admin/other', '/api/mine']) t.equal((await host.inject(url)).body, 'mine');
});

t.test('/.well-known/change-password of the host stays its own', async (t) => {
  const url = '/.well-known/change-password';
  const host = fastify();
  t.teardown(() => host.close());
  host.get(url, async () => 'mine');
  await host.register(saasBackend, saasPluginOptions(t, { accountPages: true }));
  t.equal((await host.inject(url)).body, 'mine');

  const late = fastify();
  t.teardown(() => late.close());
  await late.register(saasBackend, saasPluginOptions(t, { accountPages: true }));
  t.throws(() => late.get(url, async () => 'mine'), {
    message: /change-password is declared .* before you register/,
  });
  t.equal((await late.inject(url)).headers.location, '/account/password');

  const below = fastify();
  t.teardown(() => below.close());
  await below.register(
    async (instance) =>
      void (await instance.register(saasBackend, saasPluginOptions(t, { accountPages: true }))),
    { prefix: '/below' },
  );
  for (const path of [url, `/below${url}`]) t.equal((await below.inject(path)).statusCode, 404, path);
});

t.test('below a prefix of the host, every link of the pages for users leads to one of them', async (t) => {
  const { url: emailSmtpUrl, next } = await mailSink(t);
  const host = fastify();
  t.teardown(() => host.close());
  const { publicUrl: _, ...options } = saasPluginOptions(t, {
    ...{ accountPages: true, accountPath: '/me', emailSmtpUrl, emailLogin: true, passkeys: true },
    ...{ factorEncryptionKey: FACTOR_KEY },
  });
  await host.register(async (instance) => void (await instance.register(saasBackend, options)), {
    prefix: '/below',
  });
  const origin = (await host.listen({ port: 0, host: '127.0.0.1' })).replace('127.0.0.1', 'localhost');
  const browser = new Agent({ origin });
  const seen = new Set<string>();
  const follow = async (path: string): Promise<void> => {
    if (seen.has(path)) return;
    seen.add(path);
    const { body, status, headers } = await browser.open(origin + path);
    t.ok(status === 200 || status === 401, `${path}: ${status}`);
    if (!String(headers.get('content-type')).startsWith('text/html')) return;
    for (const [, attribute = '', value = ''] of body.matchAll(/ (href|action)="([^"]*)"/g)) {
      const { pathname, origin: of } = new URL(value.replaceAll('&#x2F;', '/'), origin + path);
      if (of !== origin) continue;
      t.match(pathname, /^\/below\//, `${path} leads to ${pathname}`);
      const method = attribute === 'action' ? 'POST' : 'GET';
      t.ok(host.hasRoute({ method, url: pathname }), `${path}: ${method} ${pathname}`);
      if (attribute === 'href' && !pathname.endsWith('/sign-out')) await follow(pathname);
    }
  };
  await follow('/below/me/sign-in');
  const visitor = { email: 'ada@example.test', password: PASSWORD, password_confirm: PASSWORD, name: 'Ada' };
  await browser.submit(await browser.open(`${origin}/below/me/sign-up`), visitor);
  await next();
  seen.clear();
  await follow('/below/me');
  for (const page of ['', '/password', '/address', '/export', '/delete', '/second-factor', '/passkeys'])
    t.ok(seen.has(`/below/me${page}`), page);

  const form = await new Agent({ origin }).open(`${origin}/below/me/sign-in/code`);
  await new Agent({ origin }).submit(form, { email: visitor.email });
  t.match(readMail(await next()).text, `${origin}/below/me/sign-in/code/enter`);
});

t.test('a listener for an unknown event is refused with the nearest name', async (t) => {
  const host = fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, saasPluginOptions(t));
  const { events } = host.saas;
  for (const [name, message] of [
    ['user.registred', /no event 'user\.registred'\. Did you mean 'user\.registered'\?/],
    ['toString', /no event 'toString'\. The events are: user\.registered, /],
  ] as [never, RegExp][]) {
    for (const method of ['on', 'once', 'off'] as const)
      t.throws(() => events[method](name, () => {}), { name: 'TypeError', message });
  }
});

await onMongod((server) => {
  t.test(
    '@fastify/mongodb of a host works beside our own connection, registered before or after',
    async (t) => {
      for (const isFirst of [true, false]) {
        const host = fastify();
        t.teardown(() => host.close());
        const register = () => host.register(mongodb, { url: server.fresh(t), forceClose: true });
        if (isFirst) await register();
        await host.register(saasBackend, saasPluginOptions(t, { databaseUri: server.fresh(t) }));
        if (!isFirst) await register();
        await host.register(identityProvider, { ...idpPluginOptions(t), databaseUri: server.fresh(t) });
        host.get('/mine', async () => {
          const collections = await host.mongo.db?.listCollections().toArray();
          return collections?.map(({ name }) => name);
        });
        t.equal((await host.inject('/api/ready')).statusCode, 200);
        t.equal((await host.inject('/idp/ready')).statusCode, 200);
        t.same(
          (await host.inject('/mine')).json(),
          [],
          'the host’s database has no collections of the plugin',
        );
      }
    },
  );
});
