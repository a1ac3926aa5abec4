import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import t, { type Test } from 'tap';
import { createTokenCache } from '../../../src/saas/auth/sessions/tokens.js';
import { sessionCollection } from '../../../src/saas/auth/store.js';
import { type Account, type SaasApp, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { words } from '../../kit/words.js';

type Json = Record<string, unknown>;

const base64url = (value: unknown) =>
  Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

const HASHES = new Map<unknown, string>([
  ['HS384', 'sha384'],
  ['HS512', 'sha512'],
]);
const HEADER = { alg: 'HS256', typ: 'at+jwt' };
/** The answer to what is no refresh token. */
const REFUSED = { status: 401, body: { error: { code: 'INVALID_REFRESH_TOKEN' } } };

/** A token with any header and payload, and a valid HMAC. */
function forge(header: unknown, payload: unknown, secret: string = SECRETS.jwtAccessSecret): string {
  const signed = `${base64url(header)}.${base64url(payload)}`;
  const hash = HASHES.get((header as { alg?: unknown } | null)?.alg) ?? 'sha256';
  return `${signed}.${createHmac(hash, secret).update(signed).digest('base64url')}`;
}

const partsOf = (token: string) => token.split('.') as [string, string, string];
const claimsOf = (token: string): Json => JSON.parse(Buffer.from(partsOf(token)[1], 'base64url').toString());

/** Sends each token as Bearer and expects the same answer as for a malformed token. */
async function refuseAll(t: Test, app: SaasApp, tokens: Record<string, string>): Promise<void> {
  for (const [name, token] of Object.entries(tokens)) {
    const { status, headers, body } = await app.request('GET', '/api/auth/me', { token });
    t.equal(status, 401, name);
    t.equal(headers['www-authenticate'], 'Bearer realm="api", error="invalid_token"');
    t.match(body, { success: false, error: { code: /^(UNAUTHENTICATED|TOKEN_EXPIRED)$/ } });
  }
}

async function begin(t: Test): Promise<{ app: SaasApp; person: Account; claims: Json }> {
  const app = await saasApp(t);
  const person = await app.signUp();
  const claims = claimsOf(person.accessToken);
  const control = { accessToken: forge(HEADER, claims) };
  t.equal(await app.me(control), 200, 'a forgery with the true secret is accepted');
  return { app, person, claims };
}

t.test('forged headers, payloads and signatures are answered 401, never 500', async (t) => {
  const { app, person, claims } = await begin(t);
  const [header, payload, signature] = partsOf(person.accessToken);
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const ed = generateKeyPairSync('ed25519');
  const signedBy = (alg: string, key: typeof rsa.privateKey, hash: string | null, more: Json = {}) => {
    const text = `${base64url({ ...HEADER, alg, ...more })}.${payload}`;
    return `${text}.${sign(hash, Buffer.from(text), key).toString('base64url')}`;
  };
  const jwk = ed.publicKey.export({ format: 'jwk' });

  const algorithms = [...words('none None NONE HS384 HS512 RS256 ES256 EdDSA __proto__ hs256'), ''];
  const others = [null, 5, true, ['HS256'], { HS256: 1 }];
  const headers: [string, unknown][] = [
    ...[...algorithms, ...others].map((alg): [string, unknown] => [JSON.stringify(alg), { ...HEADER, alg }]),
    ['missing', { typ: 'at+jwt' }],
    ['typ JWT', { alg: 'HS256', typ: 'JWT' }],
    ['typ of refresh', { alg: 'HS256', typ: 'rt+jwt' }],
    ['typ missing', { alg: 'HS256' }],
    ['typ a number', { alg: 'HS256', typ: 1 }],
    ['crit', { ...HEADER, crit: ['b64'], b64: false }],
    ['crit unknown', { ...HEADER, crit: ['x'], x: 1 }],
    ['null', null],
    ['array', [HEADER]],
    ['string', '"HS256"'],
    ['no JSON', 'x'],
    ['__proto__', `{"__proto__":{"alg":"HS256"},"typ":"at+jwt"}`],
  ];
  await refuseAll(t, app, {
    ...Object.fromEntries(headers.map(([name, value]) => [`header ${name}`, forge(value, claims)])),
    ...Object.fromEntries(
      [null, [], [claims], 'text', '"text"', 5, true, {}, ''].map((value) => [
        `payload ${JSON.stringify(value)}`,
        forge(HEADER, value),
      ]),
    ),
    'no signature': `${header}.${payload}.`,
    'none, no signature': `${base64url({ ...HEADER, alg: 'none' })}.${payload}.`,
    'two parts': `${header}.${payload}`,
    'one part': header,
    'four parts': `${person.accessToken}.${signature}`,
    'five parts': `${person.accessToken}.a.b`,
    'only dots': '..',
    'other payload': `${header}.${base64url({ ...claims, sub: 'usr_other' })}.${signature}`,
    'cut signature': person.accessToken.slice(0, -2),
    'longer signature': `${person.accessToken}AA`,
    'wrong secret': forge(HEADER, claims, 'another-Zq7vLd0mXw4RkT9cYb2NfHs6'),
    'empty secret': forge(HEADER, claims, ''),
    'the secret of refresh tokens': forge(HEADER, claims, SECRETS.jwtRefreshSecret),
    RS256: signedBy('RS256', rsa.privateKey, 'sha256'),
    'EdDSA with its own key': signedBy('EdDSA', ed.privateKey, null, { jwk }),
    'HS256 by public key': forge(
      HEADER,
      claims,
      rsa.publicKey.export({ type: 'spki', format: 'pem' }).toString(),
    ),
    'not base64url': `${header}.${payload}.${signature.slice(0, 5)}%%%`,
    'very long': `${header}.${'A'.repeat(8000)}.${signature}`,
  });
});

t.test('keys named in the header are not looked up', async (t) => {
  const { app, claims } = await begin(t);
  for (const kid of ['../../../../dev/null', "x' OR 1=1 --", '/proc/self/environ']) {
    await refuseAll(t, app, { [kid]: forge({ ...HEADER, kid }, claims, '') });
  }
  for (const name of ['jku', 'x5u']) {
    await refuseAll(t, app, {
      [name]: forge({ ...HEADER, [name]: 'http://127.0.0.1:9/keys' }, claims, 'other'),
    });
  }
});

t.test('tokens with invalid claims are answered 401', async (t) => {
  const { app, claims } = await begin(t);
  const now = app.clock.now() / 1000;
  const wrong: Json[] = [
    { exp: now },
    { exp: now - 1 },
    { exp: undefined },
    { exp: String(now + 60) },
    { exp: 1e308 },
    { exp: now + 60.5 },
    { exp: null },
    { nbf: now + 60 },
    { nbf: 'soon' },
    { iat: now + 61 },
    { iat: undefined },
    { iat: '1' },
    { aud: undefined },
    { aud: 'saas-refresh' },
    { aud: ['saas-api'] },
    { aud: ['other', 'saas-api'] },
    { iss: 'http://app.example.test/' },
    { iss: 'https://evil.test' },
    { iss: undefined },
    { token_use: 'refresh' },
    { token_use: undefined },
    { sub: undefined },
    { sub: 5 },
    { sub: '' },
    { sub: null },
    { sub: { $ne: null } },
    { sub: 'usr_nobody' },
    { sub: (await app.signUp()).id },
    { sid: undefined },
    { sid: '' },
    { sid: 'ses_other' },
    { sid: 'a\u0000' },
    { jti: undefined },
  ];
  const tokens = wrong.map((change) => [JSON.stringify(change), forge(HEADER, { ...claims, ...change })]);
  await refuseAll(t, app, Object.fromEntries(tokens));
  const skewed = forge(HEADER, { ...claims, iat: now + 60 });
  t.equal(await app.me({ accessToken: skewed }), 200, 'a minute of clock skew is forgiven');
});

t.test('a refresh token carries the start of its session', async (t) => {
  const { app, person } = await begin(t);
  const header = { alg: 'HS256', typ: 'rt+jwt' };
  const claims = claimsOf(person.refreshToken);
  const refresh = (auth_time: unknown) => {
    const refreshToken = forge(header, { ...claims, auth_time }, SECRETS.jwtRefreshSecret);
    return app.post('/auth/refresh', { refreshToken });
  };
  for (const wrong of [undefined, null, String(claims['auth_time']), 1.5, -1, 1e308])
    t.match(await refresh(wrong), REFUSED, String(wrong));
  t.equal((await refresh(claims['auth_time'])).status, 200);
});

t.test('access and refresh tokens are never accepted in place of each other', async (t) => {
  // Even if an operator uses one secret for both.
  for (const jwtRefreshSecret of [SECRETS.jwtRefreshSecret, SECRETS.jwtAccessSecret]) {
    const app = await saasApp(t, { jwtRefreshSecret });
    const { accessToken, refreshToken } = await app.signUp();
    await refuseAll(t, app, { refreshToken });
    t.match(await app.post('/auth/refresh', { refreshToken: accessToken }), REFUSED);
  }
});

t.test('a malformed refresh token is answered 401 and refreshes nothing', async (t) => {
  const { app, person } = await begin(t);
  const sessions = sessionCollection(await storeOf(t, app));
  const claims = claimsOf(person.refreshToken);
  const session = { id: String(claims['sid']) };
  const before = await sessions.findOne(session);
  const header = { alg: 'HS256', typ: 'rt+jwt' };
  const signed = (change: Json) => forge(header, { ...claims, ...change }, SECRETS.jwtRefreshSecret);
  for (const refreshToken of [
    'garbage',
    '..',
    forge({ ...header, alg: 'none' }, claims, SECRETS.jwtRefreshSecret),
    forge(header, claims),
    signed({ exp: app.clock.now() / 1000 }),
    signed({ token_use: 'access' }),
    signed({ sid: 'ses_other' }),
    signed({ sub: 'usr_other' }),
    signed({ sub: (await app.signUp()).id }),
    signed({ jti: '' }),
  ])
    t.match(await app.post('/auth/refresh', { refreshToken }), REFUSED, refreshToken);
  t.same(await sessions.findOne(session), before);
});

t.test('Authorization headers without a Bearer token are answered 401', async (t) => {
  const { app, person } = await begin(t);
  for (const authorization of [
    '',
    'Bearer',
    'Bearer ',
    'Bearer    ',
    'Bearer a b',
    `Basic ${person.accessToken}`,
    `Bearer${person.accessToken}`,
    `Bearer ${person.accessToken},`,
    `Bearer "${person.accessToken}"`,
    `Bearer ${person.accessToken} ${person.accessToken}`,
    'Bearer \u00fc\u00e4',
    person.accessToken,
  ]) {
    const { status } = await app.request('GET', '/api/auth/me', { headers: { authorization } });
    t.equal(status, 401, authorization);
  }
  for (const scheme of ['bearer', 'BEARER', 'Bearer ']) {
    const headers = { authorization: `${scheme} ${person.accessToken}` };
    t.equal((await app.request('GET', '/api/auth/me', { headers })).status, 200, scheme);
  }
});

t.test('the token cache is keyed by the token alone and bounded in bytes', async (t) => {
  let reads = 0;
  const read = createTokenCache((token) => {
    reads++;
    return token.startsWith('bad') ? null : { token };
  });
  for (const token of ['one', 'one', 'bad', 'bad']) read(token);
  t.equal(reads, 3, 'an invalid token is not cached');
  const long = (index: number) => String(index).padStart(4096, '0');
  for (let index = 0; index < 4000; index++) read(long(index));
  reads = 0;
  read(long(3999));
  read(long(3000));
  t.equal(reads, 0, 'the newest are kept');
  read(long(0));
  read('one');
  t.equal(reads, 2, 'the oldest are gone');
});
