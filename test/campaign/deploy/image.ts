import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { serverPorts } from '../../kit/port.js';
import { compiled, startCommand } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { PRODUCTS } from '../proxy/kit.js';
import { build, obstacle } from './build.js';

/** Builds the image of deploy/Dockerfile and runs both programs in it: `npm run test:image`. */

const ROOT = join(compiled('.'), '..');
const run = promisify(execFile);

const folder = temporaryFolder(t);
const reason = await obstacle(folder);
if (reason !== undefined) {
  t.pass('the image cannot be built on this machine', { skip: reason });
  process.exit();
}
const { image, layer, within } = await build(folder, ROOT);

const exitCode = async ([file, args]: [string, string[]]): Promise<unknown> =>
  run(file, args).then(
    () => 0,
    ({ code }) => code,
  );

t.test('the image contains the package and its dependencies only, and no secret', async (t) => {
  const files = readdirSync(layer, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory() && !entry.parentPath.startsWith(join(layer, 'app/')))
    .map(({ parentPath, name }) => join(parentPath, name).slice(layer.length))
    .sort();
  t.same(
    files.filter((file) => !file.startsWith('/app/')),
    ['/usr/local/bin/idp', '/usr/local/bin/saas-backend'],
  );
  const top = readdirSync(join(layer, 'app')).sort();
  t.same(top, ['LICENSE', 'dist', 'docs', 'lists', 'node_modules', 'package.json', 'templates']);
  const packages = readdirSync(join(layer, 'app/node_modules'));
  t.notOk(packages.includes('typescript'), 'without tools of the build');
  t.same(Object.keys(image.environment), ['NODE_ENV', 'PORT']);
});

const DATABASES = {
  saas: { DATABASE_URI: 'sqlite:/data/app.db' },
  idp: { IDP_DATABASE_URI: 'sqlite:/data/idp.db' },
};
const COMMANDS = { saas: image.command, idp: ['idp', 'serve'] };

for (const product of ['saas', 'idp'] as const) {
  for (const user of [image.user, '10001:10001']) {
    t.test(`${product} runs as process 1 of user ${user} on a read-only root`, async (t) => {
      const [port] = await serverPorts(1);
      const { HOST, IDP_HOST, IDP_PORT, ...secrets } = PRODUCTS[product].environment('', '') as Record<
        string,
        string
      >;
      const environment = { ...secrets, ...DATABASES[product], PORT: String(port) };
      const command = [...image.entrypoint, ...COMMANDS[product]];
      const [file, args] = within(command, { environment, user, isolated: true });
      const program = startCommand(t, file, { args });
      await program.printed(/Server listening at/);
      const health = () => exitCode(within(image.healthcheck, { environment, user }));
      t.equal(await health(), 0);

      const pid = readFileSync(`/proc/${program.pid}/task/${program.pid}/children`, 'utf8').trim();
      const status = readFileSync(`/proc/${pid}/status`, 'utf8');
      t.match(status, new RegExp(`^NSpid:\\t${pid}\\t1$`, 'm'));
      t.match(status, new RegExp(`^Uid:\\t${user.split(':')[0]}\\b`, 'm'));
      t.match(status, /^CapBnd:\t0+$/m);
      process.kill(Number(pid), 'SIGTERM');
      t.equal(await program.ended(), 0);
      t.equal(await health(), 1);
      t.not(await exitCode(within(['touch', '/app/written'], { user: '0:0' })), 0, 'nothing can be written');
    });
  }
}
