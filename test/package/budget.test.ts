import { execFile } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { compiled } from '../kit/process.js';

/** The size of the package and of the root of the repository, and what each entry point loads at once. */

const ROOT = join(compiled('.'), '..');

/** The most that the package may have, and what each entry point loads when it is imported. See docs/decisions/package.md. */
interface Budget {
  packedKilobytes: number;
  unpackedKilobytes: number;
  /** Of the file that pages load. */
  clientKilobytes: number;
  /** Packages by the file below `dist`. */
  packages: Record<string, string[]>;
}
const budget = JSON.parse(readFileSync(join(ROOT, 'test/package/fixtures/budget.json'), 'utf8')) as Budget;

t.test('each entry point loads the packages of its budget', async (t) => {
  for (const [entry, expected] of Object.entries(budget.packages)) {
    t.same(packagesOf(join(ROOT, 'dist', entry)), expected, entry);
  }
});

t.test('the package and the client stay within their budgets', async (t) => {
  const args = ['pack', '--dry-run', '--json', '--ignore-scripts'];
  const { stdout } = await promisify(execFile)('npm', args, { cwd: ROOT, maxBuffer: 2 ** 24 });
  const answer: unknown = JSON.parse(stdout);
  // npm 11 answers with a list, later versions with an object by name.
  const [packed] = Object.values(answer as object) as { size: number; unpackedSize: number }[];
  const { size = Number.NaN, unpackedSize = Number.NaN } = packed ?? {};
  const client = statSync(join(ROOT, 'dist/client.js')).size;
  t.comment(`${size} bytes packed, ${unpackedSize} unpacked, ${client} of the client`);
  t.ok(size <= budget.packedKilobytes * 1000, `${size} bytes packed`);
  t.ok(unpackedSize <= budget.unpackedKilobytes * 1000, `${unpackedSize} bytes unpacked`);
  t.ok(client <= budget.clientKilobytes * 1000, `${client} bytes of the client`);
});

t.test('the root of the repository has at most fifteen entries', async (t) => {
  const { stdout } = await promisify(execFile)('git', ['ls-files'], { cwd: ROOT, maxBuffer: 2 ** 24 });
  const entries = new Set(
    stdout
      .trim()
      .split('\n')
      .map((path) => path.replace(/\/.*/, '')),
  );
  t.ok(entries.size <= 15, [...entries].join(' '));
});

/** The packages that an import of a file loads at once: not those that it imports later. */
function packagesOf(entry: string): string[] {
  const files = new Set<string>();
  const packages = new Set<string>();
  const read = (file: string): void => {
    if (files.has(file)) return;
    files.add(file);
    // Statements that tsc writes: `import { a } from 'b';`, `import 'b';` and `export { a } from 'b';`
    const imports = readFileSync(file, 'utf8').matchAll(
      /^(?:import|export)\b(?:[^"';]*?\bfrom)? ?["']([^"']+)["'];$/gm,
    );
    for (const [, name = ''] of imports) {
      if (name.startsWith('.')) read(join(file, '..', name));
      else if (!name.startsWith('node:')) packages.add(name.match(/^(?:@[^/]+\/)?[^/]+/)?.[0] ?? name);
    }
  };
  read(entry);
  return [...packages].sort();
}
