import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { fileURLToPath } from 'node:url';
import { Option } from 'commander';
import { readVariable } from '../../src/core/config/options.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { complain, fail, say } from '../terminal.js';

/** The folders of `templates/init` that an application is made of; a file of a later one replaces that of an earlier one. */
const LAYERS = {
  fastify: ['common', 'server', 'fastify'],
  express: ['common', 'server', 'express'],
  hono: ['common', 'server', 'hono'],
  next: ['common', 'next'],
} as const;

type Framework = keyof typeof LAYERS;
const FRAMEWORKS = Object.keys(LAYERS) as Framework[];

/** What begins the name of a script, by package manager. */
const RUN = { npm: 'npm run', pnpm: 'pnpm run', yarn: 'yarn run', bun: 'bun run' } as const;
type Manager = keyof typeof RUN;

interface InitOptions extends CommonOptions {
  framework?: Framework;
  package?: string;
  install: boolean;
}

const DESCRIPTION = `Create a small application in TypeScript, which you take over: accounts and sign-in, a page for signed-in users, a page for \
subscribers, a route for API keys, tests, a Dockerfile, and Compose with PostgreSQL. It is then installed with the package manager \
that started this command.`;

export function define(command: CommandLine): void {
  command
    .description(DESCRIPTION)
    .argument('<folder>', 'Folder to create; an existing one has to be empty')
    .addOption(
      new Option('--framework <name>', 'Without it, a terminal asks, and otherwise it is fastify').choices(
        FRAMEWORKS,
      ),
    )
    .option(
      '--package <source>',
      'Where to install saas-backend from, such as a packed file (default: the registry)',
    )
    .option('--no-install', 'Install nothing')
    .examples(
      'saas-backend init my-app',
      'saas-backend init my-app --framework hono',
      'saas-backend init . --framework express --no-install --json',
    )
    .action(init);
}

async function init(given: string, options: InitOptions, command: CommandLine): Promise<void> {
  const { json } = options;
  const folder = resolve(given);
  refuseUsedFolder(folder, given);
  const framework = options.framework ?? (json ? 'fastify' : await askFramework(command));
  const manager = packageManager();

  try {
    for (const layer of LAYERS[framework]) writeLayer(layer, folder, { manager, source: sourceOf(options) });
  } catch (error) {
    fail(
      1,
      `${given} cannot be written: ${(error as Error).message}. Choose a folder that this user can write to.`,
    );
  }
  // Output of other programs is no result of this one.
  const run = (program: string, ...args: string[]) =>
    spawnSync(program, args, {
      ...{ cwd: folder, stdio: ['ignore', 2, 2] },
      // Package managers are scripts there, which need a shell.
      shell: process.platform === 'win32',
    }).status === 0;
  const isInRepository = spawnSync('git', ['rev-parse', '--git-dir'], { cwd: folder }).status === 0;
  if (!isInRepository && !run('git', 'init', '--quiet'))
    complain('git is missing: the folder is no repository.');
  const isInstalled = options.install && run(manager, 'install');

  const install = isInstalled ? [] : [`${manager} install`];
  const scripts = [`${RUN[manager]} dev`, `${RUN[manager]} test`];
  const next = [`cd ${relative('.', folder) || '.'}`, ...install, ...scripts].slice(0, 3);
  if (json) say(JSON.stringify({ folder, framework, installed: isInstalled, next }));
  else
    say(
      [`${folder} has an application with ${framework}. Next:`, ...next.map((line) => `  ${line}`)].join(
        '\n',
      ),
    );
  if (options.install && !isInstalled) {
    fail(1, `${manager} install failed: the files are written. Repeat it in the folder.`);
  }
}

/** A repository without files is empty, too. */
function refuseUsedFolder(folder: string, given: string): void {
  let names: string[] = [];
  try {
    names = readdirSync(folder).filter((name) => name !== '.git');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTDIR') fail(1, `${given} is a file. Name a folder that does not exist yet.`);
    if (code !== 'ENOENT') fail(1, `${given} cannot be read (${code}). Name another folder.`);
  }
  if (names.length > 0) {
    const some = names.slice(0, 3).join(', ');
    fail(
      1,
      `${given} is not empty (${some}), and nothing was written. Name a folder that does not exist yet, or empty it.`,
    );
  }
}

/** Asks once in a terminal. */
async function askFramework(command: CommandLine): Promise<Framework> {
  if (!process.stdin.isTTY) return 'fastify';
  const prompt = createInterface({ input: process.stdin, output: process.stderr });
  const list = FRAMEWORKS.map((name, index) => `  ${index + 1}  ${name}`).join('\n');
  const answer = (await prompt.question(`${list}\nFramework (1): `)).trim() || '1';
  prompt.close();
  const framework = FRAMEWORKS.find((name, index) => [name, String(index + 1)].includes(answer));
  return framework ?? command.error(`error: '${answer}' is not in the list.`);
}

/** The one that started this command. */
function packageManager(): Manager {
  const [name = ''] = (readVariable('npm_config_user_agent') ?? '').split('/');
  return name in RUN ? (name as Manager) : 'npm';
}

/** As `dependencies` name it. */
function sourceOf({ package: source }: InitOptions): string {
  if (source !== undefined) return /\.tgz$/.test(source) ? `file:${resolve(source)}` : source;
  return `^${createRequire(import.meta.url)('saas-backend/package.json').version}`;
}

/** npm packs no file `.gitignore`: names that begin with a dot begin with an underscore in the templates. */
function writeLayer(
  layer: string,
  folder: string,
  { manager, source }: { manager: Manager; source: string },
): void {
  const root = fileURLToPath(new URL(`../../../templates/init/${layer}`, import.meta.url));
  // The rules of npm for names of packages.
  const name =
    basename(folder)
      .toLowerCase()
      .replaceAll(/[^a-z0-9]+/g, '-')
      .replaceAll(/^-|-$/g, '') || 'app';
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const target = join(folder, relative(root, entry.parentPath), entry.name.replace(/^_/, '.'));
    const text = readFileSync(join(entry.parentPath, entry.name), 'utf8')
      .replaceAll('my-app', name)
      .replaceAll('npm run', RUN[manager])
      .replace(/("saas-backend": )"[^"]*"/, (_, name: string) => name + JSON.stringify(source));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, text);
  }
}
