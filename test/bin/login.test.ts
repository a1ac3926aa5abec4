import { once } from 'node:events';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t from 'tap';
import { type LoginRequest, logIn } from '../../src/idp/headless-login.js';
import { systemClock } from '../../src/kernel/clock.js';
import { systemRandom } from '../../src/kernel/secrets.js';
import { basic } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { commandLine } from '../kit/command-line.js';
import { idpApp, SEED } from '../kit/idp.js';

/** `idp login` as an agent runs it. */

const REAL = { clock: systemClock, random: systemRandom };

t.test('an agent logs in without a browser, and its tokens are readable only by its user', async (t) => {
  const line = commandLine(t);
  const server = await idpApp(t, {
    env: false,
    clock: fakeClock(Date.now()),
    publicUrl: undefined as never,
    ed25519Seed: SEED,
  });
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
  const { json } = await line.type(['login', '--json'], { more });
  t.match(json, { token_type: 'Bearer', scope: 'openid email profile', access_token: /^at_/ });
  t.equal((await server.userinfo(json.access_token)).body.sub, agent.sub);
  t.ok(Math.abs(json.expires_at - Date.now() / 1000 - 3600) < 60);

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
    const attacker = createServer((request, response) => {
      asked.push(`thief ${request.headers.authorization}`);
      response.end('{}');
    }).listen(0, '127.0.0.1');
    const provider = createServer((request, response) => {
      const url = new URL(request.url ?? '', issuer());
      asked.push(`${url.pathname} ${request.headers.authorization ?? ''}`);
      if (url.pathname === '/authorize') {
        response.writeHead(302, { location: answerOf(url.searchParams.get('state') ?? '', issuer()) }).end();
      } else if (url.pathname === '/token') {
        response.end(
          JSON.stringify({ access_token: 'at', token_type: 'Bearer', expires_in: 60, id_token: 'a.b.c' }),
        );
      } else if (url.pathname === '/jwks') response.end('{"keys":[]}');
      else {
        const at = (path: string) => issuer() + path;
        response.end(
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
      [(state, iss) => `${elsewhere}/cb?code=x&state=${state}&iss=${iss}`, /id_token cannot be trusted/],
    ];
    for (const [answer, reason] of cases) {
      answerOf = answer;
      await t.rejects(logIn(request, REAL), { name: 'LoginFailed', message: reason });
    }
    t.same(
      asked.filter((line) => line.startsWith('thief')),
      [],
      'no redirect was followed',
    );
    const withPassword = asked.filter((line) => line.includes('Basic'));
    t.ok(withPassword.every((line) => line === `/authorize ${basic('scout', 'the password')}`));
  },
);
