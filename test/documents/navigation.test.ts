import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { temporaryFolder } from '../kit/tmp.js';
import { ROOT, readPage } from './blocks.js';

/** The pages of the documentation can be found: in the navigation of the site, and from one page to another. */

interface Group {
  text: string;
  pages: [page: string, name: string, about: string][];
}

const read = (file: string) => readFileSync(join(ROOT, file), 'utf8');

t.test('every page is in the navigation of the site, once', async (t) => {
  const groups: Group[] = JSON.parse(read('website/navigation.json'));
  const listed = groups.flatMap(({ pages }) => pages.map(([page]) => page));
  const pages = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
  t.strictSame(
    listed.sort(),
    pages.filter((name) => name !== 'index.md').sort(),
    'add a new page to website/navigation.json, then: npm run generate',
  );
});

t.test('the README fits on a few screens and shows the admin area', async (t) => {
  const text = readPage('README.md');
  t.ok(text.split('\n').length <= 150);
  const [, picture = ''] = /!\[[^\]]+\]\((docs\/images\/[\w-]+\.png)\)/.exec(text) ?? [];
  t.ok(readFileSync(join(ROOT, picture)).length > 10_000);
  const { files } = JSON.parse(read('package.json'));
  t.ok(files.includes(picture), 'the package contains the picture');
});

t.test('links and anchors of pages and README lead somewhere, as on GitHub', async (t) => {
  const pages = ['README.md', 'CONTRIBUTING.md', 'CHANGELOG.md'];
  const texts = new Map(
    [...pages, ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`)]
      .filter((name) => name.endsWith('.md'))
      .map((name) => [name, readPage(name).replace(/^ *```[\s\S]*?^ *```/gm, '')]),
  );
  const broken: string[] = [];
  for (const [page, text] of texts) {
    for (const [, path = '', anchor] of text.matchAll(
      /\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)/g,
    )) {
      const target = path === '' ? page : join(page, '..', path);
      const linked = texts.get(target);
      const exists =
        linked !== undefined || readdirSync(join(ROOT, target, '..')).includes(target.replace(/.*\//, ''));
      const isKnown = !anchor || (linked !== undefined && anchorsOf(linked).has(anchor));
      if (!exists || !isKnown) broken.push(`${page}: ${path}#${anchor ?? ''}`);
    }
  }
  t.strictSame(broken, []);
});

/** The anchors that GitHub gives to the headings of a page. */
function anchorsOf(text: string): Set<string> {
  const anchors = new Set<string>();
  for (const [, heading = ''] of text.matchAll(/^#+ (.+)$/gm)) {
    const plain = heading.replaceAll(/`|\[|\]\([^)]*\)/g, '').toLowerCase();
    const slug = plain.replaceAll(/[^\p{L}\p{N}\s_-]/gu, '').replaceAll(' ', '-');
    let anchor = slug;
    for (let count = 1; anchors.has(anchor); count += 1) anchor = `${slug}-${count}`;
    anchors.add(anchor);
  }
  return anchors;
}

t.test('a link of the built site to a missing page, file or heading fails the build', async (t) => {
  const { findBrokenLinks } = await import(pathToFileURL(join(ROOT, 'website/links.mjs')).href);
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'images'));
  writeFileSync(join(folder, 'images/a.png'), '');
  writeFileSync(join(folder, 'other.html'), '<h2 id="here">Here</h2><a href="/site/index.html#top">Back</a>');
  const links = [
    '/site/other.html#here',
    './other.html#gone',
    './missing.html',
    '#top',
    'https://example.com',
  ];
  const anchors = links.map((href) => `<a class="x" href="${href}">x</a>`).join('');
  const images = '<img src="/site/images/a.png"><img src="/site/images/b.png">';
  writeFileSync(join(folder, 'index.html'), `<h1 id="top">Top</h1>${anchors}${images}`);
  t.strictSame(findBrokenLinks(folder, '/site/'), [
    'index.html: ./other.html#gone names no heading of other.html',
    'index.html: ./missing.html leads nowhere',
    'index.html: /images/b.png leads nowhere',
  ]);
});
