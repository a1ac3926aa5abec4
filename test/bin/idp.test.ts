import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { type LoginRequest, logIn } from '../../src/headless-login.js';
import { systemClock } from '../../src/kernel/clock.js';
import { sha256, systemRandom } from '../../src/kernel/secrets.js';
import { clientCollection } from '../../src/provisioning/store.js';
import { openStore } from '../../src/storage/open.js';
import { auditOf, basic, PASSWORD } from '../kit/app.js';
import { fakeClock } from '../kit/clock.js';
import { idpApp, SEED } from '../kit/idp.js';
import { compiled } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The commands of idp as an operator and an agent type them. */

const REAL = { clock: systemClock, random: systemRandom };

interface Typed {
  code: number | null;
  out: string;
  err: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert what stands in it
  json: any;
}

/** A command on a store of its own, or on that of a server. */
function commandLine(t: Test, env: Record<string, string> = {}) {
  const cwd = temporaryFolder(t);
  const file = join(cwd, 'data/idp.db');
  return {
    cwd,
    file,
    async type(args: string[], { stdin = '', more = {} as Record<string, string> } = {}): Promise<Typed> {
      const child = spawn(process.execPath, [compiled('bin/idp.js'), ...args], {
        cwd,
        env: { PATH: process.env['PATH'], ...env, ...more },
      });
      child.stdin.end(stdin);
      const [out, err, [code]] = await Promise.all([
        text(child.stdout),
        text(child.stderr),
        once(child, 'close'),
      ]);
      const json = args.includes('--json') && code === 0 ? JSON.parse(out) : undefined;
      return { code: code as number | null, out, err, json };
    },
  };
}

/** A server and commands on one store. */
async function both(t: Test) {
  const probe = commandLine(t);
  const idp = await idpApp(t, {
    databaseUri: `sqlite:${join(probe.cwd, 'idp.db')}`,
    clock: fakeClock(Date.now()),
    publicUrl: 'http://localhost:8080',
  });
  const env = {
    IDP_DATABASE_URI: `sqlite:${join(probe.cwd, 'idp.db')}`,
    IDP_PUBLIC_URL: 'http://localhost:8080',
  };
  const typed: typeof probe.type = (args, { stdin, more } = {}) =>
    probe.type(args, { ...(stdin !== undefined && { stdin }), more: { ...env, ...more } });
  return { idp, type: typed, file: join(probe.cwd, 'idp.db'), cwd: probe.cwd };
}

t.test('clients: everything that changes what applications trust is done on the host', async (t) => {
  const { idp, type, file } = await both(t);
  const uris = 'https://app.example.test/cb,http://127.0.0.1/cb';
  const made = (await type(['client', 'create', uris, '--name', 'App', '--kinds', 'agent', '--json'])).json;
  t.match(made, {
    client_name: 'App',
    redirect_uris: uris.split(','),
    principal_kinds: ['agent'],
    trusted: false,
    client_secret: /^csec_/,
  });
  const client = {
    id: made.client_id,
    secret: made.client_secret,
    redirectUri: 'https://app.example.test/cb',
  };
  const agent = await idp.mintAgent();
  const human = await idp.makeHuman();
  t.match((await idp.authorize(client, human)).headers['location'], /error=access_denied/, 'agents only');
  const signIn = async (secret: string) =>
    (await idp.redeem({ ...client, secret }, await idp.codeFor(client, agent))).status;
  t.equal(await signIn(client.secret), 200);

  t.match(
    (await type(['client', 'update', client.id, '--kinds', 'both', '--trusted', 'yes', '--json'])).json,
    {
      trusted: true,
      client_name: 'App',
      principal_kinds: ['agent', 'human'],
    },
  );
  t.equal((await idp.authorize(client, human)).status, 302);
  t.match((await idp.admin('GET', '/v1/clients')).body.clients, [{ trusted: true }]);
  t.match((await type(['client', 'update', client.id, '--trusted', 'no', '--name', 'New', '--json'])).json, {
    trusted: false,
    client_name: 'New',
  });

  const store = await openStore(`sqlite:${file}`);
  t.teardown(() => store.close());
  const clients = clientCollection(store);
  const second = (await type(['client', 'rotate', client.id, '--json'])).json.client_secret;
  t.equal(await signIn(client.secret), 200, 'the old secret works');
  t.equal(await signIn(second), 200);
  const day = 24 * 3600 * 1000;
  const until = (await clients.findOne({ id: client.id }))?.previousSecretUntil ?? 0;
  t.ok(Math.abs(until - Date.now() - day) < 60_000, 'for a day');
  idp.clock.advance(day + 60_000);
  t.equal(await signIn(client.secret), 401, 'and not after it');
  const third = (await type(['client', 'rotate', client.id, '--at-once', '--json'])).json.client_secret;
  t.equal(await signIn(second), 401);
  t.equal(await signIn(third), 200);
  t.equal((await clients.findOne({ id: client.id }))?.secretHash, sha256(third));

  t.match(await type(['client', 'list']), { code: 0, out: new RegExp(`^${client.id}  New  https`) });
  t.equal((await type(['client', 'delete', client.id])).code, 0);
  t.equal((await idp.authorize(client, agent)).status, 400);
  t.match(await type(['client', 'delete', client.id]), { code: 1, err: /There is no client cid_/ });
  const open = await type(['client', 'create', 'com.example.app:/cb', '--public', '--json']);
  t.notOk('client_secret' in open.json);
  t.match(await type(['client', 'rotate', open.json.client_id]), { code: 1, err: /is public/ });

  const records = (await auditOf(store)).filter(({ ip }) => ip === 'cli').map(({ event }) => event);
  t.same(records.sort(), [
    ...['client.created', 'client.created', 'client.deleted', 'client.rotated', 'client.rotated'],
    ...['client.updated', 'client.updated'],
  ]);
});

