import { readFileSync } from 'node:fs';
import { join } from 'node:path';
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
  const rows = page.split('\n').filter((line) => /^\| (?!---|Threat)/.test(line));
  t.ok(rows.length > 100);
  for (const row of rows) {
    const [threat = '', , tests = ''] = row.slice(2, -2).split(' | ');
    const named = [...tests.matchAll(/(.+?) \(`(test\/[\w/.-]+)`\)(?:<br>|$)/g)];
    t.ok(named.length > 0, threat);
    for (const [, title = '', file = ''] of named)
      t.ok(titlesOf(file).includes(title.replaceAll('\\|', '|')), `${file}: ${title}`);
  }
});
