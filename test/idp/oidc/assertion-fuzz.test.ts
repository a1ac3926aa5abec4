import { randomUUID } from 'node:crypto';
import { CompactSign } from 'jose';
import t from 'tap';
import { agentWithKey } from '../../kit/agent-keys.js';
import { asserted } from '../../kit/client-keys.js';
import { acceptingWorld, type IssuerKey } from '../../kit/identity-assertions.js';
import { type IdpApp, ISSUER, idpApp, search } from '../../kit/idp.js';
import { addResource, FILES } from '../../kit/resources.js';
import { type Dice, diceOf } from '../../kit/stripe-simulator.js';

/** Mutated assertions of clients, agents and other providers, and mutated addresses of clients, with fixed seeds. */

const ROUNDS = 400;

const DEEP = JSON.parse(`${'['.repeat(200)}${']'.repeat(200)}`) as unknown;

const ODD_VALUES: readonly unknown[] = [
  ...[null, true, 0, -1, 1.5, 1e300, 2 ** 53, '', ' ', '\0', '\ud800', 'x', 'x'.repeat(600), 'none'],
  ...[
    [],
    {},
    [[]],
    ['x'],
    ['x', 'y'],
    { $ne: '' },
    { toString: 1 },
    DEEP,
    Array.from({ length: 500 }, () => 'x'),
  ],
  ...[
    ISSUER,
    [ISSUER],
    [ISSUER, 'x'],
    `${ISSUER}/`,
    'https://evil.test',
    'http://169.254.169.254/',
    '__proto__',
  ],
];

const TYPES = ['JWT', 'jwt', 'at+jwt', 'oauth-id-jag+jwt', 'OAUTH-ID-JAG+JWT', 'dpop+jwt', 'logout+jwt'];
const ALGORITHMS = ['none', 'None', 'HS256', 'EdDSA', 'Ed25519', 'ES256', 'RS256', 'PS512', 'dir', ''];

interface Parts {
  header: Record<string, unknown>;
  claims: Record<string, unknown>;
}

/** One to three changes of a valid assertion, most of them of its structure. */
function mutate(dice: Dice, { header, claims }: Parts, key: Pick<IssuerKey, 'jwk'>): Parts {
  const names = [...Object.keys(claims), 'nbf', 'cnf', 'act', 'may_act', '__proto__', 'resource', 'scope'];
  const changes: (() => void)[] = [
    () => Object.assign(claims, { [dice.one(names)]: dice.one(ODD_VALUES) }),
    () => Object.assign(claims, { [dice.one(names)]: dice.one(ODD_VALUES) }),
    () => delete claims[dice.one(names)],
    () => Object.assign(header, { typ: dice.one([...TYPES, ...ODD_VALUES]) }),
    () => Object.assign(header, { kid: dice.one([...ODD_VALUES, '../../etc/passwd', "' OR 1=1"]) }),
    () => Object.assign(header, { crit: dice.one([['exp'], ['b64'], [], 'x', ['x']]) }),
    () => Object.assign(header, { jwk: key.jwk, jku: 'http://169.254.169.254/', x5u: 'http://127.0.0.1/' }),
    () => Object.assign(header, { b64: dice.one([false, 'x']) }),
    () => Object.assign(header, { [`x${'y'.repeat(dice.one([1, 3000]))}`]: dice.one(ODD_VALUES) }),
  ];
  const count = dice.one([1, 1, 2, 3]);
  for (let index = 0; index < count; index++) dice.one(changes)();
  return { header, claims };
}

