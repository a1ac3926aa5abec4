import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { addressProblem, insecureAddress } from '../../core/config/public-url.js';
import { formatValue, mustBe } from '../../core/config/validation-messages.js';
import { DisplayName, Email, matchesSchema } from '../../core/http/schemas.js';
import { templateProblems } from './templates.js';
import { DEFAULT_SERVICE, isKnownService } from './transport.js';

/** Whether a text is exactly one address, also as parsed by mail programs. */
export const isEmailAddress = (text: string): boolean => matchesSchema(text, Email);

/**
 * The options of e-mail.
 *
 * @param prefix of the environment variables
 * @param name describes the default of the sender name
 */
export const emailOptions = (prefix: '' | 'IDP_', name: string) => ({
  emailApiKey: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}EMAIL_API_KEY`,
    doc: `API key of the e-mail provider. Without it and without ${prefix}EMAIL_SMTP_URL, no e-mail is sent.`,
    secret: true,
    check: (key) =>
      /^[\x21-\x7e]+$/.test(key ?? '') ? undefined : 'must contain no spaces or control characters.',
  }),
  emailService: option(Type.String({ default: DEFAULT_SERVICE }), {
    env: `${prefix}EMAIL_SERVICE`,
    doc: `E-mail provider that ${prefix}EMAIL_API_KEY belongs to, by its name in Nodemailer: Resend, SendGrid, Postmark, …`,
    check: (name) =>
      isKnownService(name)
        ? undefined
        : `must name an e-mail provider that Nodemailer knows, like Resend; given: ${formatValue(name)}.`,
  }),
  emailUser: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}EMAIL_USER`,
    doc: 'User name at the e-mail provider.',
    shown: `resend, apikey for SendGrid, otherwise ${prefix}FROM_EMAIL`,
    check: (user) =>
      /^[\x20-\x7e]+$/.test(user ?? '') ? undefined : 'must contain printable ASCII characters only.',
  }),
  emailSmtpUrl: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}EMAIL_SMTP_URL`,
    doc: 'Your own SMTP server instead of a provider: smtps://user:password@mail.example or smtp://…',
    secret: true,
    check: (url) => smtpProblem(url ?? ''),
  }),
  emailApiUrl: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}EMAIL_API_URL`,
    doc: `HTTP API to which e-mails are posted instead of SMTP, with ${prefix}EMAIL_API_KEY as the bearer token, in the format of Resend: https://api.resend.com/emails`,
    shown: 'none: e-mails are sent over SMTP',
    check: (url) => addressProblem(url ?? ''),
    safe: (url) => insecureAddress(url ?? ''),
  }),
  fromEmail: option(Type.Optional(Type.String()), {
    env: `${prefix}FROM_EMAIL`,
    doc: 'Sender address of all e-mails.',
    shown: `no-reply@ and the host of ${prefix}PUBLIC_URL`,
    check: (address) =>
      isEmailAddress(address ?? '')
        ? undefined
        : `must be one address, like no-reply@app.example.com. The name goes into ${prefix}FROM_NAME.`,
  }),
  fromName: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}FROM_NAME`,
    doc: 'Sender name of all e-mails.',
    shown: name,
    check: (name) => (matchesSchema(name ?? '', DisplayName) ? undefined : `${mustBe(DisplayName, name)}.`),
  }),
  emailReplyTo: option(Type.Optional(Type.String()), {
    env: `${prefix}EMAIL_REPLY_TO`,
    doc: 'Address that replies to e-mails go to.',
    shown: 'the sender address',
    check: (address) =>
      isEmailAddress(address ?? '') ? undefined : 'must be one address, like support@example.com.',
  }),
  operatorEmails: option(Type.Optional(Type.Array(Type.String())), {
    env: `${prefix}OPERATOR_EMAILS`,
    doc: 'Addresses of operators, separated by commas. They get an e-mail when something begins to need attention, and one when it ends.',
    shown: 'none: only the overview shows it',
    check: (addresses = []) =>
      addresses.length > 0 && addresses.every(isEmailAddress)
        ? undefined
        : 'must be addresses like ops@example.com, separated by commas.',
  }),
  emailTemplateDir: option(Type.Optional(Type.String({ minLength: 1 })), {
    env: `${prefix}EMAIL_TEMPLATE_DIR`,
    doc: 'Folder with your own e-mail templates; each file replaces the file of the same name in templates/email.',
    shown: 'the templates of this package',
    check: (folder) => templateProblems(folder),
  }),
});

export type EmailConfiguration = Static<TObject<ReturnType<typeof emailOptions>>>;

function smtpProblem(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^smtps?:$/.test(url.protocol) || url.hostname === '') {
    return 'must be an address like smtps://user:password@mail.example:465.';
  }
  if (url.search || url.hash || !/^\/?$/.test(url.pathname)) return 'must contain no path and no parameters.';
  return isDecodable(url.username) && isDecodable(url.password)
    ? undefined
    : 'must have user and password percent-encoded.';
}

function isDecodable(text: string): boolean {
  try {
    return !/[\r\n\0]/.test(decodeURIComponent(text));
  } catch {
    return false;
  }
}
