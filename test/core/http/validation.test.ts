import { inspect } from 'node:util';
import t, { type Test } from 'tap';
import { DisplayName, matchesSchema, OptionalName } from '../../../src/core/http/schemas.js';
import type { ErrorDetail } from '../../../src/core/kernel/errors.js';
import { createIdentityServer } from '../../../src/idp/server.js';
import { createServer } from '../../../src/saas/server.js';
import { ADMIN, type Answer, PASSWORD, saasApp, testOptions } from '../../kit/app.js';
import { FACTOR_KEY } from '../../kit/factors.js';
import { collectRoutes } from '../../kit/fuzz/engine.js';
import { CALLBACK, idpApp, idpOptions } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { words } from '../../kit/words.js';

/** The error details of invalid values, and which names are valid. */

const detailsOf = (t: Test, { status, body, text }: Answer): ErrorDetail[] => {
  t.equal(status, 400, text);
  return body.error.details ?? body.details;
};

/** Names without a visible character. */
const BLANK = [
  ...words('\u200b \u200d\u2060 \u00ad \u034f \u115f\u3164\uffa0 \u2800 \u180e \ufe0f \u{e0020}\u{e0061}'),
  ...[' ', '   ', '\u00a0', '\u2003\u3000', '\ufeff'],
];
/** Names with a visible character, in any script. */
const VISIBLE = ['A', ' A ', '0', '.', 'Ada Lovelace', 'Áda', '李', 'ก็', '👩‍💻', 'عايدة'];

const printable = (text: string): string =>
  JSON.stringify(text).replace(/[^ -~]/g, (one) => `\\u{${one.codePointAt(0)?.toString(16)}}`);

t.test('a name has a visible character, in any script', async (t) => {
  for (const name of ['', ...BLANK]) t.notOk(matchesSchema(name, DisplayName), printable(name));
  for (const name of BLANK) t.notOk(matchesSchema(name, OptionalName), printable(name));
  for (const name of VISIBLE) t.ok(matchesSchema(name, DisplayName), name);
  t.ok(matchesSchema('', OptionalName));
});

t.test('every field for a name refuses a blank one', async (t) => {
  const name = '\u200b';
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  const page = await app.admin('GET', '/admin/settings');
  const [, form = ''] = /name="token" value="([^"]*)"/.exec(page.text) ?? [];
  const shown = await app.request('POST', '/admin/settings', {
    body: new URLSearchParams({ token: form, siteName: name, version: '0' }).toString(),
    headers: { ...ADMIN, accept: 'text/html', 'content-type': 'application/x-www-form-urlencoded' },
  });
  t.match(shown, { status: 400, text: 'siteName' });
  const rename = (to: string) => app.request('PATCH', '/api/user/profile', { token, body: { name: to } });
  const person = { email: 'blank@example.test', name };
  for (const [path, answer] of [
    ['siteName', await app.admin('PATCH', '/admin/api/settings', { siteName: name, version: 0 })],
    ['name', await rename(name)],
    ['name', await app.request('POST', '/api/auth/register', { body: { ...person, password: PASSWORD } })],
  ] as const)
    t.match(detailsOf(t, answer), [{ path }]);
  await t.rejects(app.server.fastify.saas.users.create(person), { code: 'VALIDATION_ERROR' });
  for (const other of [' A ', '']) t.equal((await rename(other)).body.data.name, other.trim());

  const idp = await idpApp(t);
  const redirect_uris = [CALLBACK];
  for (const [field, path, body] of [
    ['name', '/v1/clients', { name, redirect_uris }],
    ['client_name', '/v1/clients', { client_name: name, redirect_uris }],
    ['name', '/v1/agents', { name, handle: 'robot' }],
    ['name', '/v1/invites', { name, handle: 'guest' }],
    ['name', '/v1/accounts', { name, handle: 'human', password: PASSWORD, kind: 'human' }],
  ] as const)
    t.match(detailsOf(t, await idp.admin('POST', path, body)), [{ path: field }]);
});

