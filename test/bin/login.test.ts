import { once } from 'node:events';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import t from 'tap';
import { logInOnDevice } from '../../bin/clients/device-login.js';
import { type LoginRequest, logIn } from '../../bin/clients/headless-login.js';
import { systemClock } from '../../src/core/kernel/clock.js';
import { systemRandom } from '../../src/core/kernel/secrets.js';
import { agentWithKey } from '../kit/agent-keys.js';
import { basic } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { commandLine } from '../kit/command-line.js';
import { actorProof, delegationWorld } from '../kit/delegations.js';
import { decide, deviceApp } from '../kit/device.js';
import { claimsOf, idpApp, SEED } from '../kit/idp.js';
import { addResource, FILES } from '../kit/resources.js';

/** `idp login` as an agent runs it. */

/** A provider that commands reach, with the time of this machine. */
const REACHABLE = { env: false, publicUrl: undefined as never, ed25519Seed: SEED } as const;

const REAL = { clock: systemClock, random: systemRandom };

t.test('an agent logs in without a browser, and its tokens are readable only by its user', async (t) => {
  const line = commandLine(t);
  const server = await idpApp(t, { ...REACHABLE, clock: fakeClock(Date.now()) });
  const issuer = (await server.listen()).replace('127.0.0.1', 'localhost');
  const native = await server.createClient({ redirect_uris: 'http://127.0.0.1/callback', public: true });
  const web = await server.createClient();
  const agent = await server.mintAgent();
  const more = {
    IDP_LOGIN_ISSUER: issuer,
    IDP_LOGIN_CLIENT_ID: native.id,
    IDP_LOGIN_HANDLE: agent.handle,
    IDP_LOGIN_PASSWORD: agent.password,
  };
  const before = Math.floor(Date.now() / 1000);
  const { json } = await line.type(['login', '--json'], { more });
  t.match(json, { token_type: 'Bearer', scope: 'openid email profile', access_token: /^at_/ });
  t.equal((await server.userinfo(json.access_token)).body.sub, agent.sub);
  t.ok(json.expires_at >= before + 3600 && json.expires_at <= Math.ceil(Date.now() / 1000) + 3600);

  const flags = [
    '--issuer',
    issuer,
    '--client',
    web.id,
    '--handle',
    agent.handle,
    '--redirect-uri',
    web.redirectUri,
  ];
  const secret = { IDP_LOGIN_CLIENT_SECRET: String(web.secret) };
  const plain = await line.type(['login', ...flags, '--password-stdin'], {
    stdin: `${agent.password}\n`,
    more: secret,
  });
  t.match(plain, { code: 0, err: '', out: /^[\w-]+\.[\w-]+\.[\w-]+\n$/ });
  writeFileSync(join(line.cwd, 'password'), `${agent.password}\n`);
  const { IDP_LOGIN_PASSWORD: _, ...others } = more;
  t.equal((await line.type(['login'], { more: { ...others, IDP_LOGIN_PASSWORD_FILE: 'password' } })).code, 0);

  const cached = ['login', '--cache', 'tokens.json', '--json'];
  const first = (await line.type(cached, { more })).json;
  const cache = join(line.cwd, 'tokens.json');
  t.equal(statSync(cache).mode & 0o777, 0o600);
  t.notOk(readFileSync(cache, 'utf8').includes(agent.password));
  t.strictSame((await line.type(cached, { more: others })).json, first, 'without asking again');
  t.notSame(
    (await line.type([...cached, '--scope', 'openid'], { more })).json,
    first,
    'but for another scope',
  );
  const stale = JSON.parse(readFileSync(cache, 'utf8'));
  writeFileSync(cache, JSON.stringify({ ...stale, expires_at: Math.floor(Date.now() / 1000) + 30 }));
  const renewed = (await line.type([...cached, '--scope', 'openid'], { more })).json;
  t.not(renewed.access_token, stale.access_token);
  await addResource(t, server);
  const forApi = ['login', '--resource', FILES, '--scope', 'openid files:read', '--cache', 'api.json'];
  const { out } = await line.type(forApi, { more });
  t.match(claimsOf(out.trim()), { aud: FILES, sub: agent.sub, scope: 'files:read' });
  t.equal((await line.type(forApi, { more })).out, out, 'from the cache');
  t.match((await line.type(['login', '--cache', 'api.json'], { more })).out, /^(?!at_)/, 'but an id_token');
  const unknown = await line.type(['login', '--resource', 'https://other.example.test'], { more });
  t.match(unknown, { code: 1, out: '', err: /^idp login: invalid_target: resource is not registered/ });
  writeFileSync(cache, 'no JSON');
  t.match(await line.type(cached, { more }), { code: 1, err: /is not a token cache/ });

  const wrong = await line.type(['login'], { more: { ...more, IDP_LOGIN_PASSWORD: 'wrong' } });
  t.match(wrong, {
    code: 1,
    out: '',
    err: /^idp login: invalid_credentials: The handle or password is incorrect/,
  });

  const request = {
    issuer,
    clientId: native.id,
    handle: agent.handle,
    password: agent.password,
    redirectUri: native.redirectUri,
    scope: 'openid',
  };
  const failing: [Partial<LoginRequest>, RegExp][] = [
    [{ clientId: 'cid_nobody' }, /client_id is not registered/],
    [{ redirectUri: 'http://127.0.0.1/other' }, /redirect_uri is not registered for this client/],
    [{ clientSecret: 'csec_x' }, /invalid_client/],
    [{ issuer: 'http://localhost:1' }, /http:\/\/localhost:1 cannot be reached: bad port/],
    [{ issuer: 'http://id.example.test' }, /is not an https URL/],
    [{ issuer: issuer.replace('localhost', '127.0.0.1') }, /its metadata names a different issuer/],
    [{ issuer: 'nonsense' }, /is not an https URL/],
  ];
  for (const [other, reason] of failing) {
    const error = await logIn({ ...request, ...other }, REAL).catch((thrown: Error) => thrown);
    t.match(error, { name: 'LoginFailed', message: reason });
    t.notOk(String(error).includes(agent.password));
  }
});

