import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  sign,
} from 'node:crypto';
import { createLocalJWKSet, jwtVerify } from 'jose';
import t, { type Test } from 'tap';
import { ed25519Key } from '../../../src/core/kernel/signing-keys.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { type SaasApp, saasApp } from '../../kit/app.js';
import { type CountedRandom, countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

type Json = Record<string, unknown>;

const SEED = '8f1d0a6be37c942518f0ad6c3b7e95d2406c1fb8e29a7d53';
const [ONE, TWO] = [`${SEED}0123456789abcdef`, `${SEED}fedcba9876543210`];
const P256 = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  .privateKey.export({ type: 'pkcs8', format: 'pem' })
  .toString();

const base64url = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
const partsOf = (token: string) => token.split('.') as [string, string, string];
const read = (part: string): Json => JSON.parse(Buffer.from(part, 'base64url').toString());
const headerOf = (token: string) => read(partsOf(token)[0]);
const claimsOf = (token: string) => read(partsOf(token)[1]);
const jwksOf = async (app: SaasApp) => (await app.request('GET', '/api/auth/jwks')).body;

/** A token with any header, signed by a key, or with a text as the secret of HS256. */
function forge(header: Json, claims: Json, key: KeyObject | string): string {
  const input = `${base64url(header)}.${base64url(claims)}`;
  if (typeof key === 'string')
    return `${input}.${createHmac('sha256', key).update(input).digest('base64url')}`;
  const hash = ['RS256', 'ES256'].includes(String(header['alg'])) ? 'sha256' : null;
  const signature = sign(key.asymmetricKeyType === 'ed25519' ? null : hash, Buffer.from(input), {
    key,
    dsaEncoding: 'ieee-p1363',
  });
  return `${input}.${signature.toString('base64url')}`;
}

/** An installation, restarted with other options; `join` registers a new user. */
function restarts(t: Test) {
  const folder = temporaryFolder(t);
  let last: SaasApp | undefined;
  let starts = 0;
  return async (options: Omit<CreateServerOptions, 'clock'>, { hasSecret = true } = {}) => {
    await last?.close();
    const random: CountedRandom = countedRandom(`start ${++starts}`);
    const shared = { folder, random, ...(last && { clock: last.clock }) };
    const secret = hasSecret ? {} : ({ jwtAccessSecret: undefined } as object);
    const app = await saasApp(t, { ...options, ...shared, ...secret });
    last = app;
    return Object.assign(app, { join: () => app.signUp({ email: `user-${starts}@example.com` }) });
  };
}

for (const [name, jwtAccessKey, alg] of [
  ['Ed25519', ONE, 'EdDSA'],
  ['P-256', P256, 'ES256'],
] as const) {
  t.test(`with a key on ${name}, anyone verifies access tokens with the published key`, async (t) => {
    const app = await saasApp(t, { jwtAccessKey });
    const person = await app.signUp();
    const { status, headers, body } = await app.request('GET', '/api/auth/jwks');
    t.match(
      { status, headers },
      {
        status: 200,
        headers: { 'cache-control': 'public, max-age=300', 'access-control-allow-origin': '*' },
      },
    );
    t.equal(body.keys.length, 1);
    const [{ kid, d }] = body.keys;
    t.equal(d, undefined, 'the private part is not published');
    const { payload, protectedHeader } = await jwtVerify(person.accessToken, createLocalJWKSet(body), {
      ...{ issuer: 'http://app.example.test', audience: 'saas-api', typ: 'at+jwt' },
      currentDate: new Date(app.clock.now()),
    });
    t.same(protectedHeader, { alg, typ: 'at+jwt', kid });
    t.match(payload, { sub: person.id, client_id: 'http://app.example.test', token_use: 'access' });
    t.equal(await app.me(person), 200);
    t.match(headerOf(person.refreshToken), { alg: 'HS256' }, 'nobody else reads refresh tokens');
  });
}

t.test('without a key, tokens are signed with the secret, and there are no public keys', async (t) => {
  const app = await saasApp(t);
  const { accessToken } = await app.signUp();
  t.same(headerOf(accessToken), { alg: 'HS256', typ: 'at+jwt' });
  t.notOk(Object.hasOwn(claimsOf(accessToken), 'client_id'));
  t.equal((await app.request('GET', '/api/auth/jwks')).status, 404);
});

t.test('algorithms and keys are not confused', async (t) => {
  const app = await saasApp(t, { jwtAccessKey: ONE, jwtAccessKeyPrevious: P256 });
  const person = await app.signUp();
  const [header, claims] = [headerOf(person.accessToken), claimsOf(person.accessToken)];
  const own = ed25519Key(ONE);
  const ec = createPrivateKey(P256);
  const [, { kid: ecKid }] = (await jwksOf(app)).keys;
  t.equal(await app.me({ accessToken: forge(header, claims, own) }), 200, 'a forgery with the true key');
  const ES256 = { alg: 'ES256', typ: 'at+jwt', kid: ecKid };
  t.equal(await app.me({ accessToken: forge(ES256, claims, ec) }), 200);

  const stranger = generateKeyPairSync('ed25519').privateKey;
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
  const publicKey = createPublicKey(own);
  const jwk = publicKey.export({ format: 'jwk' });
  const pem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
  const [signedHeader, payload, signature] = partsOf(person.accessToken);
  const refused: Record<string, string> = {
    'HS256 with the public key as PEM': forge({ alg: 'HS256', typ: 'at+jwt' }, claims, pem),
    'HS256 with the public key, and its kid': forge({ ...header, alg: 'HS256' }, claims, pem),
    'HS256 with the coordinate': forge({ ...header, alg: 'HS256' }, claims, String(jwk.x)),
    'HS256 with the JWK': forge({ ...header, alg: 'HS256' }, claims, JSON.stringify(jwk)),
    'HS256 with the seed': forge({ alg: 'HS256', typ: 'at+jwt' }, claims, ONE),
    'HS256 with an empty secret': forge({ alg: 'HS256', typ: 'at+jwt' }, claims, ''),
    'no algorithm': `${base64url({ ...header, alg: 'none' })}.${payload}.`,
    'no algorithm, signed': forge({ ...header, alg: 'none' }, claims, own),
    'no signature': `${signedHeader}.${payload}.`,
    'a foreign kid': forge({ ...header, kid: 'another' }, claims, own),
    'no kid': forge({ alg: 'EdDSA', typ: 'at+jwt' }, claims, own),
    'the kid of the other key': forge({ ...header, kid: ecKid }, claims, own),
    'another key': forge(header, claims, stranger),
    'another key in the header': forge(
      { ...header, jwk: createPublicKey(stranger).export({ format: 'jwk' }) },
      claims,
      stranger,
    ),
    RS256: forge({ ...header, alg: 'RS256' }, claims, rsa),
    'ES256 of the Ed25519 key': forge({ ...header, alg: 'ES256' }, claims, ec),
    'EdDSA of the P-256 key': forge({ ...ES256, alg: 'EdDSA' }, claims, ec),
    'another type': forge({ ...header, typ: 'JWT' }, claims, own),
    'the type of refresh tokens': forge({ ...header, typ: 'rt+jwt' }, claims, own),
    'other claims': `${signedHeader}.${base64url({ ...claims, sub: 'usr_other' })}.${signature}`,
    'another audience': forge(header, { ...claims, aud: 'https://other.test' }, own),
    'another issuer': forge(header, { ...claims, iss: 'https://evil.test' }, own),
  };
  for (const [name, accessToken] of Object.entries(refused))
    t.equal(await app.me({ accessToken }), 401, name);
  const answer = await app.post('/auth/refresh', { refreshToken: person.accessToken });
  t.equal(answer.status, 401, 'an access token is no refresh token');
});

t.test('tokens of the secret are valid until it is no longer configured', async (t) => {
  const start = restarts(t);
  const bySecret = await (await start({})).join();
  const both = await start({ jwtAccessKey: ONE });
  t.equal(await both.me(bySecret), 200);
  const byKey = await both.join();
  const alone = await start({ jwtAccessKey: ONE }, { hasSecret: false });
  t.same([await alone.me(bySecret), await alone.me(byKey)], [401, 200]);
  const back = await start({ jwtAccessKeyPrevious: ONE });
  t.equal(await back.me(byKey), 200, 'and the other way round');
  t.equal(headerOf((await back.join()).accessToken)['alg'], 'HS256');
});

t.test('a key is exchanged without a token that nobody can verify', async (t) => {
  const start = restarts(t);
  const first = await (await start({ jwtAccessKey: ONE })).join();
  const announced = await start({ jwtAccessKey: ONE, jwtAccessKeyPrevious: P256 });
  const known = await jwksOf(announced);
  t.equal(known.keys.length, 2);
  const exchanged = await start({ jwtAccessKey: P256, jwtAccessKeyPrevious: ONE });
  const second = await exchanged.join();
  t.same([await exchanged.me(first), await exchanged.me(second)], [200, 200]);
  const currentDate = new Date(exchanged.clock.now());
  await t.resolves(jwtVerify(second.accessToken, createLocalJWKSet(known), { currentDate }));
  const done = await start({ jwtAccessKey: P256 });
  t.same([await done.me(first), await done.me(second)], [401, 200]);
});

for (const key of [{}, { jwtAccessKey: TWO }]) {
  const with_ = Object.keys(key).join() || 'the secret';
  t.test(`the audience is configured, and demanded, with ${with_}`, async (t) => {
    const start = restarts(t);
    const before = await (await start(key)).join();
    const app = await start({ ...key, jwtAccessAudience: 'https://files.example.com' });
    const { accessToken, refreshToken } = await app.join();
    t.equal(claimsOf(accessToken)['aud'], 'https://files.example.com');
    t.same([await app.me({ accessToken }), await app.me(before)], [200, 401]);
    t.equal((await app.post('/auth/refresh', { refreshToken })).status, 200);
    t.equal((await app.post('/auth/refresh', { refreshToken: before.refreshToken })).status, 200);
  });
}

t.test('the public keys are also answered during maintenance', async (t) => {
  const app = await saasApp(t, { jwtAccessKey: ONE });
  const { status } = await app.admin('PATCH', '/admin/api/settings', { maintenanceMode: true, version: 0 });
  t.equal(status, 200);
  t.equal((await app.post('/auth/login', { email: 'a@example.com', password: 'x' })).status, 503);
  t.equal((await app.request('GET', '/api/auth/jwks')).status, 200);
});
