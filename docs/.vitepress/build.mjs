// Builds the site: node docs/.vitepress/build.mjs [--dev]. VitePress reads the pages from the folder `pages`, a copy of docs in which
// links to files outside of docs lead to copies of these files. Each page is also published as Markdown, at its address with .md.
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
import { groups } from './navigation.mjs';
import { groupTabs } from './tabs.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const site = join(root, 'docs');
const pages = join(site, '.vitepress/pages');
const base = process.env.DOCS_BASE ?? '/';

/** The text of each page that is not a file of docs. */
const generated = new Map(groups.flatMap((group) => group.pages.map(([page, , , text]) => [page, text])));
/** The indexes of the exports list them. */
const EXPORTS = readdirSync(join(site, 'reference/exports'), { recursive: true })
  .map((name) => posix.join('reference/exports', name.replaceAll('\\', '/')))
  .filter((name) => name.endsWith('.md') && name.split('/').length === 4);
const PAGES = ['index.md', ...generated.keys(), ...EXPORTS];

/** Where a link of a page leads on the site. `path` is relative to the repository. */
function resolve(path, page) {
  const within = (target) => posix.relative(posix.dirname(page), `docs/${target}`);
  if (path === 'README.md') return within('index.md');
  const name = path.slice('docs/'.length);
  if (generated.has(name)) return within(name);
  if (!existsSync(join(root, path))) throw new Error(`${page} links to ${path}, which does not exist`);
  if (PAGES.includes(name) || path.startsWith('docs/images/')) return within(name);
  const copy = join(pages, 'public/files', path);
  mkdirSync(dirname(copy), { recursive: true });
  cpSync(join(root, path), copy, { recursive: true });
  return `/files/${path}`;
}

/** The text with its links as on the site. @param page its path in the repository */
function withLinks(text, page, asLink) {
  return text.replace(
    /(```[\s\S]*?```)|\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)/g,
    (whole, code, path, anchor = '') => {
      if (code) return whole;
      return `](${asLink(resolve(posix.join(posix.dirname(page), path), page))}${anchor})`;
    },
  );
}

function write(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}

/** @param page its path in docs */
function copyPage(page) {
  const text = generated.get(page) ?? readFileSync(join(site, page), 'utf8');
  const visible = text.replace(/^ *<!--.*-->\n/gm, '') + (page === 'index.md' ? `\n${generatedList()}` : '');
  // VitePress takes an unknown extension for a page.
  const linked = withLinks(visible, `docs/${page}`, (link) => link.replace(/^\//, 'pathname:///'));
  write(join(pages, page), groupTabs(linked));
  write(join(pages, 'public', page), withLinks(visible, `docs/${page}`, absolute));
}

const absolute = (link) => link.replace(/^\//, base);

/** The list of the pages that are not in the lists of docs. */
function generatedList() {
  return groups
    .filter((group) => group.pages.some((page) => page[3]))
    .map(({ text, pages }) => {
      const lines = pages.map(([page, name, about]) => `- [${name}](${page}): ${about}`);
      return `## ${text}\n\n${lines.join('\n')}\n`;
    })
    .join('\n');
}

/** Language models look for it at /llms.txt. */
function copyInstructions() {
  const text = readFileSync(join(site, 'llms.txt'), 'utf8');
  const [listed, optional] = text.replaceAll(/^(<!--.*-->|.*README\.md.*)\n/gm, '').split(/(?=## Optional)/);
  const all = [listed, generatedList(), optional].join('\n');
  write(join(pages, 'public/llms.txt'), withLinks(all, 'docs/llms.txt', absolute));
}

rmSync(pages, { recursive: true, force: true });
for (const folder of ['images', 'public/images'])
  cpSync(join(site, 'images'), join(pages, folder), { recursive: true });
for (const page of PAGES) copyPage(page);
copyInstructions();

if (process.argv.includes('--dev')) {
  watch(site, { recursive: true }, (_, name) => PAGES.includes(name) && copyPage(name));
  const server = await createServer(site, { port: 5173 });
  await server.listen();
  server.printUrls();
} else {
  await build(site);
  const broken = findBrokenLinks(join(site, '.vitepress/dist'), base);
  for (const problem of broken) console.error(problem);
  if (broken.length > 0) process.exit(1);
}
