import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { sentencesIn } from '../../../src/core/http/messages.js';
import { BUILT_IN_FOLDER, localesIn, readSentences, valuesIn } from '../../../src/core/http/sentences.js';
import { createServer } from '../../../src/index.js';
import { readTemplates } from '../../../src/shared/email/templates.js';
import { testOptions } from '../../kit/app.js';
import { authorizePath, idpApp } from '../../kit/idp.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** The message catalogue: its locales, the choice between them, and the sentences of an operator. */

const ROOT = fileURLToPath(new URL('../../../..', import.meta.url));

const english = readSentences(BUILT_IN_FOLDER, 'en');

const filesIn = (folder: string, extension: RegExp): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => extension.test(file))
    .map((file) => readFileSync(join(ROOT, folder, file), 'utf8'));

t.test('every sentence is used, and every used sentence exists', async (t) => {
  const mails = readTemplates().map(([, text]) => text);
  const included = [...filesIn('templates/pages', /\.html$/), ...mails].flatMap(sentencesIn);
  const titles = readdirSync(join(ROOT, 'templates/pages')).map((file) => file.replace('.html', '.title'));
  const code = filesIn('src', /\.ts$/).join('\n');
  const literals = [...code.matchAll(/'([\w-]+\.[\w.-]+)'/g)].map(([, key = '']) => key);
  // `errors.<page>`, `scope.<name>`, `password.<problem>` and `attention.<name>` are composed.
  const isComposed = (key: string) =>
    /^(errors|scope|password)\./.test(key) || code.includes(`name: '${/^attention\.(.*)$/.exec(key)?.[1]}'`);
  t.same(
    included.filter((key) => english[key] === undefined),
    [],
    'templates include sentences that exist',
  );
  const used = new Set([...included, ...literals, ...titles]);
  t.same(
    Object.keys(english).filter((key) => !used.has(key) && !isComposed(key)),
    [],
    'no sentence is unused',
  );
});

t.test(
  'every translation is complete and uses the values and elements of the English sentence',
  async (t) => {
    const elementsIn = (text = '') => (text.match(/<[^>]*>/g) ?? []).sort();
    const locales = localesIn(BUILT_IN_FOLDER);
    t.same(locales.sort(), ['ar', 'de', 'en']);
    for (const locale of locales) {
      const sentences = readSentences(BUILT_IN_FOLDER, locale);
      t.same(
        Object.keys(sentences),
        Object.keys(english),
        `${locale} has the same sentences in the same order`,
      );
      for (const [key, text] of Object.entries(sentences)) {
        t.same(valuesIn(text), valuesIn(english[key] ?? ''), `${locale}: ${key}`);
        t.same(elementsIn(text), elementsIn(english[key]), `${locale}: ${key}`);
      }
    }
  },
);

t.test('a page is in the language of ui_locales, then of the browser, then of the operator', async (t) => {
  const idp = await idpApp(t, { defaultLocale: 'de' });
  const client = await idp.createClient();
  const cases: [uiLocales: string | undefined, accept: string | undefined, locale: string][] = [
    [undefined, undefined, 'de'],
    [undefined, 'fr', 'de'],
    [undefined, 'en-US,en;q=0.9', 'en'],
    [undefined, 'fr;q=0.9, ar-EG;q=0.8, en;q=0.1', 'ar'],
    ['fr-CA ar', 'en', 'ar'],
    ['fr', 'en', 'en'],
    ['%', ';;q=x,,', 'de'],
  ];
  for (const [uiLocales, accept, locale] of cases) {
    const path = authorizePath(client, { ui_locales: uiLocales });
    const headers = accept === undefined ? {} : { 'accept-language': accept };
    const { text, headers: answered } = await idp.request('GET', path, { headers });
    const direction = locale === 'ar' ? 'rtl' : 'ltr';
    t.match(text, `<html lang="${locale}" dir="${direction}">`, `${uiLocales}, ${accept}`);
    t.equal(answered['content-language'], locale);
  }
});

const folderOf = (t: Test, files: Record<string, string | object>): string => {
  const folder = temporaryFolder(t);
  for (const [name, content] of Object.entries(files))
    writeFileSync(join(folder, name), typeof content === 'string' ? content : JSON.stringify(content));
  return folder;
};

t.test(
  'an operator adds a language and replaces sentences, which contain no markup of their own',
  async (t) => {
    const messagesDir = folderOf(t, {
      'fr.json': {
        logout: { lead: 'x' },
        'logout-done': { title: 'Vous êtes <b>"déconnecté"</b> & <strong>libre</strong>' },
      },
      'en.json': { 'logout-done': { next: 'Bye & <script>alert(1)</script>' } },
      'README.md': 'not a language',
    });
    const idp = await idpApp(t, { messagesDir });
    const french = await idp.request('GET', '/logout', { headers: { 'accept-language': 'fr-CH' } });
    t.match(french.text, '<html lang="fr" dir="ltr">');
    t.match(
      french.text,
      '<h1>Vous êtes &lt;b&gt;&quot;déconnecté&quot;&lt;&#x2F;b&gt; &amp; &lt;strong&gt;libre',
    );
    t.match(french.text, 'Bye &amp; &lt;script>', 'English where there is no translation');
    t.match(french.text, 'Sign in again');
    const german = await idp.request('GET', '/logout', { headers: { 'accept-language': 'de' } });
    t.notMatch(german.text, /Bye|déconnecté/);
  },
);

t.test('invalid messages prevent the start, with all problems reported', async (t) => {
  const messagesDir = folderOf(t, {
    'nowhere-at-all.json': {},
    'fr.json': '{',
    'de.json': {
      'sign-in': {
        tilte: 'Anmelden',
        lead: 'bei {{clientNmae}}',
        submit: '',
        wrong: '{{#x}}',
        grants: 'zu {{{clientName}}}',
      },
    },
  });
  const problems = [
    /contains broken messages: /,
    /nowhere-at-all\.json is not named after a locale/,
    /fr\.json cannot be used \(/,
    /de\.json has the unknown key 'sign-in\.tilte'\. Did you mean 'sign-in\.title'\?/,
    /de\.json uses \{\{clientNmae\}\} in 'sign-in\.lead'/,
    /de\.json has no text for 'sign-in\.submit'/,
    /de\.json cannot use 'sign-in\.wrong' \(Unclosed section/,
    /de\.json uses \{\{&clientName\}\} in 'sign-in\.grants'/,
  ];
  const folder = temporaryFolder(t);
  for (const problem of problems) {
    t.throws(() => createServer({ ...testOptions(folder), messagesDir }), { message: problem });
  }
});
