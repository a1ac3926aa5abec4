import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { serverPorts } from '../../kit/port.js';
import { startCommand } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import {
  ask,
  type Backend,
  PRODUCTS,
  type Question,
  type Reply,
  run,
  selfSigned,
  snippet,
  startBackend,
  underLoad,
} from './kit.js';

/** Both programs behind nginx: whose address counts when the proxy is listed, not listed, or listed wrongly. */

const MISSING_NGINX = {
  name: 'nginx',
  subject: 'What nginx does in front of the programs',
  want: 'an nginx',
  remedy: 'apt-get install nginx openssl',
};

/** The configuration of the documentation, and further servers for the tests. */
async function startNginx() {
  await run('nginx', ['-v']);
  const folder = temporaryFolder(t);
  const { cert, key, pem } = await selfSigned(folder);
  const data = temporaryFolder(t);
  const [saas, idp, saasUnlisted, idpUnlisted, saasWrong, idpHalf] = await Promise.all([
    // At `::` an IPv4 proxy arrives as ::ffff:127.0.0.1.
    startBackend(t, 'saas', { host: '::', trust: '127.0.0.1, 127.0.0.3/32, ::1', folder: data }),
    startBackend(t, 'idp', { host: '::', trust: '127.0.0.1,127.0.0.3' }),
    startBackend(t, 'saas'),
    startBackend(t, 'idp'),
    startBackend(t, 'saas', { trust: '10.0.0.0/8' }),
    startBackend(t, 'idp', { trust: '127.0.0.1' }),
  ]);
  // On the same database, for the time in which the first one restarts.
  const second = await startBackend(t, 'saas', { trust: '127.0.0.1', folder: data });
  const [https, http, unlistedSaas, unlistedIdp, wrong, outer, inner, halfOuter, halfInner, six] =
    await serverPorts(10);
  const page = snippet('nginx')
    .replace(/listen (\[::\]:)?443/g, (_, six) => `listen ${six ? '[::1]' : '127.0.0.1'}:${https}`)
    .replace(/listen (\[::\]:)?80/g, (_, six) => `listen ${six ? '[::1]' : '127.0.0.1'}:${http}`)
    .replace('127.0.0.1:3000', `127.0.0.1:${saas.port}`)
    .replace('127.0.0.1:3001', `127.0.0.1:${second.port}`)
    .replace('127.0.0.1:8080', `127.0.0.1:${idp.port}`)
    .replace(/.*127\.0\.0\.1:8081.*\n/, '')
    .replace(/\S+fullchain\.pem/, cert)
    .replace(/\S+key\.pem/, key);
  const appended = 'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_http_version 1.1;';
  const server = (port: unknown, to: unknown, more = '') =>
    `server { listen 127.0.0.1:${port}; location / { proxy_pass http://${to}; ${more} } }`;
  const further = [
    server(unlistedSaas, `127.0.0.1:${saasUnlisted.port}`),
    server(unlistedIdp, `127.0.0.1:${idpUnlisted.port}`),
    server(wrong, `127.0.0.1:${saasWrong.port}`),
    // Two proxies in a row; the outer one connects from 127.0.0.3.
    server(outer, `127.0.0.1:${inner}`, 'proxy_bind 127.0.0.3;'),
    server(inner, `127.0.0.1:${saas.port}`, appended),
    server(halfOuter, `127.0.0.1:${halfInner}`, 'proxy_bind 127.0.0.3;'),
    server(halfInner, `127.0.0.1:${idpHalf.port}`, appended),
    // A proxy that forwards headers chosen by the test.
    server(six, `[::1]:${saas.port}`, 'proxy_set_header X-Forwarded-For $http_x_test;'),
  ].join('\n');
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((name) => `${name}_temp_path ${folder}/${name};`)
    .join(' ');
  writeFileSync(join(folder, 'app.conf'), page);
  writeFileSync(
    join(folder, 'nginx.conf'),
    // A single process, so that none outlives the test.
    `daemon off; master_process off; pid ${folder}/pid; error_log stderr notice;
     events { worker_connections 512; }
     http { access_log off; ${paths} include ${folder}/app.conf; ${further} }`,
  );
  const args = ['-p', folder, '-c', join(folder, 'nginx.conf')];
  await run('nginx', [...args, '-t', '-g', 'error_log stderr;']);
  await startCommand(t, 'nginx', { args }).printed(/event method/);
  const overHttps = (name: string) => (question: Omit<Question, 'port' | 'name'>) =>
    ask({ ...question, port: https as number, name, pem });
  const over = (port: unknown) => (question: Omit<Question, 'port'>) =>
    ask({ ...question, port: port as number });
  return {
    saas,
    second,
    idp,
    saasUnlisted,
    idpUnlisted,
    saasWrong,
    idpHalf,
    pem,
    https: https as number,
    http: http as number,
    toSaas: overHttps('app.example'),
    toIdp: overHttps('id.example'),
    toUnlisted: over(unlistedSaas),
    toIdpUnlisted: over(unlistedIdp),
    toWrong: over(wrong),
    throughTwo: over(outer),
    throughTwoHalf: over(halfOuter),
    saying: (forwarded: string, question: Omit<Question, 'port'>) =>
      ask({ ...question, port: six as number, headers: { ...question.headers, 'x-test': forwarded } }),
  };
}

