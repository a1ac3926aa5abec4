import { execFile } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { runProgram } from '../kit/command-line.js';
import { compiled } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** `saas-backend init` and the applications that it writes. `test/campaign/init` installs, builds and visits them. */

const run = promisify(execFile);
const ROOT = join(compiled('.'), '..');
const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

const init = (cwd: string, args: string[], env: Record<string, string> = {}) =>
  runProgram('saas-backend', ['init', ...args], env, { cwd });

const filesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !/\.git(\/|$)/.test(entry.parentPath))
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();

for (const framework of ['fastify', 'express', 'hono'])
  t.test(`an application with ${framework} compiles with strict rules, and its tests pass`, async (t) => {
    // Within the package, whose dependencies it finds.
    const cwd = mkdtempSync(join(ROOT, 'dist/init-'));
    t.teardown(() => rmSync(cwd, { recursive: true, force: true }));
    const { code, json } = await init(cwd, ['my-app', '--framework', framework, '--no-install', '--json']);
    const folder = join(cwd, 'my-app');
    t.equal(code, 0);
    t.match(json, { folder, framework, installed: false, next: ['cd my-app', 'npm install', 'npm run dev'] });
    mkdirSync(join(folder, 'node_modules'));
    symlinkSync(ROOT, join(folder, 'node_modules/saas-backend'));
    const tsc = join(ROOT, 'node_modules/.bin/tsc');
    const emit = ['--noEmit', 'false', '--rootDir', '.', '--outDir', 'compiled'];
    const { stdout } = await run(tsc, emit, { cwd: folder }).catch((error: { stdout: string }) => error);
    t.equal(stdout, '');
    await t.resolves(run(process.execPath, ['--test', 'compiled/test/app.test.js'], { cwd: folder }));
  });

t.test('the files have the names, the version and the package manager of the user', async (t) => {
  const cwd = temporaryFolder(t);
  const pnpm = { npm_config_user_agent: 'pnpm/10.0.0 npm/? node/v24.0.0 linux x64' };
  const { code, out, err } = await init(cwd, ['Mein Laden', '--no-install'], pnpm);
  t.match({ code, err }, { code: 0, err: '' });
  t.match(out, /application with fastify\. Next:\n {2}cd Mein Laden\n {2}pnpm install\n {2}pnpm run dev\n$/);
  const folder = join(cwd, 'Mein Laden');
  const text = (name: string) => readFileSync(join(folder, name), 'utf8');
  t.match(JSON.parse(text('package.json')), {
    name: 'mein-laden',
    dependencies: { 'saas-backend': `^${version}` },
  });
  t.match(text('README.md'), /^# mein-laden\n[\s\S]*\npnpm run dev /);
  for (const name of [
    '.gitignore',
    '.dockerignore',
    '.env.example',
    'Dockerfile',
    'compose.yaml',
    'src/main.ts',
  ])
    t.ok(filesIn(folder).includes(name), name);
  t.same(
    filesIn(folder).filter((name) => /(^|\/)_/.test(name)),
    [],
  );
  t.ok(readdirSync(folder).includes('.git'), 'it is a repository');
});

t.test('a packed file can be named, and a repository without files is empty', async (t) => {
  const cwd = temporaryFolder(t);
  await run('git', ['init', '--quiet'], { cwd });
  const { code } = await init(cwd, ['.', '--package', 'saas-backend-1.2.3.tgz', '--no-install']);
  t.equal(code, 0);
  const { dependencies } = JSON.parse(readFileSync(join(cwd, 'package.json'), 'utf8'));
  t.equal(dependencies['saas-backend'], `file:${join(cwd, 'saas-backend-1.2.3.tgz')}`);
});

t.test('what it cannot do is refused with a remedy, and changes nothing', async (t) => {
  const cwd = temporaryFolder(t);
  mkdirSync(join(cwd, 'used'));
  writeFileSync(join(cwd, 'used/notes.txt'), 'mine');
  const cases: [string[], number, RegExp][] = [
    [
      ['used'],
      1,
      /^used is not empty \(notes\.txt\), and nothing was written\. Name a folder that does not exist/,
    ],
    [['used/notes.txt'], 1, /^used\/notes\.txt is a file\. Name a folder that does not exist yet\.\n$/],
    [['new', '--framework', 'rails'], 2, /Allowed choices are fastify, express, hono, next/],
    [[], 2, /missing required argument 'folder'/],
  ];
  for (const [args, expected, sentence] of cases) {
    const { code, err } = await init(cwd, args);
    t.equal(code, expected, `${args}`);
    t.match(err, sentence);
  }
  t.same(filesIn(cwd), ['used/notes.txt']);
});

t.test('a failed installation is reported, and the files remain', async (t) => {
  const cwd = temporaryFolder(t);
  const { code, err, json } = await init(cwd, ['app', '--json'], { PATH: '/nowhere' });
  t.equal(code, 1);
  t.match(err, /"message":"npm install failed: the files are written\. Repeat it in the folder\."\}\}\n$/);
  t.match(json, { installed: false });
  t.ok(filesIn(join(cwd, 'app')).includes('package.json'));
});
