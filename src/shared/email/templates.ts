import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import mustache from 'mustache';
import { type BrandColours, STANDARD_COLOURS } from '../../core/http/brand.js';
import {
  type Catalogue,
  createMessages,
  inHours,
  type Localized,
  localizeValues,
  longDate,
  longTime,
  message,
} from '../../core/http/messages.js';
import { packageFile } from '../../core/kernel/package-files.js';
import { withoutByteOrderMark } from '../../core/kernel/text.js';

/**
 * Logic-less templates in `templates/email`, with the sentences of the message catalogue. An operator can replace each file
 * by one of the same name in another folder. The set of file names is fixed, so that no value becomes part of a path.
 */

/** Values that the service adds to every mail. */
const COMMON_VALUES: readonly string[] = [
  ...['siteName', 'siteUrl', 'locale', 'direction'],
  ...Object.keys(STANDARD_COLOURS).map((name) => `colours.${name}`),
];

/** When and from where something was requested. */
const ORIGIN_VALUES = ['when?', 'ipAddress?', 'browser?'] as const;

/** Whose mail it is: only at a verified address. `fields` are those that the host declares, like `fields.company`. */
const PERSON_VALUES = ['name?', 'fields?'] as const;

/** The values of each mail. Those with `?` are optional. */
const VALUES = {
  'password-reset': ['email', 'link', 'validFor', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'password-changed': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'verify-email': ['email', 'link', 'validFor'],
  'confirm-address-change': ['email', 'link', 'validFor'],
  'email-changed': ['email', 'newEmail', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'second-factor-added': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'second-factor-removed': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'passkey-added': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'passkey-removed': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'agents-connected': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'agents-disconnected': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'key-created': ['email', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'identity-connected': ['email', 'provider', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'identity-disconnected': ['email', 'provider', ...PERSON_VALUES, ...ORIGIN_VALUES],
  unlock: ['email', 'link', 'validFor', ...PERSON_VALUES, ...ORIGIN_VALUES],
  'login-code': ['email', 'code', 'link?', 'validFor', ...PERSON_VALUES, ...ORIGIN_VALUES],
  welcome: ['email', ...PERSON_VALUES],
  'payment-failed': ['email', 'link', 'plan?', 'amount?', 'invoiceLink?', 'name?'],
  receipt: ['email', 'link', 'plan?', 'amount?', 'paidOn?', 'invoiceLink?', 'name?'],
  renewal: ['email', 'link', 'renewsOn', 'amount?', 'plan?', 'name?'],
  'card-expiring': ['email', 'link', 'card', 'validUntil', 'name?'],
  'payment-action': ['email', 'link', 'plan?', 'amount?', 'invoiceLink?', 'name?'],
  'approval-requested': ['email', 'agent', 'resource', 'link', 'until', 'name?'],
  invitation: ['email', 'handle', 'link', 'validFor', 'application?', 'name?'],
  'organization-invitation': ['email', 'organization', 'link', 'validFor'],
  'subscription-canceled': ['email', 'link', 'plan?', 'endsOn?', 'name?'],
  'trial-ending': ['email', 'link', 'endsOn', 'plan?', 'name?'],
  'attention-began': ['problem', 'count', 'since', 'link'],
  'attention-ended': ['problem', 'count', 'since', 'link'],
};

export type MailName = keyof typeof VALUES;
export const MAIL_NAMES = Object.keys(VALUES) as MailName[];

const SAMPLES: Record<string, string | Localized> = {
  email: 'ada@example.com',
  newEmail: 'ada.lovelace@example.com',
  name: 'Ada',
  provider: 'Google',
  handle: 'ada',
  application: 'Grafana',
  organization: 'Analytical Engines',
  code: '7KQM-3XWT',
  agent: 'Shopping assistant',
  resource: 'Payments',
  until: longTime(Date.UTC(2030, 0, 31, 12)),
  validFor: inHours(1),
  plan: 'Pro',
  amount: ({ locale }) => new Intl.NumberFormat(locale, { style: 'currency', currency: 'EUR' }).format(29),
  endsOn: longDate(Date.UTC(2030, 0, 31)),
  renewsOn: longDate(Date.UTC(2030, 0, 31)),
  paidOn: longDate(Date.UTC(2030, 0, 31)),
  validUntil: longDate(Date.UTC(2030, 0, 31)),
  card: '4242',
  problem: message('attention.failed-mails'),
  count: '3',
  since: longTime(Date.UTC(2030, 0, 31, 12)),
  invoiceLink: 'https://invoice.example.com/i/example',
  when: longTime(Date.UTC(2030, 0, 31, 12)),
  ipAddress: '203.0.113.7',
  browser: 'Firefox',
};

const PARTS = ['subject', 'text', 'html'] as const;
type Part = (typeof PARTS)[number];

/** Partials that templates of the same extension can include. */
const PARTIALS = [
  '_head.html',
  '_brand.html',
  '_greeting.html',
  '_origin.html',
  '_foot.html',
  '_greeting.text',
  '_origin.text',
  '_foot.text',
] as const;

const TEMPLATE_FILES: readonly string[] = [
  ...MAIL_NAMES.flatMap((name) => PARTS.map((part) => `${name}.${part}`)),
  ...PARTIALS,
];

/**
 * Mails that differ in their sentences only share templates, like `notice.html`. In every template, `t:mail.this.title` is the
 * sentence `title` of the mail.
 */
const SHARED: Readonly<Record<string, readonly MailName[]>> = {
  notice: [
    'password-changed',
    'email-changed',
    'second-factor-added',
    'second-factor-removed',
    'passkey-added',
    'passkey-removed',
    'agents-connected',
    'agents-disconnected',
    'key-created',
    'identity-connected',
    'identity-disconnected',
  ],
  address: ['verify-email', 'confirm-address-change', 'organization-invitation'],
  'payment-ahead': ['renewal', 'trial-ending'],
  attention: ['attention-began', 'attention-ended'],
};

/** That of all mails. */
const SUBJECT = 'mail.subject';

const KNOWN_FILES: readonly string[] = [
  ...TEMPLATE_FILES,
  ...Object.keys(SHARED).flatMap((name) => [`${name}.text`, `${name}.html`]),
  SUBJECT,
];

export interface RenderedMail {
  /** One line. */
  subject: string;
  text: string;
  html: string;
}

export interface Templates {
  render(name: MailName, values: Record<string, string>, catalogue: Catalogue): RenderedMail;
}

export interface TemplateOptions {
  /** The operator's templates, which replace the built-in ones. */
  folder?: string | undefined;
  colours?: BrandColours;
}

const BUILT_IN_FOLDER = packageFile('templates/email');

/** The files of an operator's folder that are used. */
export const ownTemplates = (folder: string | undefined): string[] =>
  folder === undefined ? [] : KNOWN_FILES.filter((file) => existsSync(join(folder, file)));

/** Validates a folder of templates. Returns the problems as the end of a sentence. */
export function templateProblems(folder: string | undefined): string | undefined {
  if (folder === undefined) return undefined;
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return 'is not a folder.';
  const english = createMessages().catalogue();
  const unknownFiles = readdirSync(folder).filter(
    (file) => /\.(subject|text|html)$/.test(file) && !KNOWN_FILES.includes(file),
  );
  const problems = new Set([
    ...unknownFiles.map((file) => `${file} does not match any template`),
    ...TEMPLATE_FILES.flatMap((file) => validateTemplate(file, folder, english) ?? []),
  ]);
  return problems.size === 0 ? undefined : `contains broken templates: ${[...problems].join('; ')}.`;
}

/** Reads all templates. Those of a language are compiled on first use. */
export function loadTemplates({ folder, colours = STANDARD_COLOURS }: TemplateOptions = {}): Templates {
  const sources = readTemplates(folder);
  const localized = new Map<string, Record<string, string>>();

  const textsIn = (catalogue: Catalogue): Record<string, string> => {
    let texts = localized.get(catalogue.locale);
    if (!texts) {
      texts = Object.fromEntries(sources.map(([file, text]) => [file, localizeFile(file, text, catalogue)]));
      localized.set(catalogue.locale, texts);
    }
    return texts;
  };

  return {
    render(name, values, catalogue) {
      const texts = textsIn(catalogue);
      const { locale, direction } = catalogue;
      const view = {
        ...Object.fromEntries(Object.entries(values).map(([key, value]) => [key, toSingleLine(value)])),
        ...{ locale, direction, colours, fields: fieldsIn(values) },
      };
      const render = (part: Part) =>
        mustache.render(
          texts[`${name}.${part}`] ?? '',
          view,
          (partial: string) => texts[`${partial}.${part}`],
          part === 'html' ? {} : { escape: (value) => value },
        );
      return { subject: toSingleLine(render('subject')), text: render('text'), html: render('html') };
    },
  };
}

const FIELD = /^fields\.\w+$/;

/** Mustache looks `fields.company` up as an object in an object. */
const fieldsIn = (values: Record<string, string>) =>
  Object.fromEntries(
    Object.entries(values).flatMap(([key, value]) =>
      FIELD.test(key) ? [[key.slice('fields.'.length), toSingleLine(value)]] : [],
    ),
  );

/** Whether a mail can have the value with this name. */
const isKnown = (name: string, known: readonly string[]): boolean =>
  FIELD.test(name) ? known.includes('fields') : name !== 'fields' && known.includes(name);

/** Whether the link of a mail is a secret: it carries a token, and expires. */
export const hasSecretLink = (name: MailName): boolean => VALUES[name].includes('validFor');

const localizeFile = (file: string, text: string, catalogue: Catalogue): string =>
  catalogue.localize(text, file.endsWith('.html') ? 'html' : 'text');

/** Returns example values of a mail, with a link that is not valid. */
export function sampleValues(
  name: MailName,
  publicUrl: string,
  catalogue: Catalogue,
): Record<string, string> {
  const samples = localizeMailValues({ ...SAMPLES, link: `${publicUrl}/example?token=example` }, catalogue);
  const names = valueNames(name).filter((value) => value !== 'fields');
  return Object.fromEntries(names.map((value) => [value, samples[value] ?? '']));
}

/** The values of a mail in the language of its recipient. */
export const localizeMailValues = (
  values: Record<string, string | Localized>,
  catalogue: Catalogue,
): Record<string, string> => localizeValues(values, catalogue) as Record<string, string>;

/** The names of the values of a mail, without the marks of optional ones. */
const valueNames = (name: MailName): string[] => VALUES[name].map((value) => value.replace('?', ''));

/** @throws TypeError unless `values` are exactly the strings that the mail needs, which is an error of the calling code */
export function validateValues(name: MailName, values: Record<string, string>): void {
  if (!MAIL_NAMES.includes(name)) throw new TypeError(`There is no mail '${name}'.`);
  const known = valueNames(name);
  for (const [key, value] of Object.entries(values)) {
    if (!isKnown(key, known)) throw new TypeError(`The mail '${name}' has no value '${key}'.`);
    if (typeof value !== 'string') throw new TypeError(`The value '${key}' of '${name}' is not a string.`);
  }
  const missing = VALUES[name].find((value) => !value.endsWith('?') && !values[value]);
  if (missing) throw new TypeError(`The mail '${name}' lacks its value '${missing}'.`);
}

/** The templates of all mails, and the partials. */
export const readTemplates = (folder?: string) =>
  TEMPLATE_FILES.map((file) => [file, readTemplate(file, pathOf(file, folder))] as const);

/** The file of the operator, or else of the package: one of the mail alone, or else the shared one. */
function pathOf(file: string, folder: string | undefined): string {
  const [name = '', part = ''] = file.split('.');
  const [shared = name] = Object.entries(SHARED).find(([, names]) => names.includes(name as MailName)) ?? [];
  const files = [file, part === 'subject' ? SUBJECT : `${shared}.${part}`];
  const folders = folder === undefined ? [BUILT_IN_FOLDER] : [folder, BUILT_IN_FOLDER];
  const paths = folders.flatMap((one) => files.map((candidate) => join(one, candidate)));
  return paths.find((path) => existsSync(path)) ?? join(BUILT_IN_FOLDER, file);
}

function readTemplate(file: string, path: string): string {
  const [name] = file.split('.');
  const text = withoutByteOrderMark(readFileSync(path, 'utf8'));
  return text.replaceAll('t:mail.this.', `t:mail.${name}.`);
}

/** Reports invalid syntax, an unknown value, or a tag without escaping in one template. */
function validateTemplate(file: string, folder: string, english: Catalogue): string | undefined {
  const [name = '', part = ''] = file.split('.');
  const mails = name.startsWith('_') ? MAIL_NAMES : [name as MailName];
  const values = [...COMMON_VALUES, ...mails.flatMap(valueNames)];
  const partials = PARTIALS.filter((partial) => partial.endsWith(`.${part}`));
  const path = pathOf(file, folder);
  try {
    const text = localizeFile(file, readTemplate(file, path), english);
    const problem = validateTokens(mustache.parse(text) as Token[], {
      values,
      partials: partials.map((partial) => partial.slice(0, partial.indexOf('.'))),
    });
    return problem && `${basename(path)} ${problem}`;
  } catch (error) {
    return `${basename(path)} cannot be used (${(error as Error).message})`;
  }
}

/** A token of Mustache; a section contains tokens. */
type Token = [kind: string, name: string, start: number, end: number, children?: Token[]];

function validateTokens(
  tokens: Token[],
  known: { values: string[]; partials: string[] },
): string | undefined {
  for (const [kind, name, , , children] of tokens) {
    if (kind === '&') return `writes {{${name}}} unescaped; use two braces`;
    if (kind === '=') return 'changes the delimiters';
    if (kind === '>' && !known.partials.includes(name))
      return `includes '${name}', which is not a partial of this format`;
    if (['name', '#', '^'].includes(kind) && !isKnown(name, known.values))
      return `uses '${name}', which this e-mail does not provide`;
    const problem = Array.isArray(children) ? validateTokens(children, known) : undefined;
    if (problem) return problem;
  }
  return undefined;
}

/** Replaces line breaks, other control characters and bidirectional overrides. */
function toSingleLine(value: string): string {
  return value.replace(/[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]+/gu, ' ').trim();
}
