import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { compiled, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The documentation matches the package: variables, examples, instructions, versions. */

const ROOT = join(compiled('.'), '..');
const run = promisify(execFile);

/** The output of the commands, pasted into a shell. */
async function paste(commands: string, env: Record<string, string> = {}, cwd?: string): Promise<string> {
  const options = { env: { PATH: process.env['PATH'], ...env }, ...(cwd !== undefined && { cwd }) };
  return (await run('sh', ['-c', commands], options)).stdout;
}

t.test('every line of .env.example can be uncommented', async (t) => {
  const text = readFileSync(join(ROOT, '.env.example'), 'utf8');
  const pairs = [...text.matchAll(/^# ([A-Z][A-Z0-9_]+)=(.*)$/gm)].map(([, name = '', value = '']) => [
    name,
    value,
  ]);
  t.ok(pairs.length > 20);
  const secrets = pairs.filter(
    ([name = '', value]) => /SECRET|PASSWORD|TOKEN$|SEED|KEY(_|$)|URI/.test(name) && value !== '',
  );
  t.same(secrets, [], 'no secret has a value');
  const env = { ...Object.fromEntries(pairs), PORT: '0', IDP_PORT: '0' };
  for (const args of [['bin/saas-backend.js'], ['bin/idp.js', 'serve']] as [string, ...string[]][]) {
    const [script, ...rest] = args;
    const program = startProgram(t, compiled(script), { args: rest, cwd: temporaryFolder(t), env });
    await program.url();
    t.equal(await program.terminate(), 0);
  }
});

t.test('the instructions of /llms.txt work with the issuer that serves them', async (t) => {
  const cwd = temporaryFolder(t);
  const adminToken = 'the-token-of-the-administrator-of-this-test';
  const env = { IDP_ADMIN_TOKEN: adminToken };
  const args = ['serve', '-port', '0'];
  const url = await startProgram(t, compiled('bin/idp.js'), { cwd, args, env }).url();
  const answer = await fetch(`${url}/llms.txt`);
  t.equal(answer.headers.get('content-type'), 'text/plain; charset=utf-8');
  const guide = await answer.text();
  t.match(guide, url.replace('127.0.0.1', 'localhost'));
  const commands = [...guide.matchAll(/(?:^ {4}.*\n)+/gm)].map(([block]) => block);
  t.equal(commands.length, 4);
  const redirectUri = 'https://app.example/callback';
  const made = await fetch(`${url}/v1/clients`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${adminToken}` },
    body: JSON.stringify({ redirect_uris: redirectUri }),
  });
  const client = (await made.json()) as { client_id: string; client_secret: string };
  const [register = '', authorize = '', token = '', rotate = ''] = commands.map((command) =>
    command
      .replace('CLIENT_ID', client.client_id)
      .replace('CLIENT_SECRET', client.client_secret)
      .replace('REDIRECT_URI', redirectUri)
      .replace('HANDLE', 'you@agents.example')
      .replace('PASSWORD', 'at least eight characters, not a common one'),
  );
  t.match(JSON.parse(await paste(register)), { kind: 'agent' });
  const code = new URL(await paste(authorize)).searchParams.get('code') ?? '';
  t.match(JSON.parse(await paste(token.replace('code=CODE', `code=${code}`))), { id_token: /\./ });
  t.match(JSON.parse(await paste(rotate)), { password: /^agp_/ });

  const listed = [...guide.matchAll(/^- (\S+):\/\/[^/]+(\/[^:,]*)/gm)].map(([, , path]) => path as string);
  const routes = readFileSync(join(ROOT, 'docs/reference/routes.md'), 'utf8');
  t.ok(listed.length > 5 && listed.every((path) => routes.includes(`\`${path}\``)), 'what it lists is there');
});

t.test('docs/idp/broker.md shows the configurations that the examples run', async (t) => {
  const page = readFileSync(join(ROOT, 'docs/idp/broker.md'), 'utf8');
  for (const file of ['keycloak-broker.json', 'dex-broker.yaml']) {
    const block = `\`\`\`${file.split('.')[1]}\n${readFileSync(join(ROOT, 'examples', file), 'utf8')}\`\`\``;
    t.ok(page.includes(block), file);
  }
});

t.test('docs/idp/products.md names the versions that are tested', async (t) => {
  const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
  const [, kubernetes] = /k8s\.io\/apiserver v0\.(\S+)/.exec(
    read('test/campaign/relying-parties/kubernetes/go.mod'),
  ) as RegExpExecArray;
  t.ok(read('docs/idp/products.md').includes(`kube-apiserver 1.${kubernetes},`));
  t.ok(read('docs/idp/eddsa.md').includes(`| kube-apiserver | 1.${kubernetes} |`));
});

t.test('docs/idp/eddsa.md names the versions that are tested', async (t) => {
  const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');
  const requirements = read('test/campaign/relying-parties/python/requirements.txt');
  const versions = {
    'go-oidc': /go-oidc\/v3 v(\S+)/.exec(read('test/campaign/relying-parties/go/go.mod')),
    PyJWT: /^PyJWT==(\S+)/m.exec(requirements),
    Authlib: /^Authlib==(\S+)/m.exec(requirements),
    'python-social-auth': /^social-auth-core==(\S+)/m.exec(requirements),
    idpyoidc: /^idpyoidc==(\S+)/m.exec(requirements),
    'python-jose': /^python-jose==(\S+)/m.exec(requirements),
    'pyoidc (oic)': /^oic==(\S+)/m.exec(requirements),
    'mozilla-django-oidc': /^mozilla-django-oidc==(\S+)/m.exec(requirements),
    'Spring Boot': /-parent<\/artifactId>\s*<version>(.*)</.exec(
      read('test/campaign/relying-parties/spring/pom.xml'),
    ),
    'better-auth': /'better-auth@(.*)'/.exec(read('test/package/package.test.ts')),
    Keycloak: /VERSION = '(\S+)'/.exec(read('examples/keycloak-broker.mjs')),
  };
  const page = read('docs/idp/eddsa.md');
  for (const [name, found] of Object.entries(versions)) {
    t.ok(page.includes(`\n| ${name} | ${found?.[1]} |`), name);
  }
});
