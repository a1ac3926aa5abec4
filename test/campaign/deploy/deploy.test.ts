import { copyFileSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { SECRETS } from '../../kit/app.js';
import { serverPorts } from '../../kit/port.js';
import { compiled, startCommand, startProgram } from '../../kit/process.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { ask, type Question, run, selfSigned } from '../proxy/kit.js';
import { deployed, ROOT, startUnit, unitValues, variablesOf } from './kit.js';

/** The files of examples/deploy/, with the real programs, Caddy and mongod. test/campaign/deploy/image.ts tests the image. */

const JSON_TYPE = { 'content-type': 'application/json' };
const ADMIN_TOKEN = 'operator-Vw3kLq8ZsT1mXe6YbN0cRj4HuPd9';
const KUBERNETES = ['saas-backend', 'idp'].map((name) => deployed(`kubernetes/${name}.yaml`));

/** The units of systemd behind the Caddyfile. */
async function startMachine() {
  await run('caddy', ['version']);
  const folder = temporaryFolder(t);
  const { cert, key, pem } = await selfSigned(folder);
  const [saasPort, idpPort, https, http] = (await serverPorts(4)) as [number, number, number, number];
  const saas = await startUnit(t, 'saas-backend', {
    port: saasPort,
    secrets: {
      'jwt-access-secret': SECRETS.jwtAccessSecret,
      'jwt-refresh-secret': SECRETS.jwtRefreshSecret,
      'admin-password': SECRETS.adminPassword,
    },
  });
  const idp = await startUnit(t, 'idp', {
    port: idpPort,
    secrets: {
      'ed25519-seed': '5d9c1e8a70f3b264c6e1d8f05a9b3742e7160fca8d35b94c2e6f01a7d8c3b549',
      'admin-token': ADMIN_TOKEN,
    },
  });
  // Replaces the ports, and uses local certificates where Caddy would obtain some.
  const page = deployed('Caddyfile')
    .replace('{\n', `{\n admin off\n skip_install_trust\n http_port ${http}\n https_port ${https}\n`)
    .replaceAll(/^\{\$(APP|ID)_HOST\S+ \{/gm, `$&\n bind 127.0.0.1\n tls ${cert} ${key}`);
  writeFileSync(join(folder, 'Caddyfile'), page);
  const env = {
    HOME: folder,
    XDG_DATA_HOME: folder,
    XDG_CONFIG_HOME: folder,
    APP_UPSTREAM: `127.0.0.1:${saasPort}`,
    ID_UPSTREAM: `127.0.0.1:${idpPort}`,
  };
  const args = ['run', '--config', join(folder, 'Caddyfile'), '--adapter', 'caddyfile'];
  await startCommand(t, 'caddy', { args, cwd: folder, env }).printed(/serving initial configuration/);
  const over = (name: string) => (question: Omit<Question, 'port' | 'name'>) =>
    ask({ ...question, port: https, name, pem });
  return { saas, idp, toSaas: over('app.example'), toIdp: over('id.example') };
}

const MISSING_CADDY = {
  name: 'deployed-caddy',
  subject: 'The deployment on one machine',
  want: 'a caddy',
  remedy: 'apt-get install caddy openssl',
};

await withOrSkip(MISSING_CADDY, startMachine, ({ saas, idp, toSaas, toIdp }) => {
  const post = (path: string, body: object, headers = {}) => ({
    method: 'POST',
    path,
    headers: { ...JSON_TYPE, ...headers },
    body: JSON.stringify(body),
  });

  t.test('a user signs in at the unit of saas-backend through the Caddyfile', async (t) => {
    const account = { email: 'ada@example.com', password: 'a sentence is fine' };
    t.equal((await toSaas(post('/api/auth/register', account))).status, 201);
    const login = await toSaas({ ...post('/api/auth/login', account), from: '127.0.0.2' });
    t.equal(login.status, 200);
    t.ok(await saas.printed(/"ip":"127\.0\.0\.2"/), 'Caddy is a trusted proxy');
    const authorization = `Bearer ${JSON.parse(login.text).data.accessToken}`;
    t.equal((await toSaas({ path: '/api/auth/me', headers: { authorization } })).status, 200);
    t.equal((await toSaas({ path: '/ready' })).status, 200);
  });

  t.test('the unit of idp serves its issuer through the Caddyfile, and nobody can sign up', async (t) => {
    const { status, text } = await toIdp({ path: '/.well-known/openid-configuration' });
    t.match([status, JSON.parse(text)], [200, { issuer: 'https://id.example' }]);
    const created = (handle: string, headers = {}) => toIdp(post('/v1/agents', { handle }, headers));
    const admin = { authorization: `Bearer ${ADMIN_TOKEN}` };
    t.equal((await created('scout@agents.example', admin)).status, 201);
    const person = { handle: 'eve@example.com', password: 'a sentence is fine' };
    t.not((await toIdp(post('/v1/accounts', person))).status, 201, 'sign-up is disabled');
  });

  t.test('metrics cannot be reached through the Caddyfile', async (t) => {
    for (const path of ['/metrics', '/METRICS', '/%6detrics', '/api/metrics', '//metrics']) {
      for (const toIt of [toSaas, toIdp]) t.same([(await toIt({ path })).status, path], [404, path]);
    }
  });

  t.test('the signal of the units stops the programs within the time that they allow', async (t) => {
    for (const [unit, program] of [
      ['saas-backend', saas],
      ['idp', idp],
    ] as const) {
      t.same(unitValues(unit, 'KillSignal'), ['SIGTERM']);
      t.equal(await program.terminate(), 0);
    }
  });
});

t.test('every deployment gives the programs the time that they need to stop', async (t) => {
  const source = readFileSync(join(ROOT, 'bin/workers.ts'), 'utf8');
  const needed = Number(/^const STOP_TIMEOUT_MS = (\d+) \* SECOND;$/m.exec(source)?.[1]);
  t.ok(needed > 0);
  for (const unit of ['saas-backend', 'idp'])
    t.ok(Number.parseInt(unitValues(unit, 'TimeoutStopSec')[0] ?? '', 10) > needed);
  const program = deployed('compose/compose.yaml').split('x-mongo:')[0] as string;
  t.ok(Number(/stop_grace_period: (\d+)s/.exec(program)?.[1]) > needed);
  for (const manifest of KUBERNETES) {
    const [grace, delay] = [/terminationGracePeriodSeconds: (\d+)/, /sleep:\s+seconds: (\d+)/].map(
      (pattern) => Number(pattern.exec(manifest)?.[1]),
    ) as [number, number];
    t.ok(grace > needed + delay);
  }
});

t.test('deployments set documented options only', async (t) => {
  const example = readFileSync(join(ROOT, '.env.example'), 'utf8');
  const known = new Set([...example.matchAll(/^# ([A-Z]\w*)=/gm)].map(([, name]) => name));
  for (const name of ['NODE_ENV', 'PORT']) known.add(name);
  const programs =
    (deployed('compose/compose.yaml').split(/^ {2}app:$/m)[1] ?? '').split(/^ {2}# Initiates/m)[0] ?? '';
  const names = [
    ...[programs, ...KUBERNETES].flatMap((text) => [
      ...text.matchAll(/^ *(?:- name: )?([A-Z][A-Z0-9_]+)(?::|$)/gm),
    ]),
    ...['saas-backend', 'idp'].flatMap((unit) => [
      ...unitValues(unit, 'Environment')
        .join('\n')
        .matchAll(/^([A-Z]\w*)=/gm),
      ...deployed(`systemd/${unit}.env`).matchAll(/^([A-Z]\w*)=/gm),
    ]),
  ].map(([, name = '']) => name);
  t.ok(names.length > 35);
  t.same(
    [...new Set(names)].filter((name) => !known.has(name.replace(/_FILE$/, ''))),
    [],
  );
});

t.test('secrets.sh generates every secret of compose.yaml once', async (t) => {
  const folder = temporaryFolder(t);
  copyFileSync(join(ROOT, 'examples/deploy/compose/secrets.sh'), join(folder, 'secrets.sh'));
  const generate = async () => {
    await run('sh', [join(folder, 'secrets.sh')]);
    const names = readdirSync(join(folder, 'secrets')).sort();
    return Object.fromEntries(
      names.map((name) => [name, readFileSync(join(folder, 'secrets', name), 'utf8')]),
    );
  };
  const secrets = await generate();
  const wanted = [...deployed('compose/compose.yaml').matchAll(/^ {4}file: secrets\/([\w-]+)$/gm)];
  t.same(Object.keys(secrets), wanted.map(([, name]) => name).sort());
  t.equal(new Set(Object.values(secrets)).size, wanted.length);
  t.equal(statSync(join(folder, 'secrets')).mode & 0o777, 0o700);
  t.same(await generate(), secrets);
});

/** Three members with the arguments of compose.yaml, on loopback. */
async function startMembers() {
  const mongod = process.env['MONGOMS_SYSTEM_BINARY'];
  if (!mongod) throw new Error('MONGOMS_SYSTEM_BINARY is not set');
  const folder = temporaryFolder(t);
  copyFileSync(join(ROOT, 'examples/deploy/compose/secrets.sh'), join(folder, 'secrets.sh'));
  await run('sh', [join(folder, 'secrets.sh')]);
  const secret = (name: string) => join(folder, 'secrets', name);
  const keyFile = join(folder, 'keyfile');
  await run('install', ['-m', '0400', secret('mongo-keyfile'), keyFile]);
  const block = /command:\n((?: {4}[-#].*\n)+)/.exec(
    deployed('compose/compose.yaml').split('x-mongo:')[1] ?? '',
  );
  const args = [...(block?.[1] ?? '').matchAll(/^ {4}- (.*)$/gm)].map(([, argument = '']) =>
    argument.replace('--bind_ip_all', '--bind_ip=127.0.0.1').replace('/dev/shm/keyfile', keyFile),
  );
  const ports = await serverPorts(3);
  const members = ports.map((port) => {
    const dbPath = temporaryFolder(t);
    return startCommand(t, mongod, { args: [...args, `--port=${port}`, `--dbpath=${dbPath}`] });
  });
  for (const [index, name] of [
    'saas-database-uri',
    'saas-database-uri-of-attacker',
    'idp-database-uri',
  ].entries()) {
    const uri = readFileSync(secret(index === 1 ? 'saas-database-uri' : name), 'utf8').replaceAll(
      /mongo-(\d):27017/g,
      (_, member) => `127.0.0.1:${ports[member - 1]}`,
    );
    writeFileSync(join(folder, name), index === 1 ? uri.replace(/saas:\w+@/, 'saas:wrong@') : uri);
  }
  return { ports, members, secret, at: (name: string) => join(folder, name) };
}

const MISSING_MONGOD = {
  name: 'deployed-mongodb',
  subject: 'The replica set of compose.yaml',
  want: 'a mongod',
  remedy: 'Set MONGOMS_SYSTEM_BINARY to a mongod (test/core/storage/README.md).',
};

await withOrSkip(MISSING_MONGOD, startMembers, ({ ports, secret, at }) => {
  t.test('the replica set of compose.yaml initiates itself and lets only its users in', async (t) => {
    const initiate = async () => {
      const program = startProgram(t, join(ROOT, 'examples/deploy/compose/replica-set.mjs'), {
        env: {
          LOCAL_URI: `mongodb://127.0.0.1:${ports[0]}`,
          ADMIN_PASSWORD_FILE: secret('mongo-admin-password'),
          URI_FILES: `${at('saas-database-uri')},${at('idp-database-uri')}`,
        },
      });
      t.equal(await program.ended(), 0, program.lines.join('\n'));
      return program.lines;
    };
    const users = ['saas', 'idp'].map((name) => `the user ${name} may read and write the database ${name}`);
    t.same(await initiate(), ['initiated rs0 with 3 members', 'created the user admin', ...users]);
    t.same(await initiate(), users, 'can be repeated');

    const doctor = async (name: string) => {
      const program = startProgram(t, compiled('bin/saas-backend.js'), {
        args: ['doctor'],
        cwd: temporaryFolder(t),
        env: { DATABASE_URI_FILE: at(name), PORT: '0' },
      });
      await program.ended();
      return program.lines.find((line) => line.includes('DATABASE_URI')) ?? '';
    };
    t.match(await doctor('saas-database-uri'), /^ok /);
    t.notMatch(await doctor('saas-database-uri-of-attacker'), /^ok /);
  });
});

t.test('the environment files of systemd contain no secret', async (t) => {
  const names = ['saas-backend', 'idp'].flatMap((unit) =>
    Object.keys(variablesOf(deployed(`systemd/${unit}.env`))),
  );
  t.same(
    names.filter((name) => /SECRET|TOKEN|PASSWORD|SEED|KEY/.test(name)),
    [],
  );
});
