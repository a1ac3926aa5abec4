import { execFile } from 'node:child_process';
import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { serverPorts } from '../../kit/port.js';
import { childrenOf, sendSignal, startCommand } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { PRODUCTS } from '../proxy/kit.js';
import { deployed, ROOT } from './kit.js';

/**
 * Performs the steps of examples/deploy/Dockerfile in a folder, and runs both programs like its image: `npm run test:image`. It needs
 * no container engine; isolated programs need root on Linux.
 */

const run = promisify(execFile);
const PATH = `${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`;

const page = deployed('Dockerfile')
  .replaceAll(/^\s*#.*\n/gm, '')
  .replaceAll(/\\\n\s*/g, '');
const context = [...deployed('Dockerfile.dockerignore').matchAll(/^!(.+)$/gm)].map(([, path = '']) => path);
const setting = (keyword: string) => new RegExp(`^ *${keyword} (.*)$`, 'm').exec(page)?.[1] as string;

const folder = temporaryFolder(t);
chmodSync(folder, 0o755);
const image = join(folder, 'image');
mkdirSync(join(image, 'usr/local/bin'), { recursive: true });

/** Each stage is a folder. */
let [stage, cwd] = [image, image];
for (const [, keyword, text = ''] of page.matchAll(/^(FROM|WORKDIR|COPY|RUN) (.*)$/gm)) {
  const here = text.replaceAll(/(?<=^|\s)\//g, `${stage}/`);
  if (keyword === 'FROM') {
    stage = join(folder, / AS (\w+)$/.exec(text)?.[1] ?? 'image');
    cwd = stage;
  } else if (keyword === 'WORKDIR') {
    cwd = here;
    mkdirSync(cwd, { recursive: true });
  } else if (keyword === 'RUN') {
    // Tests that print nothing for minutes are stopped.
    process.stdout.write(`# ${text}\n`);
    const env = { PATH, HOME: process.env['HOME'] };
    await run('sh', ['-c', here], { cwd, env, maxBuffer: 2 ** 26 });
  } else {
    const [, from, named = '', to = ''] = /^(?:--from=(\w+) )?(?:--chown=\S+ )?(.*) (\S+)$/.exec(text) ?? [];
    const target = join(to.startsWith('/') ? stage : cwd, to);
    for (const path of named === '.' ? context : named.split(' ')) {
      const source = from ? join(folder, from, path) : join(ROOT, path);
      cpSync(source, from ? target : join(target, path), { recursive: true, verbatimSymlinks: true });
    }
  }
}

t.test('the image contains the package and its dependencies only, and no secret', async (t) => {
  t.match(deployed('Dockerfile.dockerignore'), /^(?:#.*\n)*\*\*\n(?:!.*\n)+$/, 'a list of what is included');
  t.same(readdirSync(image).sort(), ['app', 'data', 'usr']);
  t.same(readdirSync(join(image, 'usr/local/bin')).sort(), ['idp', 'saas-backend']);
  const top = readdirSync(join(image, 'app')).sort();
  t.same(top, ['LICENSE', 'dist', 'docs', 'node_modules', 'package.json', 'src', 'templates']);
  const packages = readdirSync(join(image, 'app/node_modules'));
  t.notOk(packages.includes('typescript'), 'without tools of the build');
  t.same(readdirSync(join(image, 'data')), []);
  t.match(setting('ENV'), /^NODE_ENV=production PORT=\d+$/);
});

/** $0 image, $1 and $2 the user and the group; then the command, which becomes process 1. */
const CONTAINER = `
set -e
mount --bind "$0" "$0"
mount -t tmpfs -o "uid=$1,gid=$2,mode=0700" tmpfs "$0/data"
mount -o remount,bind,ro "$0"
mount -o remount,bind,ro /
for path in "$0/app" /; do
  if touch "$path/written" 2>/dev/null; then echo "$path is not read-only"; exit 1; fi
done
user="--reuid $1 --regid $2 --clear-groups --no-new-privs --bounding-set=-all"
shift 2
exec setpriv $user env -C "$0/data" "$@"`;

/** Why programs cannot be isolated on this machine, if so: a container may forbid mounts. */
const obstacle = await run('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', join(image, 'data')]).then(
  () => false,
  (error: Error) => error.message,
);

const DATABASES = {
  saas: { DATABASE_URI: 'sqlite:app.db' },
  idp: { IDP_DATABASE_URI: 'sqlite:idp.db' },
};
const COMMANDS = { saas: JSON.parse(setting('CMD')) as string[], idp: ['idp', 'serve'] };
const [healthFile = '', ...healthArgs] = JSON.parse(setting('HEALTHCHECK .* CMD')) as string[];

for (const product of ['saas', 'idp'] as const) {
  for (const user of [setting('USER'), '10001:10001']) {
    t.test(
      `${product} runs as process 1 of user ${user} on a read-only root`,
      { skip: obstacle },
      async (t) => {
        const [port] = await serverPorts(1);
        const { HOST, IDP_HOST, IDP_PORT, ...secrets } = PRODUCTS[product].environment('', '') as Record<
          string,
          string
        >;
        const env = {
          ...{ NODE_ENV: 'production', PATH: `${image}/usr/local/bin:${PATH}` },
          ...{ ...secrets, ...DATABASES[product], PORT: String(port) },
        };
        const namespaces = '--mount --propagation=private --pid --fork --kill-child sh -c'.split(' ');
        const args = [...namespaces, CONTAINER, image, ...user.split(':'), ...COMMANDS[product]];
        const program = startCommand(t, 'unshare', { args, env });
        await program.printed(/Server listening at/);
        const isHealthy = () =>
          run(healthFile, healthArgs, { env }).then(
            () => true,
            () => false,
          );
        t.ok(await isHealthy());
        const [pid] = childrenOf(program.pid);
        t.match(
          readFileSync(`/proc/${pid}/status`, 'utf8'),
          new RegExp(`^Uid:\t${user.split(':')[0]}\\b`, 'm'),
        );
        sendSignal(pid as number, 'SIGTERM');
        t.equal(await program.ended(), 0);
        t.notOk(await isHealthy());
      },
    );
  }
}

t.test('the program itself is process 1, of a user without rights', async (t) => {
  t.equal(setting('ENTRYPOINT'), '[]', 'not the entry point of the base image');
  t.match(setting('USER'), /^[1-9]\d*:[1-9]\d*$/);
});
