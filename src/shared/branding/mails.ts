import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { Email } from '../../core/http/schemas.js';
import { registerAction } from '../console-kit/actions.js';
import type { Console } from '../console-kit/console.js';
import { registerDetail } from '../console-kit/details.js';
import { sentenceCase } from '../console-kit/marks.js';
import type { Column } from '../console-kit/tables.js';
import type { MailAdministration } from '../email/administration.js';

/** The e-mails of a product as their readers see them, with example values. */

/** The preview of a mail, in a frame of the console: nothing in it runs, and nothing is loaded but images. */
const PREVIEW_HEADERS = {
  'content-security-policy':
    "default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'; sandbox",
  'x-frame-options': 'SAMEORIGIN',
};

const Template = Type.Object({
  name: Type.String(),
  subject: Type.String(),
  text: Type.String(),
  html: Type.String(),
});

interface TemplateRow {
  name: string;
  subject: string;
  locale: string | undefined;
}

export const queryOf = (locale: string | undefined) => (locale ? `?locale=${locale}` : '');

export const TEMPLATE_COLUMNS: readonly Column<TemplateRow>[] = [
  {
    label: 'Template',
    text: ({ name }) => name,
    kind: 'word',
    href: ({ name, locale }) => `mails/templates/${name}${queryOf(locale)}`,
  },
  { label: 'Subject', text: ({ subject }) => subject },
];

/** All of them with their subjects. */
export const templateRows = (mails: MailAdministration, locale: string | undefined): Promise<TemplateRow[]> =>
  Promise.all(
    mails.names.map(async (name) => ({ name, locale, subject: (await mails.preview(name, locale)).subject })),
  );

/** The languages as links from a page to itself. */
export const localeLinks = (locales: readonly string[], locale: string | undefined) =>
  locales.map((one) => ({
    href: `?locale=${one}`,
    label: new Intl.DisplayNames('en', { type: 'language' }).of(one) ?? one,
    isCurrent: one === (locale || locales[0]),
  }));

export async function registerMailTemplates(
  fastify: FastifyTypebox,
  console: Console,
  { mails, locales }: { mails: MailAdministration; locales: readonly string[] },
): Promise<void> {
  registerDetail(fastify, console, {
    path: 'mails/templates/:name',
    section: 'branding',
    template: 'console-mail',
    isLocalized: true,
    hasFrames: true,
    item: Template,
    find: async ({ name = '' }, { locale }) => ({ name, ...(await mails.preview(name, locale)), locale }),
    view: ({ name, from, subject, text, locale }) => ({
      title: sentenceCase(name),
      tools: [
        { href: `${name}/test${queryOf(locale)}`, label: 'Send a test e-mail' },
        { href: `${name}/html${queryOf(locale)}`, label: 'Show as HTML' },
      ],
      ...{ name, from, subject, text },
      query: queryOf(locale),
      periods: localeLinks(locales, locale),
      periodsLabel: 'Language',
    }),
  });

  const route = { config: console.config, schema: console.localized };
  fastify.get('/mails/templates/:name/html', route, async ({ params, query }, reply) => {
    const { html } = await mails.preview(params['name'] ?? '', query.locale);
    return reply.headers(PREVIEW_HEADERS).type('text/html; charset=utf-8').send(html);
  });

  await registerAction(fastify, console, {
    path: 'mails/templates/:name/test',
    section: 'branding',
    querystring: console.localized.querystring,
    title: ({ name }) => `Send “${sentenceCase(name)}” as a test`,
    consequences: 'The e-mail has sample values and is sent at once. Its links do not work.',
    button: 'Send',
    role: 'support',
    fields: Type.Object({ to: Email }),
    inputs: [{ name: 'to', label: 'To', hint: 'An address of yours.', type: 'email', isRequired: true }],
    async find({ name = '' }, { locale }) {
      await mails.preview(name, locale);
      return { name, locale };
    },
    run: ({ name, locale }, { to }, by) => mails.sendTest(name, to, { locale, by }),
    done: {
      sent: 'The mail server accepted the test e-mail.',
      written: 'No mail server is configured: the test e-mail was written to data/mail.',
      undeliverable: 'No mail server is configured: the test e-mail was only logged.',
    },
    timeoutMs: 30_000,
    returnTo: ({ name, locale }) => `mails/templates/${name}${queryOf(locale)}`,
  });
}
