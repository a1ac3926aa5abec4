// Builds the site: node docs/.vitepress/build.mjs [--dev]. VitePress reads the pages from the folder `pages`, a copy of docs in which
// links to files outside of docs lead to copies of these files.
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  watch,
  writeFileSync,
} from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, createServer } from 'vitepress';
import { findBrokenLinks } from './links.mjs';
import { groupTabs } from './tabs.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const site = join(root, 'docs');
const pages = join(site, '.vitepress/pages');

const navigation = JSON.parse(readFileSync(new URL('navigation.json', import.meta.url), 'utf8'));
/** The indexes of the exports list them. */
const EXPORTS = readdirSync(join(site, 'reference/exports'), { recursive: true })
  .map((name) => posix.join('reference/exports', name.replaceAll('\\', '/')))
  .filter((name) => name.endsWith('.md') && name.split('/').length === 4);
const PAGES = ['index.md', ...navigation.flatMap((group) => group.pages.map(([page]) => page)), ...EXPORTS];

/** Where a link of a page leads on the site. `path` is relative to the repository. */
function resolve(path, anchor, page) {
  if (!existsSync(join(root, path))) throw new Error(`${page} links to ${path}, which does not exist`);
  const within = (target) => posix.relative(posix.dirname(page), `docs/${target}`);
  if (path === 'README.md') return within('index.md') + anchor;
  if (PAGES.includes(path.slice('docs/'.length)) || path.startsWith('docs/images/'))
    return within(path.slice('docs/'.length)) + anchor;
  const copy = join(pages, 'public/files', path);
  mkdirSync(dirname(copy), { recursive: true });
  cpSync(join(root, path), copy, { recursive: true });
  // VitePress takes an unknown extension for a page.
  return `pathname:///files/${path}`;
}

/** @param page its path in docs */
function copyPage(page) {
  const from = `docs/${page}`;
  const folder = posix.dirname(from);
  const text = readFileSync(join(root, from), 'utf8');
  const visible = text.replace(/^ *<!--.*-->\n/gm, '');
  const linked = visible.replace(
    /(```[\s\S]*?```)|\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)/g,
    (whole, code, path, anchor = '') => {
      if (code) return whole;
      return `](${resolve(posix.normalize(posix.join(folder, path)), anchor, from)})`;
    },
  );
  const copy = join(pages, page);
  mkdirSync(dirname(copy), { recursive: true });
  writeFileSync(copy, groupTabs(linked));
}

function copyPages() {
  rmSync(pages, { recursive: true, force: true });
  mkdirSync(pages, { recursive: true });
  cpSync(join(root, 'docs/images'), join(pages, 'images'), { recursive: true });
  for (const page of PAGES) copyPage(page);
  copyInstructions();
}

/** Language models look for them at /llms.txt. */
function copyInstructions() {
  const text = readFileSync(join(root, 'docs/llms.txt'), 'utf8').replace('(../README.md)', '(index.md)');
  mkdirSync(join(pages, 'public'), { recursive: true });
  writeFileSync(join(pages, 'public/llms.txt'), text.replaceAll(/(?<=\]\([\w/-]+)\.md\)/g, '.html)'));
}

copyPages();
if (process.argv.includes('--dev')) {
  watch(site, { recursive: true }, (_, name) => PAGES.includes(name) && copyPage(name));
  const server = await createServer(site, { port: 5173 });
  await server.listen();
  server.printUrls();
} else {
  await build(site);
  const broken = findBrokenLinks(join(site, '.vitepress/dist'), process.env.DOCS_BASE);
  for (const problem of broken) console.error(problem);
  if (broken.length > 0) process.exit(1);
}