/** Invalid fields of each type, and their error details. */
const MISTAKES: [method: string, path: string, body: unknown, details: object[]][] = [
  [
    'POST',
    '/api/auth/register',
    { email: 'ada.example.com', name: 5 },
    [
      { path: 'password', message: /^is required/ },
      { path: 'email', message: /, like ada@example.com; given: text of 15 characters$/ },
      { path: 'name', message: /, like Ada Lovelace; given: 5$/ },
    ],
  ],
  ['POST', '/api/auth/login', '[]', [{ path: '', message: /JSON object; given: a list of 0$/ }]],
  [
    'POST',
    '/api/auth/login',
    { email: 'ada@example.com', password: 12_345_678 },
    [{ path: 'password', message: /; given: a value of another type$/ }],
  ],
  [
    'POST',
    '/api/auth/refresh',
    { refreshToken: 987_654_321 },
    [{ path: 'refreshToken', message: /; given: a value of another type$/ }],
  ],
  [
    'POST',
    '/api/billing/create-checkout-session',
    { priceId: 'price_1', quantity: 1.5, mode: 'weekly' },
    [
      { path: 'mode', message: /one of subscription, payment, setup; given: "weekly"$/ },
      { path: 'quantity', message: /from 1 to 1000000, like 1; given: 1.5$/ },
    ],
  ],
  [
    'PATCH',
    '/admin/api/settings',
    { allowRegistration: 'yes', version: 'first' },
    [
      { path: 'allowRegistration', message: /true or false; given: "yes"$/ },
      { path: 'version', message: /from 0 to \d+; given: "first"$/ },
    ],
  ],
];

t.test('a validation error names what is accepted, an example and the given value', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  for (const [method, path, body, expected] of MISTAKES) {
    const call = path.startsWith('/admin') ? { body, headers: ADMIN } : { body, token };
    const details = detailsOf(t, await app.request(method, path, call));
    t.equal(details.length, expected.length, JSON.stringify(details));
    t.match(details, expected);
    for (const { message } of details) t.notMatch(message, /pattern|must NOT|\^|12345678|987654321/);
  }
});

