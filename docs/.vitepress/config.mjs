import GithubSlugger from 'github-slugger';
import { defineConfig } from 'vitepress';
import { groups } from './navigation.mjs';
import { miniSearch, renderForSearch } from './search.mjs';

// The path of the site at its host, for example /saas-backend/.
const base = process.env.DOCS_BASE ?? '/';

const items = (pages) => pages.map(([page, text]) => ({ text, link: `/${page.replace(/\.md$/, '')}` }));

/** The groups without the pages of the other product. */
const treeWithout = (other) =>
  groups
    .map(({ text, pages }) => ({
      text,
      items: items(pages.filter(([page]) => other === undefined || !page.startsWith(other))),
    }))
    .filter((group) => group.items.length > 0);

const sidebar = { '/saas/': treeWithout('idp/'), '/idp/': treeWithout('saas/'), '/': treeWithout() };

export default defineConfig({
  srcDir: '.vitepress/pages',
  // Files that are copied as they are, the Markdown of the pages among them.
  srcExclude: ['public/**'],
  // Of servers that a reader starts.
  ignoreDeadLinks: 'localhostLinks',
  title: 'saas-backend',
  description: 'A backend for subscription products and an OpenID Connect provider for people and agents.',
  lang: 'en',
  base,
  metaChunk: true,
  // Tabs change by a script: without it, all blocks are below each other.
  head: [['noscript', {}, '<style>.vp-code-group .blocks > div { display: block }</style>']],
  transformHead: ({ page }) =>
    page === '404.md' ? [] : [['link', { rel: 'alternate', type: 'text/markdown', href: `${base}${page}` }]],
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
    search: { provider: 'local', options: { _render: renderForSearch, miniSearch } },
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
    token.attrSet('href', base + href.slice('pathname:///'.length));
    token.attrSet('target', '_self');
    return self.renderToken(tokens, index, options);
  };
}
