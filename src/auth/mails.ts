import { withQuery } from '../config/public-url.js';
import { type Clock, DAY } from '../kernel/clock.js';
import type { LinkToken } from './links.js';
import type { UserDocument } from './store.js';

/** The mails about accounts. */

/** What this domain needs of the mail outbox. */
export interface Outbox {
  put(mail: {
    key: string;
    userId: string;
    to: string;
    template: 'password-reset' | 'password-changed' | 'verify-email' | 'email-changed' | 'welcome' | 'unlock';
    values: Record<string, string>;
    security: boolean;
    sendCondition?: { userId: string; versionField: 'passwordVersion' | 'emailVersion'; minVersion: number };
    expiresAt: number;
  }): Promise<void>;
}

type Owner = Pick<UserDocument, 'id' | 'email' | 'name'>;

export interface AccountMails {
  passwordReset(owner: Owner, link: LinkToken): Promise<void>;
  /** To the address that is to be confirmed, which may be a new one. */
  verifyEmail(owner: Pick<Owner, 'id' | 'email'>, link: LinkToken): Promise<void>;
  /** Lets the owner sign in from a new place while wrong passwords come from many others. */
  unlock(owner: Owner, link: LinkToken): Promise<void>;
  /** Put before the change, it goes out once the password has this version. */
  passwordChanged(owner: Owner, version: number): Promise<void>;
  /** To the old address. Put before the change, it goes out once the address has this version. */
  emailChanged(owner: Owner, newEmail: string, version: number): Promise<void>;
  welcome(owner: Owner): Promise<void>;
}

export interface AccountMailOptions {
  outbox: Outbox;
  /** Absolute addresses of the pages that links lead to, without the token. */
  pages: { reset(): string; verify(): string; unlock(): string };
  clock: Clock;
}

export function createAccountMails({ outbox, pages, clock }: AccountMailOptions): AccountMails {
  const greeting = ({ name }: Owner) => (name === undefined ? {} : { name });
  const within = (days: number) => clock.now() + days * DAY;

  return {
    passwordReset: (owner, { token, hash, expiresAt }) =>
      outbox.put({
        key: `password-reset:${hash}`,
        userId: owner.id,
        to: owner.email,
        template: 'password-reset',
        values: {
          email: owner.email,
          link: withQuery(pages.reset(), `token=${token}`),
          validFor: '1 hour',
          ...greeting(owner),
        },
        security: true,
        expiresAt,
      }),

    verifyEmail: ({ id, email }, { token, hash, expiresAt }) =>
      outbox.put({
        key: `verify-email:${hash}`,
        userId: id,
        to: email,
        template: 'verify-email',
        values: { email, link: withQuery(pages.verify(), `token=${token}`), validFor: '24 hours' },
        security: true,
        expiresAt,
      }),

    unlock: (owner, { token, hash, expiresAt }) =>
      outbox.put({
        key: `unlock:${hash}`,
        userId: owner.id,
        to: owner.email,
        template: 'unlock',
        values: {
          email: owner.email,
          link: withQuery(pages.unlock(), `token=${token}`),
          validFor: '1 hour',
          ...greeting(owner),
        },
        security: true,
        expiresAt,
      }),

    passwordChanged: (owner, version) =>
      outbox.put({
        key: `password-changed:${owner.id}:${version}`,
        userId: owner.id,
        to: owner.email,
        template: 'password-changed',
        values: { email: owner.email, ...greeting(owner) },
        security: true,
        sendCondition: { userId: owner.id, versionField: 'passwordVersion', minVersion: version },
        expiresAt: within(7),
      }),

    emailChanged: (owner, newEmail, version) =>
      outbox.put({
        key: `email-changed:${owner.id}:${version}`,
        userId: owner.id,
        to: owner.email,
        template: 'email-changed',
        values: { email: owner.email, newEmail, ...greeting(owner) },
        security: true,
        sendCondition: { userId: owner.id, versionField: 'emailVersion', minVersion: version },
        expiresAt: within(7),
      }),

    welcome: (owner) =>
      outbox.put({
        key: `welcome:${owner.id}`,
        userId: owner.id,
        to: owner.email,
        template: 'welcome',
        values: { email: owner.email, ...greeting(owner) },
        security: false,
        expiresAt: within(1),
      }),
  };
}