t.test('principals: minted, rotated, invited, locked out and let in again', async (t) => {
  const { idp, type } = await both(t);
  const client = await idp.createClient();
  const agent = (await type(['agent', 'mint', 'Scout@agents.example', '--name', 'Scout', '--json'])).json;
  t.match(agent, { handle: 'scout@agents.example', kind: 'agent', name: 'Scout', password: /^agp_/ });
  t.equal((await idp.authorize(client, agent)).status, 302);
  const { json: renewed } = await type(['agent', 'rotate', 'scout@agents.example', '--json']);
  t.equal((await idp.authorize(client, agent)).status, 401);
  t.equal((await idp.authorize(client, { ...agent, password: renewed.password })).status, 302);

  t.match((await type(['principal', 'disable', 'scout@agents.example', '--json'])).json, {
    state: 'disabled',
  });
  t.equal((await idp.authorize(client, { ...agent, password: renewed.password })).status, 401);
  t.match(await type(['agent', 'rotate', 'scout@agents.example']), {
    code: 1,
    err: /it is a agent|agent, disabled/,
  });
  t.match((await type(['principal', 'enable', 'SCOUT@agents.example', '--json'])).json, { state: 'active' });
  t.equal((await idp.authorize(client, { ...agent, password: renewed.password })).status, 302);

  const invitation = (await type(['invite', 'ada@example.test', '--days', '2', '--name', 'Ada', '--json']))
    .json;
  t.match(invitation, { handle: 'ada@example.test', invite_url: 'http://localhost:8080/invite/' });
  t.match((await type(['principal', 'list', 'ada'])).out, /^ada@example\.test +human +invited/);
  const path = new URL(invitation.invite_url).pathname;
  t.match(await idp.request('POST', path, { body: { password: PASSWORD } }), { status: 201 });
  const listed = (await type(['principal', 'list', '--json'])).json.principals;
  t.same(
    listed.map(({ handle, state }: { handle: string; state: string }) => [handle, state]),
    [
      ['ada@example.test', 'active'],
      ['scout@agents.example', 'active'],
    ],
  );
});

t.test('a person who forgot the password gets a link, and keeps the old one until it is used', async (t) => {
  const { idp, type } = await both(t);
  const client = await idp.createClient();
  const human = await idp.makeHuman();
  const token = (await idp.redeem(client, await idp.codeFor(client, human))).body.access_token;
  const reset = async () =>
    new URL((await type(['principal', 'reset', human.handle, '--json'])).json.reset_url).pathname;
  const [first, path] = [await reset(), await reset()];
  t.equal((await idp.authorize(client, human)).status, 302, 'nothing has changed yet');
  t.equal((await idp.userinfo(token)).status, 200);
  t.equal((await idp.request('GET', first)).status, 404, 'a newer link ends the older');
  t.match(await idp.request('GET', path), { status: 200, text: /Choose a new password/ });

  const renewed = { ...human, password: 'another sentence' };
  const answer = await idp.request('POST', path, { body: { password: renewed.password } });
  t.match(answer, { status: 201, body: { sub: human.sub, handle: human.handle, kind: 'human' } });
  t.equal((await idp.authorize(client, human)).status, 401);
  t.equal((await idp.authorize(client, renewed)).status, 302);
  t.equal((await idp.userinfo(token)).status, 401, 'what was given out before is worth nothing');
  t.equal((await idp.request('POST', path, { body: { password: PASSWORD } })).status, 410);

  const unused = await reset();
  await type(['principal', 'disable', human.handle]);
  t.equal((await idp.request('POST', unused, { body: { password: PASSWORD } })).status, 404);
  t.match(await type(['principal', 'reset', human.handle]), {
    code: 1,
    err: /is disabled\. Let them in first/,
  });
  const agent = await idp.mintAgent();
  t.match(await type(['principal', 'reset', agent.handle]), { code: 1, err: /idp agent rotate/ });
});

