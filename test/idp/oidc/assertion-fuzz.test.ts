import { randomUUID } from 'node:crypto';
import { CompactSign } from 'jose';
import t from 'tap';
import { agentWithKey } from '../../kit/agent-keys.js';
import { asserted } from '../../kit/client-keys.js';
import { acceptingWorld, type IssuerKey } from '../../kit/identity-assertions.js';
import { ISSUER, idpApp } from '../../kit/idp.js';
import { addResource, FILES } from '../../kit/resources.js';
import { type Dice, diceOf } from '../../kit/stripe-simulator.js';

/** Mutated assertions of clients, agents and other providers, with fixed seeds. */

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