/** Damage that no signature covers. */
function damage(dice: Dice, assertion: string): string {
  const [header = '', payload = '', signature = ''] = assertion.split('.');
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const twice = Buffer.from('{"alg":"EdDSA","alg":"none","typ":"oauth-id-jag+jwt"}').toString('base64url');
  return dice.one([
    () => `${header}.${payload}`,
    () => `${header}.${payload}.`,
    () => `${header}..${signature}`,
    () => `.${payload}.${signature}`,
    () => `${header}.${payload}.${signature}.${signature}`,
    () => `${part({ alg: dice.one(ALGORITHMS), typ: dice.one(TYPES) })}.${payload}.${signature}`,
    () => `${twice}.${payload}.${signature}`,
    () => `${header}.${payload}.${'A'.repeat(signature.length)}`,
    () => `${header}.${payload}.${signature}=`,
    () => ` ${assertion} `,
    () => assertion.replaceAll('-', '+').replaceAll('_', '/'),
    () => `${header}.${payload}${'A'.repeat(9000)}.${signature}`,
    () => assertion.slice(0, Math.floor(assertion.length * dice.one([0.1, 0.5, 0.9]))),
    () => JSON.stringify({ payload, signatures: [{ protected: header, signature }] }),
    () => dice.one(['\0', '%00', '[]', '{}', 'e30.e30.', '...', '😀.😀.😀']),
  ])();
}

/** Signs whatever the parts are; a library would refuse some of them. */
async function sign({ header, claims }: Parts, { privateKey, algorithm }: IssuerKey): Promise<string> {
  const protectedHeader = { ...header, alg: algorithm } as never;
  return new CompactSign(Buffer.from(JSON.stringify(claims)))
    .setProtectedHeader(protectedHeader)
    .sign(privateKey, { crit: { exp: true, x: true, b64: true } as never })
    .catch(() => 'unsignable');
}

const DOCUMENTED = [
  ...['invalid_request', 'invalid_client', 'invalid_grant', 'invalid_scope', 'invalid_target'],
  ...['unauthorized_client', 'invalid_dpop_proof', 'use_dpop_nonce'],
];

t.test(
  'mutated identity assertions are answered with a documented error, and nothing else is fetched',
  async (t) => {
    const { idp, foreign, client, present } = await acceptingWorld(t);
    const dice = diceOf(1);
    let accepted = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const now = Math.floor(idp.clock.now() / 1000);
      const claims = {
        ...{ iss: foreign.issuer, sub: '00u1', aud: ISSUER, client_id: client.id, jti: randomUUID() },
        ...{ iat: now, exp: now + 300, resource: FILES, scope: 'files:read' },
      };
      const header = { typ: 'oauth-id-jag+jwt', kid: foreign.key.jwk.kid };
      const parts = mutate(dice, { header, claims }, foreign.key);
      const signed = await sign(parts, foreign.key);
      const text = dice.happens(0.4) ? damage(dice, signed) : signed;
      const { status, body } = await present(text);
      const named = `${round}: ${JSON.stringify(parts).slice(0, 150)} ${text.slice(0, 40)}`;
      if (status === 200) {
        accepted++;
        t.same(stillValid(parts.claims, foreign.issuer, client.id), true, named);
      } else if (status !== 400 || !DOCUMENTED.includes(body?.error)) t.fail(`${status} ${named}`);
    }
    t.ok(accepted > 0, 'some mutations leave the assertion valid');
    const others = foreign.host.requests.filter(
      (path) => !/^\/(jwks|\.well-known\/openid-configuration)$/.test(path),
    );
    t.same(others, []);
  },
);

/** What makes an assertion worth a token is unchanged. */
const stillValid = (claims: Record<string, unknown>, issuer: string, clientId: string): boolean =>
  claims['iss'] === issuer &&
  claims['sub'] === '00u1' &&
  claims['client_id'] === clientId &&
  [claims['aud']].flat().join() === ISSUER &&
  !('act' in claims) &&
  typeof claims['exp'] === 'number' &&
  typeof claims['jti'] === 'string';

