import { readFileSync } from 'node:fs';
import GithubSlugger from 'github-slugger';
import { defineConfig } from 'vitepress';

const navigation = JSON.parse(readFileSync(new URL('navigation.json', import.meta.url), 'utf8'));

const items = (pages) => pages.map(([page, text]) => ({ text, link: `/${page.replace(/\.md$/, '')}` }));

/** The groups without the pages of the other product. */
const treeWithout = (other) =>
  navigation
    .map(({ text, pages }) => ({ text, items: items(pages.filter(([page]) => !page.startsWith(other))) }))
    .filter((group) => group.items.length > 0);

const sidebar = {
  '/saas/': treeWithout('idp/'),
  '/idp/': treeWithout('saas/'),
  '/': navigation.map(({ text, pages }) => ({ text, items: items(pages) })),
};

export default defineConfig({
  srcDir: '.vitepress/pages',
  title: 'saas-backend',
  description: 'A backend for subscription products and an OpenID Connect provider for people and agents.',
  lang: 'en',
  // The path of the site at its host, for example /saas-backend/.
  base: process.env.DOCS_BASE ?? '/',
  metaChunk: true,
  // Tabs change by a script: without it, all blocks are below each other.
  head: [['noscript', {}, '<style>.vp-code-group .blocks > div { display: block }</style>']],
  markdown: {
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' },
    // Placeholders such as <file> are text.
    html: false,
    anchor: { slugify: slugifyAsOnGitHub },
    config: (md) => {
      for (const name of ['text', 'code_inline']) {
        const render = md.renderer.rules[name];
        // Pages quote templates, which Vue would evaluate.
        md.renderer.rules[name] = (...args) => render(...args).replaceAll('{{', '&#123;&#123;');
      }
      // A header cell without text is no header.
      md.renderer.rules.th_open = (tokens, index, options, _env, self) => {
        if (tokens[index + 1].content === '') {
          tokens[index].tag = 'td';
          tokens[index + 2].tag = 'td';
        }
        return self.renderToken(tokens, index, options);
      };
      md.renderer.rules.link_open = openLink(md.renderer.rules.link_open);
    },
    languageAlias: { caddy: 'nginx' },
  },
  themeConfig: {
    nav: [
      { text: 'Start', link: '/start' },
      { text: 'saas-backend', link: '/saas/accounts', activeMatch: '/saas/' },
      { text: 'idp', link: '/idp/relying-parties', activeMatch: '/idp/' },
      { text: 'All pages', link: '/' },
      { text: 'Reference', link: '/reference/configuration', activeMatch: '/reference/' },
    ],
    sidebar,
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        miniSearch: {
          // Names of options are found as a whole, and by their parts. The function runs in the browser.
          options: {
            tokenize: (text) =>
              text
                .split(/[^\p{L}\p{N}_]+/u)
                .flatMap((word) => (word.includes('_') ? [word, ...word.split('_')] : [word]))
                .filter(Boolean),
          },
          // The pages of exports repeat what the other pages explain.
          searchOptions: {
            combineWith: 'AND',
            fuzzy: 0.1,
            boostDocument: (id) => (id.includes('/reference/exports/') ? 0.1 : 1),
          },
        },
      },
    },
  },
});

/** The same anchors as on GitHub, where the pages are read, too. */
function slugifyAsOnGitHub(text) {
  return new GithubSlugger().slug(text);
}

/** Links to copies of files, which are no pages. */
function openLink(render) {
  return (tokens, index, options, env, self) => {
    const token = tokens[index];
    const href = token.attrGet('href') ?? '';
    if (!href.startsWith('pathname://')) return render(tokens, index, options, env, self);
    const base = (process.env.DOCS_BASE ?? '/').replace(/\/$/, '');
    token.attrSet('href', base + href.slice('pathname://'.length));
    token.attrSet('target', '_self');
    return self.renderToken(tokens, index, options);
  };
}