t.test(
  'idp login rejects responses of other issuers and sends the password only to the provider',
  async (t) => {
    const asked: string[] = [];
    let answerOf: (state: string, issuer: string) => string = () => '';
    const [own, foreign] = [await generateKeyPair('EdDSA'), await generateKeyPair('EdDSA')];
    const keys = [await exportJWK(own.publicKey)];
    let nonce = '';
    let key = foreign.privateKey;
    const newIdToken = () =>
      new SignJWT({ nonce })
        .setProtectedHeader({ alg: 'EdDSA' })
        .setIssuer(issuer())
        .setAudience('cid_x')
        .setSubject('u_x')
        .setIssuedAt()
        .setExpirationTime('1 minute')
        .sign(key);
    const attacker = createServer((request, response) => {
      asked.push(`thief ${request.headers.authorization}`);
      response.end('{}');
    }).listen(0, '127.0.0.1');
    const provider = createServer(async (request, response) => {
      const url = new URL(request.url ?? '', issuer());
      asked.push(`${url.pathname} ${request.headers.authorization ?? ''}`);
      if (url.pathname === '/authorize') {
        nonce = url.searchParams.get('nonce') ?? nonce;
        response.writeHead(302, { location: answerOf(url.searchParams.get('state') ?? '', issuer()) }).end();
      } else if (url.pathname === '/token') {
        response.setHeader('content-type', 'application/json').end(
          JSON.stringify({
            access_token: 'at',
            token_type: 'Bearer',
            expires_in: 60,
            id_token: await newIdToken(),
          }),
        );
      } else if (url.pathname === '/jwks') {
        response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys }));
      } else {
        const at = (path: string) => issuer() + path;
        response.setHeader('content-type', 'application/json').end(
          JSON.stringify({
            issuer: issuer(),
            authorization_endpoint: at('/authorize'),
            token_endpoint: at('/token'),
            jwks_uri: at('/jwks'),
          }),
        );
      }
    }).listen(0, '127.0.0.1');
    for (const server of [attacker, provider]) {
      if (!server.listening) await once(server, 'listening');
      t.teardown(() => server.close());
    }
    const issuer = () => `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
    const elsewhere = `http://127.0.0.1:${(attacker.address() as AddressInfo).port}`;
    const request = {
      issuer: issuer(),
      clientId: 'cid_x',
      handle: 'scout',
      password: 'the password',
      redirectUri: `${elsewhere}/cb`,
      scope: 'openid',
    };
    const cases: [typeof answerOf, RegExp][] = [
      [(_state, iss) => `${elsewhere}/cb?code=x&state=forged&iss=${iss}`, /belongs to another sign-in/],
      [
        (state) => `${elsewhere}/cb?code=x&state=${state}&iss=https://other.test`,
        /belongs to another sign-in or another provider/,
      ],
      [(state) => `${elsewhere}/cb?code=x&state=${state}`, /belongs to another sign-in or another provider/],
      [(state, iss) => `${elsewhere}/cb?error=access_denied&state=${state}&iss=${iss}`, /access_denied/],
      [(state, iss) => `${elsewhere}/cb?state=${state}&iss=${iss}`, /contains no code/],
      [(state, iss) => `${elsewhere}/cb?code=x&state=${state}&iss=${iss}`, /tokens cannot be trusted/],
    ];
    for (const [answer, reason] of cases) {
      answerOf = answer;
      await t.rejects(logIn(request, REAL), { name: 'LoginFailed', message: reason });
    }
    key = own.privateKey;
    t.match(await logIn(request, REAL), { access_token: 'at' }, 'a token of the provider is accepted');
    answerOf = (state, iss) => {
      nonce = 'of another sign-in';
      return `${elsewhere}/cb?code=x&state=${state}&iss=${iss}`;
    };
    await t.rejects(logIn(request, REAL), { message: /id_token belongs to another sign-in/ });
    t.same(
      asked.filter((line) => line.startsWith('thief')),
      [],
      'no redirect was followed',
    );
    const withPassword = asked.filter((line) => line.includes('Basic'));
    t.ok(withPassword.every((line) => line === `/authorize ${basic('scout', 'the password')}`));
  },
);

