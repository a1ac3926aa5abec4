/** Schemathesis tests both programs from their OpenAPI documents: `npm run test:schemathesis`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { PASSWORD, SECRETS } from '../../kit/app.js';
import { idpTarget } from '../../kit/fuzz/idp.js';
import { saasTarget } from '../../kit/fuzz/saas.js';
import { ADMIN_TOKEN } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

const PROGRAM = process.env['SCHEMATHESIS'] ?? 'schemathesis';
const EXAMPLES = process.env['SCHEMATHESIS_EXAMPLES'] ?? '5';
const HOOKS = fileURLToPath(new URL('../../../../test/core/http/schemathesis_hooks.py', import.meta.url));

/**
 * Not checked: JSON Schema cannot say which users, links and cursors exist, so that some requests that it permits are refused;
 * and numbers in a query, which the program takes for mistakes, are valid strings.
 */
const EXCLUDED = ['positive_data_acceptance', 'negative_data_rejection'];

const json = { 'content-type': 'application/json' };

async function postJson(url: string, body: object, headers: object = {}): Promise<Record<string, unknown>> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { ...json, ...headers },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as Record<string, unknown>;
}

type Credentials = Record<string, Record<string, string>>;

/** With the credentials that the security schemes of the document require. */
const PRODUCTS = {
  'saas-backend': {
    open: saasTarget,
    document: '/api/openapi.json',
    async credentials(url: string): Promise<Credentials> {
      const account = { email: 'ada@example.com', password: PASSWORD };
      const { data } = await postJson(`${url}/api/auth/register`, account);
      const { accessToken } = data as { accessToken: string };
      return {
        accessToken: { bearer: accessToken },
        adminPassword: { username: SECRETS.adminUsername, password: SECRETS.adminPassword },
      };
    },
  },
  idp: {
    open: idpTarget,
    document: '/openapi.json',
    async credentials(url: string): Promise<Credentials> {
      const operator = { authorization: `Bearer ${ADMIN_TOKEN}` };
      const agent = { handle: 'scout@agents.example' };
      const { password } = await postJson(`${url}/v1/agents`, agent, operator);
      return {
        adminToken: { bearer: ADMIN_TOKEN },
        inviteToken: { bearer: ADMIN_TOKEN },
        agentBasic: { username: agent.handle, password: String(password) },
      };
    },
  },
};

const toml = (credentials: Credentials): string =>
  Object.entries(credentials)
    .map(([scheme, values]) =>
      [
        `[auth.openapi.${scheme}]`,
        ...Object.entries(values).map(([name, value]) => `${name} = ${JSON.stringify(value)}`),
      ].join('\n'),
    )
    .join('\n\n');

// Thousands of requests; the runner has the time limit.
t.setTimeout(0);

for (const [product, { open, document, credentials }] of Object.entries(PRODUCTS)) {
  t.test(`Schemathesis finds nothing in ${product}`, { timeout: 0 }, async (t) => {
    const folder = temporaryFolder(t);
    const target = await open(folder);
    t.teardown(() => target.stop());
    const config = join(folder, 'schemathesis.toml');
    await writeFile(config, toml(await credentials(target.url)));
    const args = [
      ...['--config-file', config, 'run', target.url + document, '--url', target.url],
      ...['--phases', 'examples,coverage,fuzzing', '--max-examples', EXAMPLES, '--seed', '1'],
      ...['--checks', 'all', '--exclude-checks', EXCLUDED.join(',')],
      ...['--continue-on-failure', '--no-color', '--warnings', 'off'],
    ];
    const child = spawn(PROGRAM, args, {
      cwd: folder,
      env: { ...process.env, SCHEMATHESIS_HOOKS: HOOKS },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.teardown(() => child.kill());
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      output += part;
      // How far it is, in minutes without a result.
      t.comment(part.trim().slice(0, 200));
    });
    const [code] = await once(child, 'close');
    t.equal(code, 0, output.slice(-6000));
    t.same(target.undocumented ?? [], []);
  });
}