t.test('the error that a host sees of a refused request contains no password', async (t) => {
  const server = createServer(testOptions(temporaryFolder(t)));
  t.teardown(() => server.stop());
  const seen: unknown[] = [];
  server.fastify.addHook('onError', async (_request, _reply, error) => void seen.push(error));
  const payload = { email: 'hidden-in-the-wrong-field', password: { deep: 'hidden' }, name: 'hidden\0' };
  const { statusCode } = await server.fastify.inject({ method: 'POST', url: '/api/auth/register', payload });
  t.same([statusCode, seen.length], [400, 1]);
  t.notMatch(inspect(seen, { depth: 9, showHidden: true }), /hidden-|deep|'hidden/);
});

/**
 * Strings without a pattern that a request may contain: which, and why an ill-formed one or one with U+0000 is harmless
 * there. Any other needs a pattern, because a store refuses to hold it, which would be a failure of the server.
 */
const UNPATTERNED: [field: RegExp, reason: string][] = [
  [/\.(current_?|new)?password(_confirm)?$/i, 'only its hash is stored'],
  [/\.(token|refreshToken|verificationToken|interaction|form)$/, 'compared or verified, never stored'],
  [/^POST \/(account|authorize)\/.* body\.code$/, 'compared, never stored'],
  [/^POST \/api\/auth\/callback\/:provider body/, 'read like the query of the GET route; never stored'],
  [/^POST \/(account|authorize)\/.* body\.credential$/, 'only well-formed parts of the JSON text are stored'],
  [/^(GET|POST) \/device(\/confirm)? (body|querystring)\.user_code$/, 'compared, never stored'],
  [/^POST \/account\/passkeys\/(add|rename) body\.name$/, 'checked as a display name, beside its field'],
  [
    / body\.(allowRegistration|maintenanceMode|emailNotifications)$/,
    'a checkbox: only whether it is there counts',
  ],
  [/^GET \/admin\/? querystring\.duplicates$/, 'decoded and checked as the position in a list'],
  [
    /^POST \/(v1\/(accounts|agents|invites)|invite\/:token) body\.handle$/,
    'the service refuses spaces, colons and control characters',
  ],
  [
    /^POST \/authorize\/sign-up(\/passkey)? body\.handle$/,
    'the service refuses spaces, colons and control characters',
  ],
  [
    /^POST \/(authorize\/sign-up(\/passkey)?|account\/name) body\.name$/,
    'checked as a display name, beside its field',
  ],
  [/^POST \/v1\/(accounts|invites) body\.email$/, 'the service refuses what is no e-mail address'],
  [/^POST \/v1\/invites body\.application$/, 'compared with identifiers and names, never stored'],
  [/^GET \/invite\/done querystring\.client_id$/, 'looked up only if it has the form of an identifier'],
  [/^POST \/account\/delete body\.confirm$/, 'compared with the user name'],
  [/^POST \/authorize\/login body\.handle$/, 'a handle that cannot exist is refused like an unknown one'],
  [/^POST \/v1\/clients body\.(post_logout_)?redirect_uris$/, 'the service refuses what is no printable URI'],
  [/ \/v1\/groups\/:group.* params\.group$/, 'the service looks up only what has the form of a name'],
  [
    / \/v1\/groups\/:group\/members.* (body|params)\.member$/,
    'the service looks up only what has the form of an id or of a domain',
  ],
  [
    /^POST \/v1\/(invites body\.groups|clients body\.(admitted_groups|groups_claim|claims))$/,
    'the service refuses what has not the form of names of groups or claims',
  ],
  [/ params\.sub$/, 'the service looks up only what has the form of an id'],
  [/ querystring\.after$/, 'decoded and checked as the position in a list'],
  [/^POST \/api\/billing\/create-portal-session body\.returnPath$/, 'checked as a path, never stored'],
  [
    /^POST \/(authorize|logout|introspect|token|revoke|par|device_authorization) body$/,
    'any form: the protocol checks each parameter',
  ],
];

/** A part of a JSON Schema. */
interface Part {
  type?: string;
  pattern?: string;
  accepts?: string;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, Part>;
  [keyword: string]: unknown;
}

/** Every schema within a schema, with the path of the field that it describes. */
function* partsOf(part: Part, path: string): Generator<[path: string, part: Part]> {
  yield [path, part];
  for (const [name, inner] of Object.entries(part.properties ?? {})) yield* partsOf(inner, `${path}.${name}`);
  for (const keyword of [
    'items',
    'additionalProperties',
    'not',
    'anyOf',
    'oneOf',
    'allOf',
    'patternProperties',
  ]) {
    const inner = part[keyword];
    if (typeof inner !== 'object' || inner === null) continue;
    const isOne = keyword === 'items' || keyword === 'additionalProperties' || keyword === 'not';
    for (const each of isOne ? [inner] : Object.values(inner)) yield* partsOf(each as Part, path);
  }
}

/** Every schema within what the routes of both products accept: `POST /path body.field`. */
async function acceptedParts(t: Test): Promise<[where: string, part: Part][]> {
  const factors = { factorEncryptionKey: FACTOR_KEY, passkeys: true };
  const login = { github: { clientId: 'test', clientSecret: 'test-Wq8ZsT1mXe6YbN0cRj4HuPd9' } };
  const servers = [
    createServer({
      ...testOptions(temporaryFolder(t)),
      ...factors,
      login,
      accountPages: true,
      emailLogin: true,
    }),
    createIdentityServer({ ...idpOptions(temporaryFolder(t)), ...factors, deviceFlow: true }),
  ];
  const found: [where: string, part: Part][] = [];
  for (const server of servers) {
    t.teardown(() => server.stop());
    const routes = collectRoutes(server.fastify);
    await server.fastify.ready();
    t.ok(routes.length > 20);
    for (const { method, url, schema = {} } of routes) {
      for (const place of ['body', 'querystring', 'params', 'headers'] as const) {
        if (schema[place]) found.push(...partsOf(schema[place] as Part, `${method} ${url} ${place}`));
      }
    }
  }
  return found;
}

t.test(
  'every string that a request may contain has a pattern, fixed values or a reason for none',
  async (t) => {
    const parts = await acceptedParts(t);
    for (const [where, { pattern, accepts }] of parts)
      if (pattern !== undefined) t.type(accepts, 'string', `the pattern of ${where} has a description`);
    const strings = parts.filter(([, { type }]) => type === 'string');
    const open = strings.filter(
      ([, part]) => part.pattern === undefined && part.enum === undefined && part.const === undefined,
    );
    t.ok(open.length > 0 && open.length < strings.length);
    for (const [where] of open)
      t.ok(
        UNPATTERNED.some(([field]) => field.test(where)),
        where,
      );
    for (const [field] of UNPATTERNED)
      t.ok(
        open.some(([where]) => field.test(where)),
        `${field} is in use`,
      );
  },
);
