import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { compiled } from '../kit/process.js';

/** The size of the package, and what each entry point loads at once. */

const ROOT = join(compiled('.'), '..');

/** The most that the package may have, and each entry point load when it is imported. See docs/decisions/package.md. */
interface Budget {
  packedKilobytes: number;
  unpackedKilobytes: number;
  /** By the file below `dist/package`. */
  entries: Record<string, { files: number; kilobytes: number; packages: string[] }>;
}
const budget = JSON.parse(readFileSync(join(ROOT, 'test/package/fixtures/budget.json'), 'utf8')) as Budget;

t.test('each entry point loads no more files, bytes and packages than its budget', async (t) => {
  for (const [entry, most] of Object.entries(budget.entries)) {
    const { files, bytes, packages } = startUpOf(join(ROOT, 'dist/package', entry));
    t.comment(`${entry}: ${files} files, ${(bytes / 1000).toFixed(0)} kB, ${packages.join(' ')}`);
    t.ok(files <= most.files, `${entry}: ${files} files of ${most.files}`);
    t.ok(bytes <= most.kilobytes * 1000, `${entry}: ${bytes} bytes of ${most.kilobytes} kB`);
    t.same(packages, most.packages, entry);
  }
});

t.test('the packed and the unpacked package stay within their budgets', async (t) => {
  const args = ['pack', '--dry-run', '--json', '--ignore-scripts'];
  const { stdout } = await promisify(execFile)('npm', args, { cwd: ROOT, maxBuffer: 2 ** 24 });
  const answer: unknown = JSON.parse(stdout);
  // npm 11 answers with a list, later versions with an object by name.
  const [packed] = Object.values(answer as object) as { size: number; unpackedSize: number }[];
  const { size = Number.NaN, unpackedSize = Number.NaN } = packed ?? {};
  t.comment(`${(size / 1000).toFixed(0)} kB packed, ${(unpackedSize / 1000).toFixed(0)} kB unpacked`);
  t.ok(size <= budget.packedKilobytes * 1000, `${size} bytes packed`);
  t.ok(unpackedSize <= budget.unpackedKilobytes * 1000, `${unpackedSize} bytes unpacked`);
});

/** What an import of a file loads at once: not what it imports later. */
function startUpOf(entry: string): { files: number; bytes: number; packages: string[] } {
  const files = new Map<string, number>();
  const packages = new Set<string>();
  const read = (file: string): void => {
    if (files.has(file)) return;
    const text = readFileSync(file, 'utf8');
    files.set(file, Buffer.byteLength(text));
    // Lines that rolldown writes: `import { a } from "b";`, `import "b";` and `export { a } from "b";`
    const imports = text.matchAll(/^(?:import|export)\b(?:[^"';]*?\bfrom)? ?["']([^"']+)["'];$/gm);
    for (const [, name = ''] of imports) {
      if (name.startsWith('.')) read(join(file, '..', name));
      else if (!name.startsWith('node:')) packages.add(name.match(/^(?:@[^/]+\/)?[^/]+/)?.[0] ?? name);
    }
  };
  read(entry);
  const bytes = [...files.values()].reduce((sum, size) => sum + size, 0);
  return { files: files.size, bytes, packages: [...packages].sort() };
}