t.test('idp login --device waits for the person, more slowly when the provider says so', async (t) => {
  const { idp, client, human } = await deviceApp(t, { ...REACHABLE, clock: fakeClock(Date.now()) });
  await idp.listen();
  await addResource(t, idp);
  const issuer = idp.server.fastify.idp.issuer();
  const request = { issuer, clientId: client.id, scope: 'openid files:read', resource: FILES };
  const [waits, shown]: [number[], string[]] = [[], []];
  const steps = [
    async () => void idp.clock.advance(5000),
    async () => void idp.clock.advance(1000),
    async () => {
      idp.clock.advance(10_000);
      await decide(idp, human, shown[0] ?? '');
    },
  ];
  const tokens = await logInOnDevice(request, {
    clock: idp.clock,
    async wait(milliseconds) {
      waits.push(milliseconds);
      await steps.shift()?.();
    },
    show: ({ user_code, verification_uri, verification_uri_complete }) =>
      void shown.push(user_code, verification_uri, verification_uri_complete ?? ''),
  });
  t.same(waits, [5000, 5000, 10_000], 'the second request was too early');
  t.match(shown, [/^[B-Z]{4}-[B-Z]{4}$/, `${issuer}/device`, `${issuer}/device?user_code=${shown[0]}`]);
  t.match(claimsOf(tokens.access_token), { aud: FILES, sub: human.sub, scope: 'files:read' });
  t.match(claimsOf(tokens.id_token ?? ''), { sub: human.sub, aud: client.id });

  const refused = logInOnDevice(request, {
    clock: idp.clock,
    wait: async (milliseconds) => void idp.clock.advance(milliseconds),
    show: ({ user_code }) => void decide(idp, human, user_code, 'deny'),
  });
  await t.rejects(refused, { name: 'LoginFailed', message: /^access_denied/ });
  const forgotten = logInOnDevice(request, {
    clock: idp.clock,
    wait: async () => void idp.clock.advance(11 * 60_000),
    show: () => undefined,
  });
  await t.rejects(forgotten, { message: /^expired_token/ });
});

