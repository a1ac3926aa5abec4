import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { MAIL_NAMES } from '../../../src/shared/email/templates.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { pagesForMakers, pagesOfDocumentation, pagesOfSite, ROOT, readPage } from './blocks.js';

/** What the documentation refers to exists: pages, headings, pictures, files and tests. */

interface Group {
  text: string;
  pages: [page: string, name: string, about: string][];
}

t.test('every page is in the navigation of the site, once', async (t) => {
  const groups: Group[] = JSON.parse(readPage('docs/.vitepress/navigation.json'));
  const listed = groups.flatMap(({ pages }) => pages.map(([page]) => page));
  t.strictSame(
    listed.sort(),
    pagesOfSite()
      // The index of an entry point lists the pages of its exports.
      .filter((name) => name !== 'index.md' && !/^reference\/exports\/.+\//.test(name))
      .sort(),
    'add a new page to docs/.vitepress/navigation.json, then: npm run generate',
  );
});

t.test('the package contains the pictures of its README', async (t) => {
  const { files } = JSON.parse(readPage('package.json'));
  const pictures = [...readPage('README.md').matchAll(/!\[[^\]]*\]\(([^)]+)\)/g)].map(([, file]) => file);
  t.strictSame(
    pictures.filter((file) => !files.includes(file)),
    [],
  );
});

t.test('every e-mail is on the page about templates', async (t) => {
  const page = readPage('docs/both/email-templates.md');
  t.strictSame(
    MAIL_NAMES.filter((name) => !page.includes(`\`${name}\``)),
    [],
  );
});

t.test('links and anchors of every page lead somewhere, as on GitHub', async (t) => {
  const texts = new Map(
    [...pagesOfDocumentation(), ...pagesForMakers(), 'docs/llms.txt'].map((name) => [
      name,
      readPage(name).replace(/^ *```[\s\S]*?^ *```/gm, ''),
    ]),
  );
  const broken: string[] = [];
  for (const [page, text] of texts) {
    for (const [, path = '', anchor] of text.matchAll(
      /\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)/g,
    )) {
      const target = path === '' ? page : join(page, '..', path);
      const linked = texts.get(target);
      const isKnown = !anchor || (linked !== undefined && anchorsOf(linked).has(anchor));
      if (!existsSync(join(ROOT, target)) || !isKnown) broken.push(`${page}: ${path}#${anchor ?? ''}`);
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

t.test('every file of the repository that the documents name exists', async (t) => {
  const named = [...pagesOfDocumentation(), ...pagesForMakers()].flatMap((page) => {
    const paths = readPage(page).match(/(?<![\w./@:-])(?:src|test|bin|docs|examples|templates)\/[\w./*-]*/g);
    return (paths ?? []).map((path) => ({ page, path: path.replace(/\.$/, '') }));
  });
  t.ok(named.length > 100);
  t.strictSame(
    named.filter(({ path }) => !exists(path)),
    [],
  );
});

/** Whether there is such a file; `*` stands for any name. */
function exists(path: string): boolean {
  const [folder = ''] = path.split('*');
  if (folder === path) return existsSync(join(ROOT, path));
  const names = new RegExp(`^${path.slice(folder.length).replaceAll('.', '\\.').replaceAll('*', '[^/]*')}$`);
  return readdirSync(join(ROOT, folder), { recursive: true }).some((name) => names.test(String(name)));
}

/** Titles of the tests of a file, as in the document: `…` replaces the parts that differ between runs. */
function titlesOf(file: string): string[] {
  const source = readPage(file);
  const titles = source.matchAll(/\bt\.test\(\s*(?:'((?:[^'\\]|\\.)*)'|"([^"]*)"|`([^`]*)`)/g);
  return [...titles].map(([, single = '', double = '', template = '']) =>
    (single.replaceAll("\\'", "'") || double || template).replace(/\$\{[^}]*\}/g, '…'),
  );
}

t.test('every threat of test/threats.md has a mitigation and tests that exist', async (t) => {
  const threats = readPage('test/threats.md').split(/^- /m).slice(1);
  t.ok(threats.length > 100);
  for (const entry of threats) {
    const [threat = '', mitigation = '', ...lines] = entry.replace(/\n(\n[\s\S]*)?$/, '').split('\n');
    t.match(mitigation, /^ {2}[^ -]/, threat);
    t.ok(lines.length > 0, threat);
    for (const line of lines) {
      const [, file = '', title = ''] = /^ {2}- `(test\/[\w/.-]+)`: (.+)$/.exec(line) ?? [];
      t.ok(file !== '' && titlesOf(file).includes(title), `${threat}: ${line}`);
    }
  }
});

t.test('a link of the built site to a missing page, file or heading fails the build', async (t) => {
  const { findBrokenLinks } = await import(pathToFileURL(join(ROOT, 'docs/.vitepress/links.mjs')).href);
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

t.test('neighbouring blocks of code with a label are tabs on the site', async (t) => {
  const { groupTabs } = await import(pathToFileURL(join(ROOT, 'docs/.vitepress/tabs.mjs')).href);
  const block = (info: string) => `\`\`\`${info}\ncode\n\`\`\``;
  const [one, other] = [block('js [Fastify]'), block('js [Express]')];
  t.equal(
    groupTabs(`Text\n\n${one}\n\n${other}\n\nText\n`),
    `Text\n\n::: code-group\n\n${one}\n\n${other}\n\n:::\n\nText\n`,
  );
  for (const alone of [`${one}\n\nText\n\n${other}`, `${one}\n\n${block('js')}`, block('md')])
    t.equal(groupTabs(alone), alone);
});
