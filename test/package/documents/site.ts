import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { extname, join, posix } from 'node:path';
import { pathToFileURL } from 'node:url';
import t, { type Test } from 'tap';
import { onChromium } from '../../kit/chromium.js';
import { ROOT, readPage } from './blocks.js';

/**
 * `npm run test:docs`: the built documentation site in Chromium. With SCREENSHOTS=<folder>, it saves a picture of each
 * page that it visits.
 */

const SITE = join(ROOT, 'docs/.vitepress/dist');
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** One page of each kind. */
const PAGES = [
  ...['index', 'start', 'saas/client', 'idp/agents', 'reference/errors', 'explain/architecture'],
  ...['saas/http/authentication', 'skill/SKILL'],
];

const DEVICES = {
  desktop: { viewport: { width: 1280, height: 900 }, colorScheme: 'light' },
  dark: { viewport: { width: 1280, height: 900 }, colorScheme: 'dark' },
  phone: { viewport: { width: 360, height: 740 }, colorScheme: 'light' },
  'phone-dark': { viewport: { width: 360, height: 740 }, colorScheme: 'dark' },
} as const;

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.md': 'text/markdown; charset=utf-8',
  '.txt': 'text/plain; charset=utf-8',
};

/** The files of the site whose name ends so, without copies of files of the repository. */
const filesOfSite = (end: string) =>
  readdirSync(SITE, { recursive: true })
    .map(String)
    .filter((name) => name.endsWith(end) && !name.startsWith('files/'));

