import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { compiled } from '../kit/process.js';

/** A folder with nothing but the installed tarball. */

export interface Consumer {
  folder: string;
  tarball: string;
  /** Every file in the tarball. */
  packed: string[];
  /** All installed packages, including this one: path in the folder → version. */
  installed: Record<string, { version: string }>;
  bytes: number;
  /** Installs further packages in exact versions. */
  install(...packages: string[]): Promise<void>;
  /** The path of an installed program. */
  bin(name: string): string;
}

const ROOT = join(compiled('.'), '..');
const run = promisify(execFile);

export async function createConsumer(parent: string): Promise<Consumer> {
  // Without scripts, which would rebuild dist while other tests run from it.
  const npm = (...args: string[]) => run('npm', args, { cwd: ROOT, maxBuffer: 2 ** 26 });
  const packing = await npm('pack', '--json', '--ignore-scripts', '--pack-destination', parent);
  const [{ filename, files }] = JSON.parse(packing.stdout);

  const folder = join(parent, 'app');
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), '{ "private": true }');
  const install = async (...packages: string[]) => {
    const quiet = ['--prefer-offline', '--no-audit', '--no-fund'];
    await npm('install', '--omit=dev', '--ignore-scripts', '--prefix', folder, ...quiet, ...packages);
  };
  const tarball = join(parent, filename);
  await install(tarball);

  const lock = JSON.parse(readFileSync(join(folder, 'node_modules/.package-lock.json'), 'utf8'));
  return {
    folder,
    tarball,
    packed: files.map(({ path }: { path: string }) => path),
    installed: lock.packages,
    bytes: sizeOf(join(folder, 'node_modules')),
    install,
    bin: (name) => join(folder, 'node_modules/.bin', name),
  };
}

function sizeOf(folder: string): number {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.reduce((sum, file) => sum + statSync(join(file.parentPath, file.name)).size, 0);
}