type Ask = (question: Omit<Question, 'port' | 'name'>) => Promise<Reply>;

/** Ten wrong guesses by one client, then one more by it and one by another client. */
async function flood(ask: Ask, { wrongGuess }: Pick<Backend, 'wrongGuess'>): Promise<[number, number]> {
  for (let guess = 0; guess < 10; guess++) await ask({ ...wrongGuess, from: '127.0.0.2' });
  const [more, other] = [
    await ask({ ...wrongGuess, from: '127.0.0.2' }),
    await ask({ ...wrongGuess, from: '127.0.0.4' }),
  ];
  return [more.status, other.status];
}

await withOrSkip(MISSING_NGINX, startNginx, (world) => {
  t.test(
    "behind a listed proxy, limits and audit use the client's address, whatever headers it sends",
    async (t) => {
      for (const [backend, toIt] of [
        [world.saas, world.toSaas],
        [world.idp, world.toIdp],
      ] as const) {
        t.same(await flood(toIt, backend), [429, 401]);
        await toIt({
          ...backend.wrongGuess,
          from: '127.0.0.6',
          headers: { ...backend.wrongGuess.headers, 'x-forwarded-for': '6.6.6.6, 127.0.0.1' },
        });
        const audited = await backend.audited();
        t.same([...new Set(audited)], ['127.0.0.2', '127.0.0.4', '127.0.0.6']);
        await t.resolves(backend.program.printed(/"ip":"127\.0\.0\.6"/), 'the log says the same');
        t.same(backend.complaints(), []);
      }
      t.same(await world.saas.diagnosis(), []);
    },
  );

  t.test('several listed proxies in a row are all skipped', async (t) => {
    await world.throughTwo({ ...world.saas.wrongGuess, from: '127.0.0.8' });
    t.equal((await world.saas.audited()).pop(), '127.0.0.8');
    await world.saas.program.printed(/"ip":"127\.0\.0\.8"/);
    t.same(world.saas.complaints(), []);
  });

  t.test('IPv6 addresses and addresses with a port are understood', async (t) => {
    const { wrongGuess, audited } = world.saas;
    for (const [said, ip] of [
      ['2001:db8:1:2::7', '2001:db8:1:2::7'],
      ['[2001:db8:1:2::7]:51234', '2001:db8:1:2::7'],
      ['203.0.113.7:51234', '203.0.113.7'],
      ['::ffff:203.0.113.8', '203.0.113.8'],
      ['6.6.6.6, nonsense', 'unknown'],
    ] as const) {
      await world.saying(said, wrongGuess);
      t.equal((await audited()).pop(), ip, said);
    }
    for (let host = 0; host < 10; host++) await world.saying(`2001:db8:1:2::${host + 16}`, wrongGuess);
    t.equal((await world.saying('2001:db8:1:2::ffff', wrongGuess)).status, 429, 'one /64, one limit');
    t.equal((await world.saying('2001:db8:1:3::1', wrongGuess)).status, 401);
  });

  t.test(
    'an unlisted proxy shares one limit for all clients and logs one error with the setting',
    async (t) => {
      t.match(
        (await world.saasUnlisted.diagnosis())[0],
        { message: /^is not set/ },
        'before the first request',
      );
      for (const [backend, toIt, line] of [
        [world.saasUnlisted, world.toUnlisted, 'TRUST_PROXY=127.0.0.1'],
        [world.idpUnlisted, world.toIdpUnlisted, 'IDP_TRUST_PROXY=127.0.0.1'],
      ] as const) {
        t.same(await flood(toIt, backend), [429, 429]);
        t.same([...new Set(await backend.audited())], ['127.0.0.1']);
        // A log line about the last request: all earlier lines precede it.
        await backend.program.printed(/"statusCode":429/);
        const complaints = backend.complaints();
        t.equal(complaints.length, 1);
        t.match(complaints[0], `set ${line} and restart`);
        t.match(JSON.parse(complaints[0] ?? ''), { level: 50, proxy: '127.0.0.1' });
        const [, told] = await backend.diagnosis();
        t.match(told, { level: 'warning', message: /^does not list 127\.0\.0\.1,/ });
        t.match(told?.remedy, `set ${line} and restart`);
        t.notMatch((await toIt({})).text, 'unlisted', 'the answer does not reveal it');
      }
    },
  );

  t.test('a list that lacks one of the proxies counts its address', async (t) => {
    await world.toWrong({ ...world.saasWrong.wrongGuess, from: '127.0.0.2' });
    t.equal((await world.saasWrong.audited()).pop(), '127.0.0.1');
    await world.saasWrong.program.printed(/request completed/);
    t.match(world.saasWrong.complaints(), [/set TRUST_PROXY=10\.0\.0\.0\/8,127\.0\.0\.1 and/]);
    t.match(await world.saasWrong.diagnosis(), [
      { remedy: /set TRUST_PROXY=10\.0\.0\.0\/8,127\.0\.0\.1 and/ },
    ]);

    await world.throughTwoHalf({ ...world.idpHalf.wrongGuess, from: '127.0.0.2' });
    t.equal((await world.idpHalf.audited()).pop(), '127.0.0.3');
    await world.idpHalf.program.printed(/request completed/);
    t.match(world.idpHalf.complaints(), [/set IDP_TRUST_PROXY=127\.0\.0\.1,127\.0\.0\.3 and/]);
  });

  t.test('a client that bypasses the proxy counts by its own address', async (t) => {
    for (const { port, wrongGuess, audited } of [world.saas, world.idp, world.saasUnlisted]) {
      for (const forwarded of ['6.6.6.6', '6.6.6.6, 127.0.0.1', '127.0.0.1', '::1', 'a']) {
        const headers = { ...wrongGuess.headers, 'x-forwarded-for': forwarded, 'x-real-ip': '6.6.6.6' };
        await ask({ ...wrongGuess, port, from: '127.0.0.9', headers });
        t.equal((await audited()).pop(), '127.0.0.9', forwarded);
      }
    }
  });

  t.test('addresses in links never come from headers, not even from those of a proxy', async (t) => {
    const spoofs: Record<string, string>[] = [
      { 'x-forwarded-host': 'evil.test', 'x-forwarded-proto': 'http', 'x-forwarded-port': '1' },
      {
        'x-forwarded-prefix': '/evil',
        forwarded: 'host=evil.test;proto=http',
        'x-original-host': 'evil.test',
      },
    ];
    const path = '/.well-known/openid-configuration';
    const email = 'ada@example.com';
    const credentials = JSON.stringify({ email, password: 'correct horse battery staple' });
    const json = { 'content-type': 'application/json' };
    const register = { method: 'POST', path: '/api/auth/register', body: credentials, headers: json };
    t.equal((await world.toSaas(register)).status, 201);
    const plain = (await world.toIdp({ path })).text;
    t.match(JSON.parse(plain), {
      issuer: 'https://id.example',
      token_endpoint: 'https://id.example/token',
    });
    for (const headers of spoofs) {
      t.equal((await world.toIdp({ path, headers })).text, plain);
      // Bypasses the proxy, from the trusted address itself.
      const { text } = await ask({
        port: world.idp.port,
        path,
        headers: { ...headers, host: 'evil.test' },
      });
      t.equal(text, plain);
      const login = { ...register, path: '/api/auth/login', headers: { ...json, ...headers } };
      const { accessToken } = JSON.parse((await world.toSaas(login)).text).data;
      const claims = Buffer.from(accessToken.split('.')[1], 'base64url').toString();
      t.equal(JSON.parse(claims).iss, 'https://app.example');
    }
  });

  t.test('no request is lost when two processes restart one after another', async (t) => {
    const { saas, second, toSaas } = world;
    const { sent, lost } = await underLoad(toSaas, async () => {
      await saas.restart();
      await second.restart();
    });
    t.same(lost, [], `of ${sent}`);
  });

  t.test('the documented configuration sets https, HSTS and limits', async (t) => {
    const { toSaas, toIdp, http, https, pem } = world;
    const strict = ({ rawHeaders }: Reply) =>
      rawHeaders.filter((name) => name.toLowerCase() === 'strict-transport-security').length;
    const alive = await toSaas({});
    t.match(JSON.parse(alive.text), { success: true, data: { status: 'ok' } });
    t.equal(alive.headers['strict-transport-security'], 'max-age=31536000');
    t.equal(strict(alive), 1);
    t.equal(alive.headers.server, 'nginx');
    for (const name of ['app.example', 'id.example']) {
      const { status, headers } = await ask({ port: http, path: '/a?b=c', headers: { host: name } });
      t.same([status, headers.location], [308, `https://${name}/a?b=c`]);
    }
    await t.rejects(ask({ port: http, headers: { host: 'evil.test' } }), 'another name, over http');
    await t.rejects(ask({ port: https, name: 'evil.test', pem }), 'another name, over https');

    const large = await toSaas({ headers: { 'x-large': 'x'.repeat(20_000) } });
    t.equal(large.status, 400);
    t.equal(strict(large), 1, "nginx's own answers, too");
    const many = Object.fromEntries(Array.from({ length: 5 }, (_, i) => [`x-${i}`, 'x'.repeat(4000)]));
    t.equal((await toSaas({ headers: many })).status, 431, 'the program has the last word');
    t.equal(
      (await toIdp({ path: `/authorize?state=${'x'.repeat(8192 - 17)}` })).status,
      400,
      '8 KiB of address',
    );
    t.equal((await toIdp({ path: `/${'x'.repeat(9300)}` })).status, 414);

    const webhook = (size: number): Omit<Question, 'port'> => ({
      method: 'POST',
      path: '/api/billing/webhook',
      headers: { 'content-type': 'application/json' },
      body: `"${'x'.repeat(size - 2)}"`,
    });
    const most = await toSaas(webhook(512 * 1024));
    t.match(most.text, 'BILLING_NOT_CONFIGURED', 'the largest webhook arrives');
    const more = await toSaas(webhook(512 * 1024 + 1));
    t.equal(more.status, 413);
    t.match(more.text, 'nginx');
    const form = { ...PRODUCTS.idp.wrongGuess, body: 'x'.repeat(64 * 1024 + 1) };
    t.match((await toIdp(form)).text, /413[\s\S]*nginx/);
  });
});

