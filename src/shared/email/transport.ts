import { createRequire } from 'node:module';
import type { SMTPPoolOptions } from 'nodemailer/lib/smtp-pool';
import { isLoopback } from '../../core/config/public-url.js';
import { SECOND } from '../../core/kernel/clock.js';
import type { MailName } from './templates.js';

/** A mail that is ready to be sent. */
export interface Message {
  /** `test` is the mail of `doctor`, which has no template. */
  template: MailName | 'test';
  from: { name: string; address: string };
  /** Where replies go, if not to `from`. */
  replyTo?: string;
  /** The only recipient. */
  to: string;
  subject: string;
  text: string;
  html: string;
  /** The same for every attempt, so that receivers can discard duplicates. */
  messageId: string;
}

/** Accepted by a mail server, written to a file, or impossible to deliver without a mail server. */
export type DeliveryResult = 'sent' | 'written' | 'undeliverable';

export interface Transport {
  /** @throws DeliveryError */
  send(message: Message, signal: AbortSignal): Promise<DeliveryResult>;
  /** Connects and signs in, without sending; absent without a mail server. @throws DeliveryError */
  verify?(): Promise<void>;
  /** Closes idle connections. */
  close(): Promise<void>;
}

/** A failed attempt. The message contains no secrets. */
export class DeliveryError extends Error {
  override readonly name = 'DeliveryError';
  /** Whether the recipient was rejected permanently, so that a retry is useless. */
  readonly isFinal: boolean;

  constructor(reason: string, isFinal: boolean, options?: ErrorOptions) {
    super(reason, options);
    this.isFinal = isFinal;
  }
}

export const DEFAULT_SERVICE = 'Resend';

/** The user names that providers require with an API key. */
const SERVICE_USERS: Record<string, string> = { resend: 'resend', sendgrid: 'apikey' };

/** Prevents the replies of vacation responders (RFC 3834; Exchange knows its own header only). */
export const HEADERS = { 'Auto-Submitted': 'auto-generated', 'X-Auto-Response-Suppress': 'OOF, AutoReply' };

const require = createRequire(import.meta.url);

/** The connection to a mail server. */
export interface SmtpSettings {
  /** A provider known to Nodemailer, or a host. */
  server: { service: string } | { host: string; port: number; secure: boolean };
  auth: { user: string; pass: string } | undefined;
  /** Whether to reject a connection that cannot be encrypted. */
  requireTLS: boolean;
}

/** Whether Nodemailer knows a provider. For an unknown name, it would connect to localhost. */
export function isKnownService(name: string): boolean {
  if (name === DEFAULT_SERVICE) return true;
  // Synchronous, because options are validated synchronously.
  const wellKnown: (key: string) => SMTPPoolOptions | false = require('nodemailer/lib/well-known');
  const service = wellKnown(name);
  return service !== false && typeof service.host === 'string' && !name.includes('@');
}

/** Derives the connection from the options; `undefined` without a mail server. Credentials require TLS, except on localhost. */
export function smtpSettings(options: {
  smtpUrl: string | undefined;
  service: string;
  user: string | undefined;
  apiKey: string | undefined;
  fromEmail: string;
}): SmtpSettings | undefined {
  const { smtpUrl, service, user, apiKey, fromEmail } = options;
  if (smtpUrl !== undefined) {
    const { protocol, hostname, port, username, password } = new URL(smtpUrl);
    const secure = protocol === 'smtps:';
    const host = hostname.replace(/^\[|\]$/g, '');
    const auth = username
      ? { user: decodeURIComponent(username), pass: decodeURIComponent(password) }
      : undefined;
    const server = { host, port: Number(port) || (secure ? 465 : 587), secure };
    return { server, auth, requireTLS: !secure && auth !== undefined && !isLoopback(hostname) };
  }
  if (apiKey === undefined) return undefined;
  const name = user ?? SERVICE_USERS[service.toLowerCase()] ?? fromEmail;
  return { server: { service }, auth: { user: name, pass: apiKey }, requireTLS: true };
}

/** Nodemailer is loaded with the first mail. @param timeoutMs limits each delivery and each of its steps */
export function createSmtpTransport(
  { server, auth, requireTLS }: SmtpSettings,
  timeoutMs: number = 10 * SECOND,
): Transport {
  const options = {
    ...server,
    ...(auth && { auth }),
    requireTLS,
    pool: true as const,
    maxConnections: 5,
    // Only the outbox retries, because a retry by Nodemailer could duplicate a delivered message.
    maxRequeues: 0,
    idleTimeout: 5 * SECOND,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    dnsTimeout: timeoutMs,
    socketCloseTimeout: SECOND,
    disableFileAccess: true,
    disableUrlAccess: true,
    maxRecipients: 1,
  } satisfies SMTPPoolOptions;
  let loading: ReturnType<typeof createTransporter> | undefined;

  return {
    async send(message, signal) {
      loading ??= createTransporter(options);
      const transporter = await loading;
      const { template: _, to, replyTo, ...rest } = message;
      const deadline = createDeadline(timeoutMs, signal);
      try {
        await transporter.sendMail({
          ...rest,
          to: { name: '', address: to },
          ...(replyTo !== undefined && { replyTo: { name: '', address: replyTo } }),
          headers: HEADERS,
          signal: deadline.signal,
        });
        return 'sent';
      } catch (error) {
        throw deadline.signal.aborted
          ? new DeliveryError('the mail server did not respond in time', false)
          : toDeliveryError(error as SmtpError);
      } finally {
        deadline.clear();
      }
    },
    async verify() {
      loading ??= createTransporter(options);
      await (await loading).verify().catch((error: SmtpError) => {
        throw toDeliveryError(error);
      });
    },
    async close() {
      (await loading)?.close();
    },
  };
}

async function createTransporter(options: SMTPPoolOptions & { pool: true }) {
  const { createTransport } = await import('nodemailer');
  const transporter = createTransport(options);
  transporter.use('stream', (mail, done) => {
    const { to } = mail.message.getEnvelope();
    const { to: wanted } = mail.data as { to: { address: string } };
    const isOne = Array.isArray(to) && to.length === 1 && to[0] === wanted.address;
    done(isOne ? null : new DeliveryError('the address is not exactly one recipient', true));
  });
  return transporter;
}

/** A separate signal for each delivery, so that listeners do not accumulate on a shared one. */
function createDeadline(timeoutMs: number, signal: AbortSignal) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const timer = setTimeout(abort, timeoutMs);
  if (signal.aborted) abort();
  signal.addEventListener('abort', abort, { once: true });
  return {
    signal: controller.signal,
    clear() {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
    },
  };
}

interface SmtpError extends Error {
  code?: string;
  command?: string;
  responseCode?: number;
  response?: string;
}

function toDeliveryError(error: SmtpError): DeliveryError {
  if (error instanceof DeliveryError) return error;
  const { code = 'ERROR', command, responseCode, response } = error;
  const isFinal = command === 'RCPT TO' && responseCode !== undefined && responseCode >= 500;
  const step = command === undefined ? '' : ` at ${command}`;
  const text = withoutSecrets(response ?? '');
  return new DeliveryError(`${code}${step}${text ? `: ${text}` : ''}`, isFinal);
}

/** The beginning of a refusal without long words and addresses, which may repeat links and keys. */
export function withoutSecrets(answer: string): string {
  const text = answer.slice(0, 2000).replace(/[^\x20-\x7e]+/g, ' ');
  // Split at spaces, because a search for words with @ would start again at each character.
  const words = text.split(' ').map((word) => (word.includes('@') || word.length >= 20 ? '…' : word));
  return words.join(' ').slice(0, 200);
}
