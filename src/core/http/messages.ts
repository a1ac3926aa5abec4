import type { FastifyRequest } from 'fastify';
import mustache from 'mustache';
import Negotiator from 'negotiator';
import { Type } from 'typebox';
import type { Report } from '../config/configuration-error.js';
import { option } from '../config/options.js';
import { formatValue } from '../config/validation-messages.js';
import { MATCHED_CHARACTERS } from './browser.js';
import {
  BUILT_IN_FOLDER,
  FALLBACK_LOCALE,
  isLocale,
  localesIn,
  messagesProblem,
  readSentences,
  type Sentences,
} from './sentences.js';

/**
 * The sentences of pages and mails, in the locale of the reader. A template includes a sentence by `{{> t:sign-in.title}}`,
 * code creates one by `message('sign-in.wrong')`, without knowing the locale. The sentences of a locale are in
 * `templates/messages/<locale>.json`; an operator's folder adds locales and replaces sentences.
 */

/** Text that is rendered in the locale of its reader. */
export type Localized = (catalogue: Catalogue) => string;

/** A sentence as plain text. Its values may depend on the locale, too. */
export const message =
  (key: string, values: Record<string, unknown> = {}): Localized =>
  (catalogue) =>
    catalogue.text(key, localizeValues(values, catalogue));

/** `in 30 seconds`, `in 1 minute`. */
export const fromNow =
  (seconds: number): Localized =>
  ({ locale }) => {
    const format = new Intl.RelativeTimeFormat(locale);
    return seconds < 60 ? format.format(seconds, 'second') : format.format(Math.ceil(seconds / 60), 'minute');
  };

/** `24 hours`. */
const inUnits =
  (unit: 'day' | 'hour' | 'minute') =>
  (count: number): Localized =>
  ({ locale }) =>
    new Intl.NumberFormat(locale, { style: 'unit', unit, unitDisplay: 'long' }).format(count);
export const inHours = inUnits('hour');
export const inMinutes = inUnits('minute');
export const inDays = inUnits('day');

/** `31 January 2030`, in UTC. @param time Unix time in milliseconds */
export const longDate =
  (time: number): Localized =>
  ({ locale }) =>
    new Intl.DateTimeFormat(locale === FALLBACK_LOCALE ? 'en-GB' : locale, LONG_DATE).format(time);

/** `31 January 2030 at 12:00 UTC`. @param time Unix time in milliseconds */
export const longTime =
  (time: number): Localized =>
  ({ locale }) =>
    `${new Intl.DateTimeFormat(locale === FALLBACK_LOCALE ? 'en-GB' : locale, { ...LONG_DATE, timeStyle: 'short' }).format(time)} UTC`;

const LONG_DATE = { dateStyle: 'long', timeZone: 'UTC' } as const;

/** The sentences of one locale. */
export interface Catalogue {
  /** A BCP 47 language tag. */
  locale: string;
  direction: 'ltr' | 'rtl';
  has(key: string): boolean;
  /** A sentence as plain text. */
  text(key: string, values?: Record<string, unknown>): string;
  /** Replaces each `{{> t:key}}` of a Mustache template by its sentence, which can use the values of the template. */
  localize(template: string, format: 'html' | 'text'): string;
}

export type Messages = ReturnType<typeof createMessages>;

