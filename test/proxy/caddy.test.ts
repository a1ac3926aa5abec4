import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { startCommand } from '../kit/process.js';
import { withOrSkip } from '../kit/skip.js';
import { temporaryFolder } from '../kit/tmp.js';
import { ask, freePorts, type Question, run, selfSigned, snippet, startBackend } from './kit.js';

/** Both programs behind Caddy, with the configuration that the documentation shows. */

const MISSING = {
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
  const [https, http] = await freePorts(2);
  // Ports, and certificates of our own, where Caddy would fetch some.
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

await withOrSkip(MISSING, startCaddy, (world) => {
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
    t.ok([413, 502].includes(far.status), 'whoever is first: Caddy before 2.7 calls it 502');
  });
});
