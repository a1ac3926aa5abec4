import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import type { Test } from 'tap';
import { systemRandom } from '../../src/core/kernel/secrets.js';
import { createMailContent } from '../../src/shared/email/content.js';
import type { MailDocument } from '../../src/shared/email/store.js';

/** One message as received. */
export interface Mail {
  from: string;
  to: string[];
  /** Headers and body, undecoded. */
  raw: string;
}

export interface MailSink {
  /** For EMAIL_SMTP_URL and Nodemailer. */
  readonly url: string;
  /** All accepted messages, the oldest first. */
  readonly mails: readonly Mail[];
  /** All messages received, accepted or not. */
  readonly offered: readonly Mail[];
  /** The oldest message that `next` has not returned yet; waits for one. */
  next(): Promise<Mail>;
}

/** The values of a mail in the store, which the server has encrypted with this secret. */
export const storedValues = (
  mail: Pick<MailDocument, 'key' | 'content' | 'values'>,
  secret: string,
): Record<string, string> =>
  createMailContent({ secrets: [secret], previousVariable: '', random: systemRandom }).decrypt(mail) ?? {};

export interface MailSinkOptions {
  /** Called for each recipient: an error it throws is the answer. */
  recipient?(address: string): void;
  /** Called for each message before it is accepted: a rejection is the answer, and it may take any time. */
  message?(mail: Mail): Promise<void> | void;
}

/** An answer of a mail server: `throw smtpAnswer(451, 'later')`. */
export function smtpAnswer(code: number, words: string): Error {
  return Object.assign(new Error(words), { responseCode: code });
}

/** An SMTP server that accepts every message unless configured otherwise, and delivers none. */
export async function mailSink(
  t: Pick<Test, 'teardown'>,
  { recipient, message }: MailSinkOptions = {},
): Promise<MailSink> {
  const mails: Mail[] = [];
  const offered: Mail[] = [];
  const waiting: ((mail: Mail) => void)[] = [];
  let answered = 0;

  const take = (mail: Mail) => {
    mails.push(mail);
    const receive = waiting.shift();
    if (!receive) return;
    answered++;
    receive(mail);
  };

  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    closeTimeout: 1,
    onAuth: (_auth, _session, done) => done(null, { user: 'anybody' }),
    onRcptTo({ address }, _session, done) {
      try {
        recipient?.(address);
        done();
      } catch (error) {
        done(error as Error);
      }
    },
    onData(stream, session, done) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', async () => {
        const { mailFrom, rcptTo } = session.envelope;
        const mail = {
          from: mailFrom ? mailFrom.address : '',
          to: rcptTo.map(({ address }) => address),
          raw: Buffer.concat(chunks).toString('utf8'),
        };
        offered.push(mail);
        try {
          await message?.(mail);
          take(mail);
          done();
        } catch (error) {
          done(error as Error);
        }
      });
    },
  });
  // A killed client leaves a broken connection behind.
  server.on('error', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  t.teardown(() => new Promise<void>((resolve) => server.close(() => resolve())));

  return {
    url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    mails,
    offered,
    next() {
      const mail = mails[answered];
      if (!mail) return new Promise((resolve) => waiting.push(resolve));
      answered++;
      return Promise.resolve(mail);
    },
  };
}

/** A message as displayed to its reader. */
export interface ReadMail {
  /** Lower-case name → value, unfolded and undecoded. */
  headers: Record<string, string>;
  text: string;
  html: string;
}

/** Decodes a message of two parts, the format of our e-mails. */
export function readMail({ raw }: Pick<Mail, 'raw'>): ReadMail {
  const { headers, body } = splitPart(raw);
  const boundary = /boundary="?([^";]+)/.exec(headers['content-type'] ?? '')?.[1];
  if (boundary === undefined) throw new Error(`not a message of several parts:\n${raw}`);
  const parts = body.split(`--${boundary}`).slice(1, -1).map(splitPart);
  const partOf = (type: string) => {
    const part = parts.find((one) => one.headers['content-type']?.startsWith(type));
    if (!part) throw new Error(`no ${type} in:\n${raw}`);
    return decodeBody(part.body, part.headers['content-transfer-encoding']);
  };
  return { headers, text: partOf('text/plain'), html: partOf('text/html') };
}

function splitPart(part: string): { headers: Record<string, string>; body: string } {
  const [head = '', ...rest] = part.trimStart().split('\r\n\r\n');
  const lines = head.replace(/\r\n[ \t]+/g, ' ').split('\r\n');
  const pairs = lines.map((line) => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
  });
  return { headers: Object.fromEntries(pairs), body: rest.join('\r\n\r\n') };
}

function decodeBody(body: string, encoding = '7bit'): string {
  if (encoding === 'base64') return Buffer.from(body, 'base64').toString('utf8');
  if (encoding !== 'quoted-printable') return body;
  const bytes = body
    .replace(/=\r\n/g, '')
    .replace(/=([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(Number(`0x${hex}`)));
  return Buffer.from(bytes, 'latin1').toString('utf8');
}
