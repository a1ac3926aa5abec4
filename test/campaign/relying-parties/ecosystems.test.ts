/** Applications in other languages, with their own libraries: Go and Python. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import type { RegisteredClient } from '../../kit/idp.js';
import { compiled, startProgram } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { type Provider, startProvider, type Visitor, withBasic, withForm } from './kit.js';

const SOURCES = join(compiled('.'), '../test/campaign/relying-parties');
const run = promisify(execFile);

/** A program that prints where to sign in, reads the resulting address, and prints the identity it received. */
interface Party {
  command: string;
  args: string[];
}

/** Its output at the end, or the reason of a refusal. */
interface Outcome {
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  known: any;
  refusal: string;
}

async function signIn(
  t: Test,
  { command, args }: Party,
  { issuer, client }: Provider & { client: RegisteredClient },
  visit: Visitor,
): Promise<Outcome> {
  const child = spawn(command, args, {
    env: {
      PATH: process.env['PATH'],
      ISSUER: issuer,
      CLIENT_ID: client.id,
      CLIENT_SECRET: client.secret,
      REDIRECT_URI: client.redirectUri,
    },
  });
  const closed = once(child, 'close');
  t.teardown(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const lines: string[] = [];
  const printed = createInterface(child.stdout).on('line', (line) => lines.push(line));
  const refusal = text(child.stderr);
  await Promise.race([once(printed, 'line'), closed]);
  const [url] = lines;
  if (url === undefined) throw new Error(await refusal);
  child.stdin.end(`${await visit(url)}\n`);
  const [code] = await closed;
  return { known: code === 0 ? JSON.parse(lines[1] ?? '') : null, refusal: await refusal };
}

async function signsIn(t: Test, party: Party, signatureError: RegExp): Promise<void> {
  const provider = await startProvider(t);
  const { idp, issuer, human, agent, middle } = provider;
  const here = { ...provider, client: await idp.createClient() };
  const people = [
    { who: agent, name: 'Scout', kind: 'agent', visit: withBasic(agent) },
    { who: human, name: 'Ada', kind: 'human', visit: withForm(issuer, human) },
  ];
  for (const { who, name, kind, visit } of people) {
    const { known, refusal } = await signIn(t, party, here, visit);
    if (known === null) t.comment(refusal);
    const profile = { sub: who.sub, email: who.handle, name };
    t.match(known, { id_token: { ...profile, iss: issuer, kind }, userinfo: profile }, kind);
  }
  middle.swapsKey = true;
  const { known, refusal } = await signIn(t, party, here, withBasic(agent));
  t.equal(known, null);
  t.match(refusal, signatureError, 'a foreign key under our kid');
}

// Both start first and together: tap ends once the tests registered so far have run.
const [go, python] = [buildGo(), findPython()];
await Promise.allSettled([go, python]);

const inGo = {
  name: 'go',
  subject: 'An application in Go',
  want: 'a Go with its modules',
  remedy: 'Install Go 1.21 or newer, which fetches what it needs.',
};
await withOrSkip(
  inGo,
  () => go,
  (binary) => {
    t.test('go-oidc signs people and agents in', (t) =>
      signsIn(t, { command: binary, args: [] }, /^failed to verify signature: .*id token signature/m),
    );
  },
);

const inPython = {
  name: 'python',
  subject: 'An application in Python',
  want: 'a Python with its packages',
  remedy:
    'Install test/campaign/relying-parties/python/requirements.txt in a virtual environment, and set TEST_PYTHON to its python.',
};
await withOrSkip(
  inPython,
  () => python,
  (command) => {
    const script = (name: string): Party => ({ command, args: [join(SOURCES, 'python', name)] });
    t.test('Authlib signs people and agents in', (t) =>
      signsIn(t, script('authlib_app.py'), /^joserfc\.errors\.BadSignatureError: bad_signature/m),
    );
    t.test('PyJWT signs people and agents in', (t) =>
      signsIn(
        t,
        script('pyjwt_app.py'),
        /^jwt\.exceptions\.InvalidSignatureError: Signature verification failed/m,
      ),
    );
  },
);

async function buildGo(): Promise<string> {
  const binary = join(temporaryFolder(t), 'go-oidc');
  await run('go', ['build', '-o', binary, '.'], { cwd: join(SOURCES, 'go') });
  return binary;
}

async function findPython(): Promise<string> {
  const command = process.env['TEST_PYTHON'] ?? 'python3';
  await run(command, ['-c', 'import authlib, flask, jwt, requests']);
  return command;
}

/** Dex between the provider and an application: the shipped example, and the claims of docs/idp/broker.md. */
const ROOT = join(compiled('.'), '..');
const EXAMPLE = join(ROOT, 'examples/dex-broker.mjs');

const missing = {
  name: 'dex',
  subject: 'Dex as a broker',
  want: 'a Dex',
  remedy: 'Make one with test/campaign/relying-parties/dex.sh <file>, and set TEST_DEX to that file.',
};

await withOrSkip(missing, findDex, (dex) => {
  t.test('people and agents sign in through Dex, which refuses a foreign key', async (t) => {
    const { stdout } = await run(process.execPath, [EXAMPLE, '--dex', dex]);
    for (const kind of ['human', 'agent']) {
      t.match(stdout, new RegExp(`^${kind} signed in: .*"kind":"${kind}"`, 'm'));
      t.match(stdout, new RegExp(`^${kind} rejected with a foreign key: failed to verify id token`, 'm'));
    }
  });

  t.test('an agent signs in through a broker with the commands of docs/idp/broker.md', async (t) => {
    const example = startProgram(t, EXAMPLE, { args: ['--dex', dex, '--stay'] });
    const [, url = ''] = await example.printed(/^sign in at (.+)/);
    const [, password = ''] = await example.printed(/^agent: scout@agents\.example (.+)/);
    const page = readFileSync(join(ROOT, 'docs/idp/broker.md'), 'utf8');
    const commands = page.split('## An agent at a broker\n')[1]?.match(/```sh\n([\s\S]*?)```/)?.[1] ?? '';
    t.match(commands, 'curl');
    // No server listens at the application's address, so the last command fails once it gets there.
    const script = `cd "$(mktemp -d)"\n${commands}\nrm -r "$PWD"\necho "$arrived"`;
    const env = { PATH: process.env['PATH'], url, password };
    const { stdout } = await run('sh', ['-c', script], { env });
    t.match(stdout, /^http:\/\/127\.0\.0\.1\/callback\?code=/);
    t.equal(await example.terminate(), 0);
  });
});

async function findDex(): Promise<string> {
  const dex = process.env['TEST_DEX'] ?? 'dex';
  await run(dex, ['version']);
  return dex;
}
