import { createRequire } from 'node:module';
import type { SMTPPoolOptions } from 'nodemailer/lib/smtp-pool';
import { isLoopback } from '../config/public-url.js';
import { SECOND } from '../kernel/clock.js';
import type { MailName } from './templates.js';

/** Where mails leave the process: the only file that knows Nodemailer, which is loaded at the first mail. */

/** A mail ready to leave. */
export interface Message {
  template: MailName;
  from: { name: string; address: string };
  /** The one address it goes to. */
  to: string;
  subject: string;
  text: string;
  html: string;
  /** The same for every attempt, so that receivers can drop a duplicate. */
  messageId: string;
}

/** What became of a mail: handed to a mail server, put into a file, or nowhere to go. */
export type Outcome = 'sent' | 'written' | 'undeliverable';

export interface Transport {
  /** @throws DeliveryError */
  send(message: Message, signal: AbortSignal): Promise<Outcome>;
  /** Lets go of idle connections. */
  close(): Promise<void>;
}

/** Why a mail could not be handed over, in words that hold no secret. */
export class DeliveryError extends Error {
  override readonly name = 'DeliveryError';
  /** Whether trying again is pointless: the receiving side does not want this recipient. */
  readonly isFinal: boolean;

  constructor(reason: string, isFinal: boolean, options?: ErrorOptions) {
    super(reason, options);
    this.isFinal = isFinal;
  }
}

export const DEFAULT_SERVICE = 'Resend';

/** What providers want as user name beside the key. */
const SERVICE_USERS: Record<string, string> = { resend: 'resend', sendgrid: 'apikey' };

const require = createRequire(import.meta.url);

/** How a mail server is reached. */
export interface SmtpSettings {
  /** One of the two. */
  server: { service: string } | { host: string; port: number; secure: boolean };
  auth: { user: string; pass: string } | undefined;
  /** Whether a connection that cannot be encrypted is given up. */
  requireTLS: boolean;
}

/** Whether Nodemailer knows a provider by this name. It would take an unknown one for this machine. */
export function isKnownService(name: string): boolean {
  if (name === DEFAULT_SERVICE) return true;
  // At once, because options are read at once.
  const wellKnown: (key: string) => SMTPPoolOptions | false = require('nodemailer/lib/well-known');
  const service = wellKnown(name);
  return service !== false && typeof service.host === 'string' && !name.includes('@');
}

/** What the options say of the mail server; nothing where they name none. A password travels encrypted or stays on this machine. */
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

/** @param timeout milliseconds for the whole of one delivery, and for each of its steps */
export function createSmtpTransport(
  { server, auth, requireTLS }: SmtpSettings,
  timeout: number = 10 * SECOND,
): Transport {
  const options = {
    ...server,
    ...(auth && { auth }),
    requireTLS,
    pool: true as const,
    maxConnections: 5,
    // The outbox tries again; a second try in here could follow a message that had arrived.
    maxRequeues: 0,
    idleTimeout: 5 * SECOND,
    connectionTimeout: timeout,
    greetingTimeout: timeout,
    socketTimeout: timeout,
    dnsTimeout: timeout,
    socketCloseTimeout: SECOND,
    disableFileAccess: true,
    disableUrlAccess: true,
    maxRecipients: 1,
  } satisfies SMTPPoolOptions;
  let loading: ReturnType<typeof load> | undefined;

  return {
    async send(message, signal) {
      loading ??= load(options);
      const transporter = await loading;
      const { template: _, to, ...rest } = message;
      const limit = deadline(timeout, signal);
      try {
        await transporter.sendMail({ ...rest, to: { name: '', address: to }, signal: limit.signal });
        return 'sent';
      } catch (error) {
        throw limit.signal.aborted
          ? new DeliveryError('the mail server did not respond in time', false)
          : deliveryError(error as SmtpError);
      } finally {
        limit.clear();
      }
    },
    async close() {
      (await loading)?.close();
    },
  };
}

async function load(options: SMTPPoolOptions & { pool: true }) {
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

/** A signal of its own for each delivery: what listens to it goes with it. */
function deadline(timeout: number, signal: AbortSignal) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  const timer = setTimeout(abort, timeout);
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

/** The server's answer without what it may repeat of ours: links, addresses, keys. */
function deliveryError(error: SmtpError): DeliveryError {
  if (error instanceof DeliveryError) return error;
  const { code = 'ERROR', command, responseCode, response } = error;
  const isFinal = command === 'RCPT TO' && responseCode !== undefined && responseCode >= 500;
  const step = command === undefined ? '' : ` at ${command}`;
  const words = response?.replace(/[^\x20-\x7e]+/g, ' ').replace(/\S*@\S*|\S{20,}/g, '…');
  return new DeliveryError(`${code}${step}${words ? `: ${words.slice(0, 200)}` : ''}`, isFinal);
}