t.test('mutated assertions of clients and agents are answered with a documented error', async (t) => {
  const idp = await idpApp(t, { limits: false });
  await addResource(t, idp);
  const { sub, key } = await agentWithKey(t, idp);
  const dice = diceOf(2);
  const whole = { jwk: key.jwk, privateKey: key.privateKey, algorithm: key.algorithm };
  let accepted = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const now = Math.floor(idp.clock.now() / 1000);
    const claims = { iss: sub, sub, aud: ISSUER, iat: now, exp: now + 60, jti: randomUUID() };
    const parts = mutate(dice, { header: { kid: key.jwk.kid }, claims }, whole);
    const signed = await sign(parts, whole);
    const text = dice.happens(0.4) ? damage(dice, signed) : signed;
    const forms = [
      { grant_type: 'client_credentials', resource: FILES, scope: 'files:read', ...asserted(text) },
      {
        ...{ grant_type: 'urn:ietf:params:oauth:grant-type:token-exchange', subject_token: 'x' },
        ...{ subject_token_type: 'urn:saas-backend:token-type:delegation', actor_token: text },
        ...{ actor_token_type: 'urn:ietf:params:oauth:token-type:jwt', client_id: sub },
      },
    ];
    const { status, body } = await idp.request('POST', '/token', { form: dice.one(forms) });
    if (status === 200) accepted++;
    const isDocumented = [400, 401].includes(status) && DOCUMENTED.includes(body?.error);
    if (status !== 200 && !isDocumented)
      t.fail(`${round}: ${status} ${JSON.stringify(parts).slice(0, 200)} ${text.slice(0, 40)}`);
    if (status === 200) t.match(parts.claims, { iss: sub, sub }, String(round));
  }
  t.ok(accepted > 0);
});

/** Hosts that lead to this machine, to a private network or nowhere. */
const HOSTS = [
  ...['127.0.0.1', '127.1', '2130706433', '0x7f000001', '0177.0.0.1', 'localhost', 'localhost.', 'LOCALHOST'],
  ...[
    '[::1]',
    '[::ffff:127.0.0.1]',
    '[::ffff:7f00:1]',
    '[::]',
    '[64:ff9b::7f00:1]',
    '[fe80::1]',
    '[fd00::1]',
  ],
  ...['10.0.0.1', '172.16.0.1', '192.168.0.1', '169.254.169.254', '100.64.0.1', '0.0.0.0', '224.0.0.1'],
  ...[
    'ⓛocalhost',
    '１２７.0.0.1',
    'a.localhost',
    'x.local',
    'xn--',
    'ex ample',
    '[',
    '%31%32%37.0.0.1',
    'a..b',
  ],
];

const urlOf = (dice: Dice, port: string): string => {
  const scheme = dice.one([
    'https',
    'https',
    'https',
    'http',
    'HTTPS',
    'ftp',
    'file',
    'gopher',
    'javascript',
  ]);
  const user = dice.one(['', '', '', 'a@', 'a:b@', 'client.example.com@', '%40@']);
  const path = dice.one([
    '/c',
    '/c.json',
    '/../c',
    '/./c',
    '/%2e%2e/c',
    '/a//c',
    '',
    '/',
    '/c?x',
    '/c#x',
    '/\\c',
  ]);
  const withPort = dice.one(['', `:${port}`, ':443', ':0', ':65536', ':x', ':']);
  return `${scheme}://${user}${dice.one(HOSTS)}${withPort}${path}${dice.happens(0.05) ? 'x'.repeat(600) : ''}`;
};

t.test('mutated addresses of clients fetch nothing from this machine or a private network', async (t) => {
  const { documentHost } = await import('../../kit/client-keys.js');
  const host = await documentHost(t);
  const idp: IdpApp = await idpApp(t, { limits: false, clientIdMetadata: true });
  const dice = diceOf(3);
  const { port } = new URL(host.url);
  for (let round = 0; round < ROUNDS; round++) {
    const clientId = urlOf(dice, port);
    const query = { client_id: clientId, redirect_uri: 'https://app.example.test/cb', response_type: 'code' };
    const answer = await idp.request('GET', `/authorize?${search(query)}`);
    if (answer.status !== 400) t.fail(`${answer.status}: ${clientId}`);
    const form = search({ grant_type: 'authorization_code', code: 'x', client_id: clientId });
    const token = await idp.request('POST', '/token', { form });
    if (![400, 401].includes(token.status) || !DOCUMENTED.includes(token.body?.error))
      t.fail(`${token.status} ${token.text.slice(0, 80)}: ${clientId}`);
  }
  t.same(host.requests, []);
});
