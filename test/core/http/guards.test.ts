import { connect } from 'node:net';
import type { FastifyInstance } from 'fastify';
import t, { type Test } from 'tap';
import { routeRules } from '../../../src/core/http/routes.js';
import type { Server } from '../../../src/core/server/assembly.js';
import { createIdentityServer } from '../../../src/idp/server.js';
import { createServer } from '../../../src/saas/server.js';
import { basic, PASSWORD, testOptions } from '../../kit/app.js';
import { FuzzConnection } from '../../kit/fuzz/connection.js';
import { ADMIN_TOKEN, idpOptions } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

/**
 * No protected route is reachable without credentials by any spelling of address and method. The
 * routes are Fastify's own list, so a new one is covered without a change here.
 */

interface Guarded {
  method: string;
  /** A path parameter of this name matches no document. */
  path: string;
  level: string;
}

interface Product {
  open(folder: string): Server;
  /** Levels whose handler verifies the credential itself. */
  verifiedInHandler: readonly string[];
  /** Levels that need a session of the browser, with which other tests open the routes. */
  openedElsewhere: readonly string[];
  /** At least this many routes are protected. */
  least: number;
  /** The credentials that open the routes of a level; a level without an entry has none. */
  credentials(fastify: FastifyInstance): Promise<Record<string, Record<string, string>>>;
}

const FORM = { 'content-type': 'application/x-www-form-urlencoded' };