/** Both programs behind Caddy, with the documented configuration. */

const MISSING_CADDY = {
  name: 'caddy',
  subject: 'What Caddy does in front of the programs',
  want: 'a caddy',
  remedy: 'apt-get install caddy openssl',
};

async function startCaddy() {
  await run('caddy', ['version']);
  const folder = temporaryFolder(t);
  const { cert, key, pem } = await selfSigned(folder);
  const [saas, idp] = await Promise.all([
    startBackend(t, 'saas', { trust: '127.0.0.1' }),
    startBackend(t, 'idp', { trust: '127.0.0.1' }),
  ]);
  const [https, http] = await serverPorts(2);
  // Replaces the ports, and uses local certificates where Caddy would obtain some.
  const page = snippet('caddy')
    .replace('{\n', `{\n admin off\n skip_install_trust\n http_port ${http}\n https_port ${https}\n`)
    .replaceAll(/^(app|id)\.example \{/gm, `$&\n bind 127.0.0.1\n tls ${cert} ${key}`)
    .replace('127.0.0.1:3000', `127.0.0.1:${saas.port}`)
    .replace('127.0.0.1:8080', `127.0.0.1:${idp.port}`);
  const file = join(folder, 'Caddyfile');
  writeFileSync(file, page);
  const env = { HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  const args = ['run', '--config', file, '--adapter', 'caddyfile'];
  await startCommand(t, 'caddy', { args, cwd: folder, env }).printed(/serving initial configuration/);
  const over = (name: string) => (question: Omit<Question, 'port' | 'name'>) =>
    ask({ ...question, port: https as number, name, pem });
  return { saas, idp, http: http as number, toSaas: over('app.example'), toIdp: over('id.example') };
}

await withOrSkip(MISSING_CADDY, startCaddy, (world) => {
  t.test("limits and audit use the client's address, whatever headers it sends", async (t) => {
    for (const [{ wrongGuess, audited, program, complaints }, toIt] of [
      [world.saas, world.toSaas],
      [world.idp, world.toIdp],
    ] as const) {
      const headers = { ...wrongGuess.headers, 'x-forwarded-for': '6.6.6.6, 127.0.0.1' };
      for (let guess = 0; guess < 10; guess++) await toIt({ ...wrongGuess, from: '127.0.0.2', headers });
      t.equal((await toIt({ ...wrongGuess, from: '127.0.0.2', headers })).status, 429);
      t.equal((await toIt({ ...wrongGuess, from: '127.0.0.4', headers })).status, 401);
      t.same([...new Set(await audited())], ['127.0.0.2', '127.0.0.4']);
      await program.printed(/"ip":"127\.0\.0\.4"/);
      t.same(complaints(), []);
    }
  });

  t.test('no request is lost when the program restarts', async (t) => {
    const { saas, toSaas } = world;
    const { sent, lost } = await underLoad(toSaas, () => saas.restart());
    t.same(lost, [], `of ${sent}`);
  });

  t.test('the documented configuration sets https, HSTS and limits', async (t) => {
    const { toSaas, toIdp, http } = world;
    const strict = (rawHeaders: string[]) =>
      rawHeaders.filter((name) => name.toLowerCase() === 'strict-transport-security').length;
    for (const toIt of [toSaas, toIdp]) {
      const { status, rawHeaders, headers } = await toIt({});
      t.same([status, strict(rawHeaders)], [200, 1]);
      t.equal(headers['strict-transport-security'], 'max-age=31536000');
    }
    const { status, headers } = await ask({ port: http, path: '/a?b=c', headers: { host: 'app.example' } });
    t.equal(status, 308);
    t.match(headers.location, /^https:\/\/app\.example(:\d+)?\/a\?b=c$/);
    t.equal((await toSaas({ headers: { 'x-large': 'x'.repeat(40_000) } })).status, 431);
    t.equal(
      (await toIdp({ path: `/authorize?state=${'x'.repeat(8192 - 17)}` })).status,
      400,
      '8 KiB of address',
    );

    const webhook = (size: number): Omit<Question, 'port'> => ({
      method: 'POST',
      path: '/api/billing/webhook',
      headers: { 'content-type': 'application/json' },
      body: `"${'x'.repeat(size - 2)}"`,
    });
    t.match(
      (await toSaas(webhook(512 * 1024))).text,
      'BILLING_NOT_CONFIGURED',
      'the largest webhook arrives',
    );
    const more = await toSaas(webhook(512 * 1024 + 1));
    t.equal(more.status, 413);
    t.match(more.text, 'PAYLOAD_TOO_LARGE', "the program's own answer");
    const far = await toSaas(webhook(2 * 1024 * 1024));
    t.ok(
      [413, 502].includes(far.status),
      'depends on which limit applies first: Caddy before 2.7 answers 502',
    );
  });
});
