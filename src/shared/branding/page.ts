import type { Annotated } from '../../core/config/options.js';
import type { Brand } from '../../core/http/brand.js';
import type { Messages } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { httpErrors } from '../../core/kernel/errors.js';
import type { Console } from '../console-kit/console.js';
import { registerDetail } from '../console-kit/details.js';
import { type Column, tableOf } from '../console-kit/tables.js';
import type { MailAdministration } from '../email/administration.js';
import { localeLinks, queryOf, registerMailTemplates, TEMPLATE_COLUMNS, templateRows } from './mails.js';

/** What people see: the values in force with the place to change each, and every e-mail and page with example values. */

/** A page of people. */
export interface PreviewedPage {
  label: string;
  /** Its address, as a browser sees it. */
  href?: string;
  /** What it shows with example values, if it has no address of its own. */
  example?: { name: string; page(): Page };
}

export interface Branding {
  brand: Brand;
  messages: Messages;
  /** The schema, the values and the origins of the options. */
  schema: { properties: Record<string, unknown> };
  config: { values: object; origins: Readonly<Record<string, string>> };
  /** Where the default of the name is changed, relative to the root. */
  nameHref?: string;
  /** Absent if the product sends no e-mails. */
  mails: MailAdministration | undefined;
  pages(): readonly PreviewedPage[];
}

/** The options that decide what people see. */
const LABELS: Readonly<Record<string, string>> = {
  brandName: 'Product name',
  brandLogo: 'Logo',
  brandLogoDark: 'Logo in dark mode',
  brandAccent: 'Accent',
  publicUrl: 'Address',
  fromName: 'Name of the sender',
  fromEmail: 'Address of the sender',
  emailReplyTo: 'Replies go to',
  emailTemplateDir: 'Own e-mail templates',
  defaultLocale: 'Language of others',
  messagesDir: 'Own sentences',
};

interface Value {
  label: string;
  text: string;
  origin: string;
  variable: string;
  href: string | null;
}

const VALUE_COLUMNS: readonly Column<Value>[] = [
  { label: 'What', text: ({ label }) => label },
  { label: 'Value', text: ({ text }) => text },
  { label: 'Comes from', text: ({ origin }) => origin },
  { label: 'Change it with', text: ({ variable }) => variable, href: ({ href }) => href, kind: 'code' },
];

const PAGE_COLUMNS: readonly Column<{ label: string; href: string }>[] = [
  { label: 'Page', text: ({ label }) => label, href: ({ href }) => href },
];

export type BrandingPlugin = ReturnType<typeof createBranding>;

/** The pages of a console. */
export const createBranding =
  (branding: Branding) =>
  (fastify: FastifyTypebox, { console }: { console: Console }): Promise<void> =>
    registerBranding(fastify, console, branding);

async function registerBranding(
  fastify: FastifyTypebox,
  console: Console,
  branding: Branding,
): Promise<void> {
  const { brand, messages, mails, pages } = branding;
  const { locales } = messages;
  registerDetail(fastify, console, {
    path: 'branding',
    section: 'branding',
    template: 'console-branding',
    isLocalized: true,
    find: async (_, { locale }) => ({ locale, rows: mails && (await templateRows(mails, locale)) }),
    view: ({ locale, rows = [] }, root) => ({
      title: 'Branding',
      periods: localeLinks(locales, locale),
      periodsLabel: 'Language',
      ...{ logo: brand.logo ?? false, logoDark: brand.logoDark ?? brand.logo },
      swatches: swatchesOf(brand),
      tables: [
        {
          id: 'values',
          heading: 'Values in force',
          note: 'Values come from options, variables and files only; they apply after a restart.',
          ...tableOf(VALUE_COLUMNS, valuesOf(branding), root),
        },
        {
          id: 'mails',
          heading: 'E-mails',
          note: mails ? 'With example values, by the code that sends them.' : 'No mail server is configured.',
          ...tableOf(TEMPLATE_COLUMNS, rows, root),
        },
        {
          id: 'pages',
          heading: 'Pages',
          note: 'The real pages. Those that need the request of an application have example values, and their forms do nothing.',
          ...tableOf(PAGE_COLUMNS, pages().map(hrefIn(locale ?? '', root)), ''),
        },
      ].map((table) => ({ tableLabel: table.heading, ...table })),
    }),
  });
  const route = { config: console.config, schema: console.localized };
  fastify.get('/branding/pages/:name', route, ({ params: { name }, query: { locale } }, reply) => {
    const shown = pages().find(({ example }) => example?.name === name)?.example;
    if (!shown) throw httpErrors.NOT_FOUND();
    return console.sendExample(reply, { ...shown.page(), ...(locale && { uiLocales: locale }) });
  });
  if (mails) await registerMailTemplates(fastify, console, { mails, locales });
}

/** Where a page is shown in a language. */
const hrefIn =
  (locale: string, root: string) =>
  ({ label, href, example }: PreviewedPage) => ({
    label,
    href: example
      ? `${root}branding/pages/${example.name}${queryOf(locale)}`
      : `${href}${locale && `?ui_locales=${locale}`}`,
  });

function valuesOf({ brand, schema, config, nameHref, mails }: Branding): Value[] {
  const values = config.values as Record<string, unknown>;
  return Object.entries(LABELS).map(([name, label]) => {
    const { option, default: standard } = schema.properties[name] as Annotated;
    const value = values[name];
    const own = name === 'emailTemplateDir' && value ? `: ${mails?.ownTemplates.join(', ')}` : '';
    const shown = name === 'brandName' ? brand.name() : (value ?? option.shown ?? standard ?? 'not set');
    const origin = config.origins[name];
    return {
      label,
      text: `${shown}${own}`,
      origin: origin ?? 'default',
      variable: option.env,
      href: name === 'brandName' && origin === undefined ? (nameHref ?? null) : null,
    };
  });
}

const swatchesOf = ({ colours }: Brand) => [
  { label: 'Buttons', colour: colours.button },
  { label: 'Links', colour: colours.link },
  { label: 'Buttons in dark mode', colour: colours.darkButton },
  { label: 'Links in dark mode', colour: colours.darkLink },
];