t.test('what cannot be done is one sentence, what is typed wrong comes with the usage', async (t) => {
  const { type } = await both(t);
  await type(['agent', 'mint', 'taken']);
  const failing: [string[], RegExp][] = [
    [['agent', 'mint', 'taken'], /^This handle is taken\.\n$/],
    [['agent', 'mint', 'a b'], /^The request is not valid\.\n {2}handle must hold no colon/],
    [['agent', 'rotate', 'nobody'], /^Nobody has the handle nobody\.\n$/],
    [['client', 'create', ','], /redirect_uris must name one/],
  ];
  const wrong: [string[], RegExp][] = [
    [['agent', 'fire'], /'agent fire' is not a command/],
    [['agent', 'mint', 'new', '--name', 'a\nb'], /--name takes/],
    [['invite', 'new', '--days', '31'], /--days takes a number from 1 to 30/],
    [['client', 'create', 'https://x.test/cb', '--kinds', 'cats'], /--kinds takes/],
    [['client', 'update', 'cid_x'], /say what to change/],
    [['login'], /say --issuer/],
    [['login', '--issuer', 'http://127.0.0.1', '--client', 'x', '--handle', 'x'], /say --password-stdin/],
  ];
  await Promise.all(
    failing.map(async ([args, reason]) => {
      t.match(await type(args), { code: 1, out: '', err: reason }, args.join(' '));
    }),
  );
  await Promise.all(
    wrong.map(async ([args, reason]) => {
      const { code, err } = await type(args);
      t.equal(code, 2, args.join(' '));
      t.match(err, reason);
      t.match(err, /Usage/);
    }),
  );
  const broken = { IDP_DATABASE_URI: 'sqlite:/dev/null/x', IDP_PUBLIC_URL: 'http://localhost' };
  t.match(await type(['principal', 'list'], { more: broken }), {
    code: 1,
    err: /^idp cannot use the store that IDP_DATABASE_URI names: .*\n$/,
  });
});

t.test('an agent logs in without a browser, and keeps its tokens to itself', async (t) => {
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
  t.match(await line.type(cached, { more }), { code: 1, err: /is no cache of tokens/ });

  const wrong = await line.type(['login'], { more: { ...more, IDP_LOGIN_PASSWORD: 'wrong' } });
  t.match(wrong, {
    code: 1,
    out: '',
    err: /^idp login: invalid_credentials: The handle or the password is wrong/,
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
    [{ clientId: 'cid_nobody' }, /client_id names no client/],
    [{ redirectUri: 'http://127.0.0.1/other' }, /redirect_uri is none of those/],
    [{ clientSecret: 'csec_x' }, /invalid_client/],
    [{ issuer: 'http://localhost:1' }, /http:\/\/localhost:1 cannot be reached: bad port/],
    [{ issuer: 'http://id.example.test' }, /is no https address/],
    [{ issuer: issuer.replace('localhost', '127.0.0.1') }, /calls itself otherwise/],
    [{ issuer: 'nonsense' }, /is no https address/],
  ];
  for (const [other, reason] of failing) {
    const error = await logIn({ ...request, ...other }, REAL).catch((thrown: Error) => thrown);
    t.match(error, { name: 'LoginFailed', message: reason });
    t.notOk(String(error).includes(agent.password));
  }
});

t.test(
  'idp login believes nobody: foreign answers are refused, and the password goes to nobody else',
  async (t) => {
    const asked: string[] = [];
    let answerOf: (state: string, issuer: string) => string = () => '';
    const thief = createServer((request, response) => {
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
    for (const server of [thief, provider]) {
      if (!server.listening) await once(server, 'listening');
      t.teardown(() => server.close());
    }
    const issuer = () => `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
    const elsewhere = `http://127.0.0.1:${(thief.address() as AddressInfo).port}`;
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
        /comes from another provider/,
      ],
      [(state) => `${elsewhere}/cb?code=x&state=${state}`, /comes from another provider/],
      [(state, iss) => `${elsewhere}/cb?error=access_denied&state=${state}&iss=${iss}`, /access_denied/],
      [(state, iss) => `${elsewhere}/cb?state=${state}&iss=${iss}`, /holds no code/],
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
