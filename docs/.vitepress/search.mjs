// The search of the site. Its functions run in the browser, too, where nothing around them exists.
import { readFileSync } from 'node:fs';

/** What people type to find a page, beside its own words. */
const keywords = JSON.parse(readFileSync(new URL('keywords.json', import.meta.url), 'utf8'));

/** The HTML of a page for the index, with its keywords, which no reader sees, below the title. */
export function renderForSearch(source, env, md) {
  const words = keywords[env.relativePath];
  // Examples of HTTP operations repeat the names of their fields.
  const isHttp = env.relativePath.includes('/http/');
  const html = md.render(isHttp ? source.replaceAll(/```[\s\S]*?```/g, '') : source, env);
  return words ? html.replace('</h1>', `</h1>⟦${words}⟧`) : html;
}

export const miniSearch = {
  options: {
    fields: ['title', 'titles', 'text', 'keywords'],
    extractField: (section, field) => {
      if (field !== 'text' && field !== 'keywords') return section[field];
      const [, words, text] = /^\s*⟦(.*?)⟧([\s\S]*)$/.exec(section.text) ?? [null, '', section.text];
      return field === 'keywords' ? words : text;
    },
    // Names of options are found as a whole, and by their parts.
    tokenize: (text) =>
      text
        .split(/[^\p{L}\p{N}_]+/u)
        .flatMap((word) => (word.includes('_') ? [word, ...word.split('_')] : [word]))
        .filter(Boolean),
  },
  searchOptions: {
    combineWith: 'AND',
    prefix: true,
    fuzzy: (term) => (term.length > 4 ? 0.15 : false),
    boost: { keywords: 12, title: 6, titles: 2, text: 1 },
    // Guides come before lists and background, and a page before its sections.
    boostDocument: (id, _term, { titles }) => {
      const isList = /(\/reference\/|\/http\/|\/explain\/|changelog)/.test(id);
      return (id.includes('/reference/exports/') ? 0.1 : isList ? 0.3 : 1) * (titles.length === 0 ? 1.5 : 1);
    },
  },
};
