import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import type { Test } from 'tap';

/** One message as it came over the wire. */
export interface Mail {
  from: string;
  to: string[];
  /** Headers and body, undecoded. */
  raw: string;
}

export interface MailSink {
  /** For EMAIL_SMTP_URL and Nodemailer. */
  readonly url: string;
  /** Everything that came, the oldest first. */
  readonly mails: readonly Mail[];
  /** The oldest message that `next` has not answered yet; waits until there is one. */
  next(): Promise<Mail>;
}

/** An SMTP server that takes every message and delivers none. */
export async function mailSink(t: Test): Promise<MailSink> {
  const mails: Mail[] = [];
  const waiting: ((mail: Mail) => void)[] = [];
  let answered = 0;

  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onAuth: (_auth, _session, done) => done(null, { user: 'anybody' }),
    onData(stream, session, done) {
      const chunks: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => chunks.push(chunk));
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope;
        const mail = {
          from: mailFrom ? mailFrom.address : '',
          to: rcptTo.map(({ address }) => address),
          raw: Buffer.concat(chunks).toString('utf8'),
        };
        mails.push(mail);
        const receive = waiting.shift();
        if (receive) {
          answered++;
          receive(mail);
        }
        done();
      });
    },
  });
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  t.teardown(() => new Promise<void>((resolve) => server.close(() => resolve())));

  return {
    url: `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`,
    mails,
    next() {
      const mail = mails[answered];
      if (!mail) return new Promise((resolve) => waiting.push(resolve));
      answered++;
      return Promise.resolve(mail);
    },
  };
}