/** The options of the message catalogue. @param prefix of the environment variables */
export const messagesOptions = (prefix: '' | 'IDP_') => ({
  defaultLocale: option(Type.String({ default: FALLBACK_LOCALE }), {
    env: `${prefix}DEFAULT_LOCALE`,
    doc: 'Language of readers whose own language is not available, as a BCP 47 tag like de.',
    check: (locale) =>
      isLocale(locale)
        ? undefined
        : `must be a language tag like de or pt-BR; given: ${formatValue(locale)}.`,
  }),
  messagesDir: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}MESSAGES_DIR`,
    doc: 'Folder with your own sentences for pages and e-mails: each <locale>.json adds a language or replaces sentences.',
    shown: 'the sentences of this package',
    check: (folder = '') => messagesProblem(folder),
  }),
});

interface MessagesConfiguration {
  defaultLocale: string;
  messagesDir?: string;
}

/** Rejects a default locale without a catalogue. @param prefix of the environment variables */
export function refuseUnknownLocale(
  { defaultLocale, messagesDir }: MessagesConfiguration,
  prefix: '' | 'IDP_',
  report: Report,
): void {
  // Invalid values are reported already.
  if (!isLocale(defaultLocale)) return;
  if (messagesDir !== undefined && messagesProblem(messagesDir) !== undefined) return;
  const available = foldersOf(messagesDir).flatMap(localesIn);
  if (available.includes(defaultLocale)) return;
  report.refuse(
    `${prefix}DEFAULT_LOCALE must be one of ${[...new Set(available)].join(', ')}; given: ${formatValue(defaultLocale)}.`,
    `To add a language, see ${prefix}MESSAGES_DIR.`,
  );
}

const foldersOf = (own: string | undefined): string[] =>
  own === undefined ? [BUILT_IN_FOLDER] : [BUILT_IN_FOLDER, own];

export function createMessages(configuration: Partial<MessagesConfiguration> = {}) {
  const { defaultLocale = FALLBACK_LOCALE, messagesDir } = configuration;
  const folders = foldersOf(messagesDir);
  const locales = [...new Set([defaultLocale, ...folders.flatMap(localesIn)])];
  const catalogues = new Map<string, Catalogue>();

  /** Reads a catalogue on first use. */
  const load = (locale: string): Catalogue => {
    const known = catalogues.get(locale);
    if (known) return known;
    // From the least to the most specific locale, and the operator's sentences after those of the package.
    const chain = [...new Set([FALLBACK_LOCALE, ...withWiderLocales(locale).reverse()])];
    const sentences = chain.flatMap((name) => folders.map((folder) => readSentences(folder, name)));
    const catalogue = createCatalogue(locale, Object.assign({}, ...sentences));
    catalogues.set(locale, catalogue);
    return catalogue;
  };

  return {
    /** The locales that have a catalogue, the default one first. */
    locales,

    /** The catalogue of a locale, of its language, or else of the default locale. */
    catalogue(locale: string = defaultLocale): Catalogue {
      const available = withWiderLocales(locale).find((name) => locales.includes(name));
      return load(available ?? defaultLocale);
    },

    /** The locale that a browser prefers, if it is available. `uiLocales` takes precedence (OIDC Core §3.1.2.1). */
    negotiate({ headers }: Pick<FastifyRequest, 'headers'>, uiLocales: string = ''): string | undefined {
      const lists = [uiLocales.trim().replaceAll(' ', ','), headers['accept-language'] ?? ''];
      for (const text of lists.filter((one) => one !== '')) {
        const list = text.slice(0, MATCHED_CHARACTERS);
        const [preferred] = new Negotiator({ headers: { 'accept-language': list } }).languages([...locales]);
        if (preferred !== undefined) return preferred;
      }
      return undefined;
    },
  };
}

/** `de-AT` → `['de-AT', 'de']` */
function withWiderLocales(locale: string): string[] {
  const parts = locale.split('-');
  return parts.map((_, index) => parts.slice(0, parts.length - index).join('-'));
}

/** Renders the values that depend on the locale, also those in lists and their items. */
export function localizeValues(
  values: Record<string, unknown>,
  catalogue: Catalogue,
): Record<string, unknown> {
  const localize = (value: unknown): unknown =>
    typeof value === 'function' ? (value as Localized)(catalogue) : value;
  const localizeItem = (item: unknown): unknown =>
    typeof item === 'object' && item !== null
      ? localizeValues(item as Record<string, unknown>, catalogue)
      : localize(item);
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      Array.isArray(value) ? value.map(localizeItem) : localize(value),
    ]),
  );
}

const SENTENCE_TAG = /\{\{> ?t:([\w.-]+) ?\}\}/g;

/** The keys of the sentences that a template includes. */
export const sentencesIn = (template: string): string[] =>
  [...template.matchAll(SENTENCE_TAG)].map(([, key = '']) => key);

/** Everything except the elements that a sentence may contain. */
const FOREIGN_MARKUP = /<(?!\/?(?:strong|code)>)/g;

const PLAIN_TEXT = { escape: (value: unknown) => String(value) };

function createCatalogue(locale: string, sentences: Sentences): Catalogue {
  const sentence = (key: string): string => {
    const text = sentences[key];
    if (text === undefined) throw new Error(`There is no message '${key}'.`);
    return text;
  };
  const toHtml = (text: string) =>
    text.replaceAll('&', '&amp;').replaceAll('"', '&quot;').replace(FOREIGN_MARKUP, '&lt;');
  const { script = '' } = new Intl.Locale(locale).maximize();
  return {
    locale,
    direction: RIGHT_TO_LEFT.has(script) ? 'rtl' : 'ltr',
    has: (key) => sentences[key] !== undefined,
    text: (key, values = {}) => mustache.render(sentence(key), values, {}, PLAIN_TEXT),
    localize: (template, format) =>
      template.replace(SENTENCE_TAG, (_, key: string) =>
        format === 'html' ? toHtml(sentence(key)) : sentence(key),
      ),
  };
}

/** Scripts that are written from right to left; `Intl` does not tell in every supported version of Node.js. */
const RIGHT_TO_LEFT = new Set(['Adlm', 'Arab', 'Hebr', 'Mand', 'Nkoo', 'Rohg', 'Syrc', 'Thaa']);
