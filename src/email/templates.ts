import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import mustache from 'mustache';

/**
 * Mails: logic-less templates of `templates/email`, each file replaceable by one of the same name in a folder
 * of the operator's. File names are these and no others, so no value ever becomes part of a path.
 */

export const MAIL_NAMES = [
  'password-reset',
  'password-changed',
  'verify-email',
  'email-changed',
  'unlock',
  'welcome',
  'payment-failed',
  'subscription-canceled',
  'trial-ending',
] as const;
export type MailName = (typeof MAIL_NAMES)[number];

/** What the service adds to the values of every mail. */
const ADDED = ['siteName', 'siteUrl'] as const;

/** The values that each mail is put with. Those with `?` may be missing or empty. */
const VALUES: Record<MailName, readonly string[]> = {
  'password-reset': ['email', 'link', 'validFor', 'name?'],
  'password-changed': ['email', 'name?'],
  'verify-email': ['email', 'link', 'validFor'],
  'email-changed': ['email', 'newEmail', 'name?'],
  unlock: ['email', 'link', 'validFor', 'name?'],
  welcome: ['email', 'name?'],
  'payment-failed': ['email', 'link', 'plan?', 'amount?', 'name?'],
  'subscription-canceled': ['email', 'link', 'plan?', 'endsOn?', 'name?'],
  'trial-ending': ['email', 'link', 'endsOn', 'plan?', 'name?'],
};

const SAMPLES: Record<string, string> = {
  email: 'ada@example.com',
  newEmail: 'ada.lovelace@example.com',
  name: 'Ada',
  validFor: '1 hour',
  plan: 'Pro',
  amount: '€29.00',
  endsOn: '31 January 2030',
};

const PARTS = ['subject', 'text', 'html'] as const;
type Part = (typeof PARTS)[number];

/** What the templates of one kind include. */
const PARTIALS = ['_head.html', '_brand.html', '_foot.html', '_foot.text'] as const;

const FILES: readonly string[] = [
  ...MAIL_NAMES.flatMap((name) => PARTS.map((part) => `${name}.${part}`)),
  ...PARTIALS,
];

export interface RenderedMail {
  /** One line. */
  subject: string;
  text: string;
  html: string;
}

export interface Templates {
  render(name: MailName, values: Record<string, string>): RenderedMail;
}

const BUILT_IN = fileURLToPath(new URL('../../../templates/email/', import.meta.url));

/** What is wrong with a folder of templates, as the end of a sentence. */
export function templateProblems(folder: string | undefined): string | undefined {
  if (folder === undefined) return undefined;
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return 'is not a folder.';
  const strays = readdirSync(folder).filter(
    (file) => /\.(subject|text|html)$/.test(file) && !FILES.includes(file),
  );
  const problems = [
    ...strays.map((file) => `${file} does not match any template`),
    ...FILES.flatMap((file) => problemOf(file, folder) ?? []),
  ];
  return problems.length === 0 ? undefined : `holds broken templates: ${problems.join('; ')}.`;
}

/**
 * Reads and compiles all templates.
 * @param folder where templates stand that replace ours
 */
export function loadTemplates(folder: string | undefined): Templates {
  const texts = Object.fromEntries(FILES.map((file) => [file, read(file, folder)]));
  const partialsOf = (part: Part) => (name: string) => texts[`${name}.${part}`];
  const render = (file: string, part: Part, view: Record<string, string>) =>
    mustache.render(
      texts[file] ?? '',
      view,
      partialsOf(part),
      part === 'html' ? {} : { escape: (value) => value },
    );

  return {
    render(name, values) {
      const view = Object.fromEntries(Object.entries(values).map(([key, value]) => [key, onOneLine(value)]));
      return {
        subject: onOneLine(render(`${name}.subject`, 'subject', view)),
        text: render(`${name}.text`, 'text', view),
        html: render(`${name}.html`, 'html', view),
      };
    },
  };
}

/** Values that a mail could have been put with. Its link leads nowhere. */
export function sampleValues(name: MailName, publicUrl: string): Record<string, string> {
  const samples: Record<string, string> = { ...SAMPLES, link: `${publicUrl}/example?token=example` };
  return Object.fromEntries(namesOf(name).map((value) => [value, samples[value] ?? '']));
}

/** Without the marks of what may be missing. */
const namesOf = (name: MailName): string[] => VALUES[name].map((value) => value.replace('?', ''));

/** @throws TypeError where `values` are not what the mail needs, all of them strings: a mistake of the calling code */
export function checkValues(name: MailName, values: Record<string, string>): void {
  if (!MAIL_NAMES.includes(name)) throw new TypeError(`There is no mail '${name}'.`);
  const known = namesOf(name);
  for (const [key, value] of Object.entries(values)) {
    if (!known.includes(key)) throw new TypeError(`The mail '${name}' has no value '${key}'.`);
    if (typeof value !== 'string') throw new TypeError(`The value '${key}' of '${name}' is not a string.`);
  }
  const missing = VALUES[name].find((value) => !value.endsWith('?') && !values[value]);
  if (missing) throw new TypeError(`The mail '${name}' lacks its value '${missing}'.`);
}

function read(file: string, folder: string | undefined): string {
  const own = folder === undefined ? undefined : join(folder, file);
  return readFileSync(own !== undefined && existsSync(own) ? own : join(BUILT_IN, file), 'utf8');
}

/** What is wrong with one template: its syntax, a value nobody fills in, or a tag that would skip the escaping. */
function problemOf(file: string, folder: string): string | undefined {
  const [name = '', part = ''] = file.split('.');
  const mails = name.startsWith('_') ? MAIL_NAMES : [name as MailName];
  const values = [...ADDED, ...mails.flatMap(namesOf)];
  const partials = PARTIALS.filter((partial) => partial.endsWith(`.${part}`));
  try {
    const problem = problemIn(mustache.parse(read(file, folder)) as Token[], {
      values,
      partials: partials.map((partial) => partial.slice(0, partial.indexOf('.'))),
    });
    return problem && `${file} ${problem}`;
  } catch (error) {
    return `${file} cannot be used (${(error as Error).message})`;
  }
}

/** Kind, name, and for sections what is inside. */
type Token = [kind: string, name: string, start: number, end: number, inside?: Token[]];

function problemIn(tokens: Token[], known: { values: string[]; partials: string[] }): string | undefined {
  for (const [kind, name, , , inside] of tokens) {
    if (kind === '&') return `writes {{${name}}} unescaped; use two braces`;
    if (kind === '=') return 'changes the delimiters';
    if (kind === '>' && !known.partials.includes(name))
      return `includes '${name}', which is not a partial of this format`;
    if (['name', '#', '^'].includes(kind) && !known.values.includes(name))
      return `uses '${name}', which this e-mail does not provide`;
    const problem = Array.isArray(inside) ? problemIn(inside, known) : undefined;
    if (problem) return problem;
  }
  return undefined;
}

/** Without line breaks, other control characters and what reverses the text after it. */
function onOneLine(value: string): string {
  return value.replace(/[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]+/gu, ' ').trim();
}