/** The paths in the site that the links of a file of Markdown lead to. */
function linksOf(name: string): string[] {
  const text = readFileSync(join(SITE, name), 'utf8').replaceAll(/^ *```[\s\S]*?^ *```/gm, '');
  return [...text.matchAll(/\]\((?!https?:|mailto:|#)([^)#\s]+)/g)].map(([, link = '']) =>
    posix.resolve('/', posix.dirname(name), link).slice(1),
  );
}

/** Serves the site as a host of static files does. */
async function serveSite(t: Test): Promise<string> {
  const server = createServer((request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://site').pathname);
    const file = join(SITE, path.endsWith('/') ? `${path}index.html` : path);
    if (!file.startsWith(SITE) || !existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' });
    response.end(readFileSync(file));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

t.test('each page of the site is there as Markdown, all of them in llms.txt', async (t) => {
  const pages = filesOfSite('.html').filter((name) => name !== '404.html');
  const twins = pages.map((name) => name.replace(/\.html$/, '.md'));
  t.strictSame(filesOfSite('.md').sort(), twins.sort());
  const listed = new Set(linksOf('llms.txt'));
  t.strictSame(
    // The index of an entry point lists the pages of its exports.
    twins.filter((name) => !listed.has(name) && !/^reference\/exports\/.+\//.test(name)),
    [],
  );
  const broken = ['llms.txt', ...twins].flatMap((name) =>
    linksOf(name)
      .filter((link) => !existsSync(join(SITE, link)))
      .map((link) => `${name}: ${link}`),
  );
  t.strictSame(broken, []);
});

t.test('the search of the site puts first what people look for', async (t) => {
  const load = createRequire(join(ROOT, 'docs/.vitepress/search.mjs'));
  const { default: MiniSearch } = await import(pathToFileURL(load.resolve('minisearch')).href);
  const { miniSearch } = await import(pathToFileURL(join(ROOT, 'docs/.vitepress/search.mjs')).href);
  const [file = ''] = filesOfSite('.js').filter((name) => /@localSearchIndexroot\.[\w-]+\.js$/.test(name));
  const { default: built } = await import(pathToFileURL(join(SITE, file)).href);
  const { options, searchOptions } = miniSearch;
  const index = MiniSearch.loadJSON(built, { storeFields: ['title', 'titles'], ...options, searchOptions });
  const wanted: Record<string, string> = JSON.parse(readPage('test/package/documents/searches.json'));
  const pageOf = (query: string) => index.search(query)[0]?.id.replace(/^\/(.*)\.html(#.*)?$/, '$1');
  const found = Object.fromEntries(Object.keys(wanted).map((query) => [query, pageOf(query)]));
  t.ok(Object.keys(wanted).length >= 100);
  t.strictSame(found, wanted);
  const keywords = JSON.parse(readPage('docs/.vitepress/keywords.json'));
  t.strictSame(
    Object.keys(keywords).filter((page) => !existsSync(join(SITE, page))),
    [],
    'pages with keywords',
  );
});

await onChromium((browser) => {
  t.test('pages of the site are accessible, and fit on a phone and a desktop, light and dark', async (t) => {
    const url = await serveSite(t);
    const pictures = process.env['SCREENSHOTS'];
    if (pictures) mkdirSync(pictures, { recursive: true });
    for (const [device, options] of Object.entries(DEVICES)) {
      const context = await browser.newContext(options);
      const page = await context.newPage();
      const failures: string[] = [];
      page.on('requestfailed', (request) => {
        // The next page aborts what this one loads in advance.
        if (request.failure()?.errorText !== 'net::ERR_ABORTED') failures.push(request.url());
      });
      page.on('request', (request) => {
        if (!request.url().startsWith(url) && !request.url().startsWith('data:'))
          failures.push(request.url());
      });
      page.on('pageerror', (error) => failures.push(error.message));
      for (const name of PAGES) {
        await page.goto(`${url}/${name}.html`, { waitUntil: 'load' });
        if (pictures)
          await page.screenshot({ path: join(pictures, `${name.replace('/', '-')}-${device}.png`) });
        const width = await page.evaluate('document.documentElement.scrollWidth');
        t.ok(Number(width) <= options.viewport.width, `${name} on ${device} is ${width} wide`);
        await page.evaluate(AXE);
        const violations = (await page.evaluate(
          'axe.run().then(({ violations }) => violations.map(({ id, nodes }) => id + ": " + nodes.slice(0, 3).map(({ html, any }) => html.slice(0, 160) + (any[0]?.message ?? "")).join(" | ")))',
        )) as string[];
        t.strictSame(violations, [], `${name} on ${device}`);
      }
      t.strictSame(failures, [], `${device}: nothing from elsewhere, no errors`);
      await context.close();
    }
  });

  t.test('pages of the site can be read, and all of them reached, without JavaScript', async (t) => {
    const url = await serveSite(t);
    const context = await browser.newContext({
      javaScriptEnabled: false,
      viewport: { width: 360, height: 740 },
    });
    const page = await context.newPage();
    await page.goto(url);
    const reached = new Set<string>();
    for (const link of await page.locator('main a').all()) {
      reached.add((await link.getAttribute('href'))?.replace(/^[./]*/, '') ?? '');
    }
    const pages = filesOfSite('.html');
    for (const index of pages.filter((name) => /^reference\/exports\/[^/]+$/.test(name))) {
      await page.goto(`${url}/${index}`);
      for (const link of await page.locator('main a').all()) {
        const { pathname } = new URL((await link.getAttribute('href')) ?? '', page.url());
        reached.add(pathname.slice(1));
      }
    }
    const missing = pages.filter((name) => !['index.html', '404.html'].includes(name) && !reached.has(name));
    t.strictSame(missing, []);
    await page.goto(`${url}/saas/billing.html`);
    t.ok(await page.locator('main h2').first().isVisible());
    t.ok(await page.locator('main pre code').first().isVisible());
    if (process.env['SCREENSHOTS']) {
      await page.screenshot({ path: join(process.env['SCREENSHOTS'], 'billing-without-js.png') });
    }
    await context.close();
  });

  t.test('the search of the site finds an option', async (t) => {
    const url = await serveSite(t);
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(url, { waitUntil: 'networkidle' });
    await page.click('.DocSearch-Button');
    await page.fill('#localsearch-input', 'AGENT_ISSUER');
    const first = page.locator('#localsearch-list a').first();
    await first.waitFor();
    t.match(await first.getAttribute('href'), /agents-in-your-api|agents-own-provider|reference\/options/);
    await context.close();
  });
});
