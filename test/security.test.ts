import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';

/** Every test that docs/security.md names exists under that title. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Titles of the tests of a file, as in the document: `…` replaces the parts that differ between runs. */
function titlesOf(file: string): string[] {
  const source = readFileSync(join(ROOT, file), 'utf8');
  const titles = source.matchAll(/\bt\.test\(\s*(?:'((?:[^'\\]|\\.)*)'|"([^"]*)"|`([^`]*)`)/g);
  return [...titles].map(([, single = '', double = '', template = '']) =>
    (single.replaceAll("\\'", "'") || double || template).replace(/\$\{[^}]*\}/g, '…'),
  );
}

t.test('every test that docs/security.md names exists', async (t) => {
  const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8');
  const [threats = ''] = page.split('\n## What each way to sign in protects against\n');
  const rows = threats.split('\n').filter((line) => /^\| (?!---|Threat)/.test(line));
  t.ok(rows.length > 100);
  for (const row of rows) {
    const [threat = '', , tests = ''] = row.slice(2, -2).split(' | ');
    const named = [...tests.matchAll(/(.+?) \(`(test\/[\w/.-]+)`\)(?:<br>|$)/g)];
    t.ok(named.length > 0, threat);
    for (const [, title = '', file = ''] of named)
      t.ok(titlesOf(file).includes(title.replaceAll('\\|', '|')), `${file}: ${title}`);
  }
});

t.test('every file of the repository that the documents name exists', async (t) => {
  const documents = [
    ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
    'README.md',
    'CONTRIBUTING.md',
  ].filter((name) => name.endsWith('.md'));
  let named = 0;
  for (const document of documents) {
    const text = readFileSync(join(ROOT, document), 'utf8');
    const paths =
      text.match(/(?<![\w./@:-])(?:src|test|bin|bench|docs|examples|templates)\/[\w./*-]*/g) ?? [];
    const linked = [...text.matchAll(/\]\((?!\w+:|#)([^)#\s]+)/g)].map(([, target = '']) =>
      join(dirname(document), target),
    );
    for (const path of [...paths, ...linked]) {
      named++;
      t.ok(exists(path.replace(/\.$/, '')), `${document}: ${path}`);
    }
  }
  t.ok(named > 100);
});

/** Whether there is such a file; `*` stands for any name. */
function exists(path: string): boolean {
  const [folder = ''] = path.split('*');
  if (folder === path) return existsSync(join(ROOT, path));
  const names = new RegExp(`^${path.slice(folder.length).replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`);
  return readdirSync(join(ROOT, folder), { recursive: true }).some((name) => names.test(String(name)));
}