const PRODUCTS: Record<string, Product> = {
  'saas-backend': {
    open: (folder) =>
      createServer({
        ...testOptions(folder),
        ...{ limits: false, passkeys: true, accountPages: true, apiKeys: true },
        ...{ webhooks: true, settingsEncryptionKey: 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9' },
      } as never),
    verifiedInHandler: [],
    // test/saas/pages/user-pages.test.ts
    openedElsewhere: ['person', 'recent-person'],
    least: 15,
    async credentials(fastify) {
      const payload = { email: 'ada@example.test', password: PASSWORD };
      const { data } = (await fastify.inject({ method: 'POST', url: '/api/auth/register', payload })).json();
      return {
        user: { authorization: `Bearer ${data.accessToken}` },
        owner: { authorization: `Bearer ${data.accessToken}` },
        'recent-user': { authorization: `Bearer ${data.accessToken}` },
        admin: { authorization: basic(), 'x-requested-with': 'test' },
      };
    },
  },
  idp: {
    open: (folder) =>
      createIdentityServer({
        ...idpOptions(folder),
        limits: false,
        passkeys: true,
        deviceFlow: true,
        clientRegistration: true,
      } as never),
    verifiedInHandler: ['client', 'bearer', 'agent'],
    // test/idp/console/access.test.ts, test/shared/account-pages/account.test.ts, test/idp/registration/registration.test.ts
    openedElsewhere: ['operator', 'person', 'recent-person', 'registration'],
    least: 15,
    async credentials() {
      const authorization = `Bearer ${ADMIN_TOKEN}`;
      return { admin: { authorization }, inviter: { authorization } };
    },
  },
};

/** Every spelling that a proxy or a router may take for the same path. */
function spellings(path: string): string[] {
  const [, first = '', ...rest] = path.split('/');
  const tail = rest.map((segment) => `/${segment}`).join('');
  const letter = /[a-z]/g;
  return [
    ...[path, `/${path}`, `///${path}`, path.replaceAll('/', '//'), `${path}/`, `${path}//`, `${path}/.`],
    ...[
      `${path}.`,
      `${path}..`,
      `${path}/..`,
      `${path}/../${first}`,
      `${path}/..;/`,
      `${path};`,
      `${path};x=1`,
    ],
    ...[`/;${path}`, `/.;${path}`, `/${first};x${tail}`, `/${first}/..;/${first}${tail}`, `/x/..;${path}`],
    ...[
      `/.${path}`,
      `/%2e${path}`,
      `/x/..${path}`,
      `/x/%2e%2e${path}`,
      `/x/..%2f${path.slice(1)}`,
      `/..${path}`,
    ],
    ...[`${path}%2f`, `%2f${path.slice(1)}`, path.replaceAll('/', '%2f'), path.replaceAll('/', '%252f')],
    ...[path.replaceAll('/', '\\'), path.replaceAll('/', '%5c'), `${path}\\`, `/%c0%af${path.slice(1)}`],
    ...[
      `${path}%00`,
      `${path}%00.json`,
      `${path}%20`,
      `${path}%09`,
      `${path}%0d%0a`,
      `${path}%23`,
      `${path}%3f`,
    ],
    ...[`${path}#`, `${path}?`, `${path}??`, `${path}?/../x`, `${path}.json`, `${path}.html`, `${path}~`],
    ...[path.toUpperCase(), path.replace(letter, (each) => each.toUpperCase())],
    ...[path.replace(/[a-z]/, encoded), path.replace(letter, encoded), path.replace(/[a-z]/, doublyEncoded)],
    ...[path.replace('s', '%c5%bf'), path.replace('i', '%c4%b1'), path.replace(/[a-z]/, '%ef%bd%81')],
    ...[`http://127.0.0.1${path}`, `http://evil.test${path}`, `https://evil.test/${path}`, `HTTP://x${path}`],
    ...[
      `//evil.test${path}`,
      `http:${path}`,
      `/http://x${path}`,
      `/api${path}`,
      `/admin${path}`,
      `/public/..${path}`,
    ],
  ];
}

const encoded = (each: string) => `%${each.charCodeAt(0).toString(16)}`;
const doublyEncoded = (each: string) => `%25${each.charCodeAt(0).toString(16)}`;

/** Headers that make some servers treat a request as another one. */
const DISGUISES: readonly (readonly [string, string])[] = [
  'X-HTTP-Method-Override',
  'X-HTTP-Method',
  'X-Method-Override',
]
  .flatMap((name) => ['DELETE', 'PATCH', 'POST'].map((method) => [name, method] as const))
  .concat([
    ['X-Original-URL', '/health'],
    ['X-Rewrite-URL', '/health'],
    ['X-Forwarded-For', '127.0.0.1'],
    ['X-Forwarded-Prefix', '/health'],
    ['X-Forwarded-User', 'operator'],
    ['X-Middleware-Subrequest', 'src/middleware'],
  ]);

/** A server that records which of its protected handlers ran. */
async function listen(t: Test, { open }: Product) {
  const server = open(temporaryFolder(t));
  t.teardown(() => server.stop());
  const guarded: Guarded[] = [];
  const reached: string[] = [];
  server.fastify.addHook('onRoute', (route) => {
    const { access: level = 'public' } = routeRules(route);
    // Configuration opens or closes them for all clients alike.
    if (level === 'public' || level === 'signup') return;
    const { handler } = route;
    for (const method of [route.method].flat()) {
      if (method !== 'HEAD') guarded.push({ method, path: route.url.replace(/:\w+/g, 'u_0'), level });
    }
    route.handler = function (request, reply) {
      reached.push(`${level} ${request.method} ${request.url}`);
      return handler.call(this, request, reply);
    };
  });
  const { url, port } = await server.start();
  return { server, url, port, guarded, reached };
}

interface Asked {
  method: string;
  target: string;
  headers?: Record<string, string>;
  body?: string;
}

function bytesOf({ method, target, headers = {}, body = '' }: Asked): Buffer {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(
    `${method} ${target} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: ${body.length}\r\n${lines.join('')}\r\n${body}`,
    'latin1',
  );
}

for (const [name, product] of Object.entries(PRODUCTS)) {
  t.test(`${name}: no spelling of a request bypasses authentication`, async (t) => {
    const { server, url, port, guarded, reached } = await listen(t, product);
    t.ok(guarded.length >= product.least, `${guarded.length} guarded routes`);
    const connection = new FuzzConnection(url);
    t.teardown(() => connection.end());
    const ask = (asked: Asked) =>
      connection.exchange({ bytes: bytesOf(asked), isHead: asked.method === 'HEAD' });

    /** Whether the request was refused: no protected handler ran, and none that verifies the credential succeeded. */
    const isRefusedBeforeHandler = (asked: Asked, answer: Awaited<ReturnType<typeof ask>>): boolean => {
      const inside = reached.filter((one) => !product.verifiedInHandler.includes(one.split(' ')[0] ?? ''));
      reached.length = 0;
      const { status = 0, head = '' } = answer ?? {};
      const isRefused = answer === null || (status >= 400 && status < 500);
      if (inside.length > 0 || !isRefused) {
        t.fail(
          `${asked.method} ${asked.target} ${JSON.stringify(asked.headers)}: ${head.slice(0, 60)} ${inside}`,
        );
      }
      return isRefused && inside.length === 0;
    };

    let kept = 0;
    const kinds = new Set<string>();
    for (const { method, path, level } of guarded) {
      // Guards belong to routes, so that what a spelling does is the same for all that look alike.
      const kind = `${level} ${method} ${path.split('/').length}`;
      const isNew = !kinds.has(kind);
      kinds.add(kind);
      const json = { 'content-type': 'application/json', 'x-requested-with': 'test' };
      const withBody = method === 'GET' ? {} : { headers: json, body: '{"name":"Intruder","version":0}' };
      const odd: Asked[] = [
        ...spellings(path).map((target) => ({ method, target, ...withBody })),
        ...['HEAD', 'TRACE', 'PROPFIND', 'QUERY', 'get', 'Get', 'FOO', 'GET\t'].map((other) => ({
          method: other,
          target: path,
        })),
        {
          method: 'POST',
          target: path,
          headers: { ...FORM, 'sec-fetch-site': 'same-origin' },
          body: `_method=${method}&version=0`,
        },
        ...DISGUISES.map(([header, value]) => ({
          method: header.includes('Method') ? 'GET' : method,
          target: header.includes('URL') ? '/nothing' : path,
          headers: { [header]: value.replace('/health', path) },
        })),
      ];
      const variants: Asked[] = [
        ...(isNew ? odd : [{ method, target: path, ...withBody }]),
        ...[
          '',
          'Bearer',
          'Bearer ',
          'Bearer undefined',
          'Bearer null',
          'Basic',
          'Basic Og==',
          'Basic bnVsbDpudWxs',
        ].map((authorization) => ({ method, target: path, headers: { ...json, authorization }, body: '{}' })),
      ];
      for (const asked of variants) if (isRefusedBeforeHandler(asked, await ask(asked))) kept++;
    }
    t.ok(kept > guarded.length * 8 + kinds.size * 70, `${kept} requests were refused`);

    await t.test('CONNECT is refused and upgrades are ignored', async (t) => {
      for (const { path } of guarded) {
        const socket = connect(port, '127.0.0.1').on('error', () => {});
        socket.end(`CONNECT ${path} HTTP/1.1\r\nhost: x\r\n\r\nGET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
        t.notMatch((await socket.toArray()).join(''), /^HTTP\/1.1 [123]/, path);
      }
      const headers = {
        connection: 'Upgrade, HTTP2-Settings',
        upgrade: 'h2c',
        'http2-settings': 'AAMAAABkAAQAAP__',
      };
      t.equal((await ask({ method: 'GET', target: '/health', headers }))?.status, 200, 'ignored');
      t.same(reached, []);
    });

    // Without this, the checks above would prove nothing.
    const credentials = await product.credentials(server.fastify);
    for (const { method, path, level } of guarded) {
      if ([...product.verifiedInHandler, ...product.openedElsewhere].includes(level)) continue;
      const headers = credentials[level] as Record<string, string>;
      reached.length = 0;
      const isForm = path === '/admin/settings';
      const answer = await server.fastify.inject({
        method: method as 'GET',
        url: path,
        headers: { ...headers, ...(isForm && FORM) },
        ...(method !== 'GET' && { payload: isForm ? 'version=0' : {} }),
      });
      // A request that passes the guard may still be invalid for the route.
      t.notOk(
        [401, 404].includes(answer.statusCode) && reached.length === 0,
        `${method} ${path} ${answer.statusCode}`,
      );
    }
  });
}