t.test('idp login --device prints the code to stderr and the token to stdout', async (t) => {
  const line = commandLine(t);
  let polls = 0;
  const provider = createServer((request, response) => {
    const { url = '' } = request;
    const at = (path: string) => issuer + path;
    const metadata = {
      ...{ issuer, authorization_endpoint: at('/authorize'), token_endpoint: at('/token') },
      ...{ jwks_uri: at('/jwks'), device_authorization_endpoint: at('/device_authorization') },
    };
    const begun = {
      ...{ device_code: 'dc', user_code: 'BCDF-GHJK', verification_uri: at('/device') },
      ...{ verification_uri_complete: at('/device?user_code=BCDF-GHJK'), expires_in: 60, interval: 0.01 },
    };
    const isPending = url === '/token' && ++polls === 1;
    const token = isPending
      ? { error: 'authorization_pending' }
      : { access_token: 'the-token', token_type: 'Bearer', expires_in: 60 };
    const answer = url === '/token' ? token : url === '/device_authorization' ? begun : metadata;
    response
      .writeHead(isPending ? 400 : 200, { 'content-type': 'application/json' })
      .end(JSON.stringify(answer));
  }).listen(0, '127.0.0.1');
  await once(provider, 'listening');
  t.teardown(() => provider.close());
  const issuer = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const args = ['login', '--device', '--issuer', issuer, '--client', 'cid_x'];
  t.same(await line.type(args), {
    code: 0,
    out: 'the-token\n',
    err: `Open ${issuer}/device and enter the code BCDF-GHJK\nor open ${issuer}/device?user_code=BCDF-GHJK\n`,
    json: undefined,
  });
  t.equal(polls, 2);
  t.match(await line.type([...args, '--handle', 'scout']), { code: 2, err: /--device takes no handle/ });
});

t.test('idp token exchange keeps the token of a delegation, and hands an access token on', async (t) => {
  const line = commandLine(t);
  const world = await delegationWorld(t, { ...REACHABLE, clock: fakeClock(Date.now()) }, true);
  const { idp, client, agent, human } = world;
  const { delegation_token: first } = await world.delegate({ delegation_max_depth: '2' });
  const file = join(line.cwd, 'delegation.txt');
  writeFileSync(file, `${first}\n`);
  const env = async (by = agent) => ({
    IDP_LOGIN_ISSUER: idp.server.fastify.idp.issuer(),
    IDP_LOGIN_CLIENT_ID: client.id,
    IDP_LOGIN_CLIENT_SECRET: client.secret ?? '',
    IDP_EXCHANGE_ACTOR_TOKEN: (await actorProof(idp, by)).actor_token,
  });
  const exchange = ['token', 'exchange'];
  const kept = [...exchange, '--delegation', 'delegation.txt'];
  const { code, out, err } = await line.type(kept, { more: await env() });
  t.match({ code, err }, { code: 0, err: '' });
  t.match(claimsOf(out.trim()), { sub: human.sub, act: { sub: agent.sub }, aud: FILES });
  const second = readFileSync(file, 'utf8').trim();
  t.not(second, first, 'the next one');
  t.match(second, /^dt_/);
  t.equal(statSync(file).mode & 0o777, 0o600);
  const { json } = await line.type([...kept, '--json'], { more: await env() });
  t.match(json, { token_type: 'Bearer', scope: 'files:read', delegation_token: /^dt_/ });
  t.equal(readFileSync(file, 'utf8').trim(), json.delegation_token);

  const other = await agentWithKey(t, idp);
  const handOn = [...exchange, '--subject-token-stdin', '--resource', FILES];
  const handed = await line.type(handOn, { stdin: json.access_token, more: await env(other) });
  t.match(handed, { code: 0, err: '' });
  t.match(claimsOf(handed.out.trim()), { sub: human.sub, act: { sub: other.sub, act: { sub: agent.sub } } });

  const fromEnvironment = { ...(await env()), IDP_EXCHANGE_SUBJECT_TOKEN: json.delegation_token };
  const lost = await line.type(exchange, { more: fromEnvironment });
  t.match(lost, { code: 2, out: '', err: /use --delegation or --json/ });
  t.equal((await line.type([...exchange, '--json'], { more: fromEnvironment })).code, 0);
  const { IDP_EXCHANGE_ACTOR_TOKEN: _, ...without } = await env();
  t.match(await line.type(kept, { more: without }), { code: 2, err: /IDP_EXCHANGE_ACTOR_TOKEN is missing/ });
  t.match(await line.type([...exchange, '--delegation', 'none.txt'], { more: await env() }), {
    code: 1,
    err: /none\.txt cannot be read \(ENOENT\)/,
  });
  const stranger = await line.type(kept, { more: await env(other) });
  t.match(stranger, { code: 1, out: '', err: /^idp token exchange: invalid_grant: / });
});
