import { withQuery } from '../../core/config/public-url.js';
import { inHours, inMinutes } from '../../core/http/messages.js';
import { type ReportedSource, requestDetails } from '../../core/http/request-details.js';
import { type Clock, DAY, MINUTE } from '../../core/kernel/clock.js';
import type { Mail, Outbox } from '../../shared/email/outbox.js';
import type { LinkToken } from './links/link-tokens.js';
import { groupedCode, LOGIN_CODE_TTL_MS } from './sign-in/login-codes.js';
import type { UserDocument, Users } from './store.js';

/** The part of the e-mail outbox that this domain uses. */
export type AccountOutbox = Pick<Outbox, 'put'>;

type Recipient = Pick<UserDocument, 'id' | 'email' | 'name' | 'emailVerified'> & {
  locale?: string | undefined;
};

/** Whose mail contains no name. */
type Addressee = Pick<Recipient, 'id' | 'email' | 'locale'>;

/** Enqueues the mails about accounts. */
export type AccountMails = ReturnType<typeof createAccountMails>;

export interface AccountMailOptions {
  outbox: AccountOutbox;
  /** Absolute URLs of the linked pages, without the token. */
  pages: {
    reset(): string;
    verify(): string;
    unlock(): string;
    /** Absent if the application has no page for the code. */
    login?: (() => string) | undefined;
  };
  clock: Clock;
}

export function createAccountMails({ outbox, pages, clock }: AccountMailOptions) {
  /** Only at a verified address: anyone can register the address of another person with an advertisement as the name. */
  const greeting = ({ name, emailVerified }: Pick<Recipient, 'name' | 'emailVerified'>) =>
    name !== undefined && emailVerified ? { name } : {};
  const inDays = (days: number) => clock.now() + days * DAY;

  const detailsOf = (source: ReportedSource) => requestDetails(source, clock.now());

  /** A mail to an address that is to be confirmed. */
  const confirmation =
    (template: 'verify-email' | 'confirm-address-change') =>
    ({ id, email, locale }: Addressee, { token, hash, expiresAt }: LinkToken) =>
      outbox.put({
        key: `${template}:${hash}`,
        userId: id,
        to: email,
        template,
        locale,
        values: { email, link: withQuery(pages.verify(), `token=${token}`), validFor: inHours(24) },
        security: true,
        expiresAt,
      });

  /** A mail about a change of access, which is sent once the change is stored. */
  const changed = (
    template: Mail['template'],
    recipient: Recipient,
    { key, versionField, version }: { key: string; versionField: string; version: number },
    source: ReportedSource,
    more: { newEmail?: string; provider?: string } = {},
  ): Promise<void> =>
    outbox.put({
      key: `${template}:${key}`,
      userId: recipient.id,
      to: recipient.email,
      locale: recipient.locale,
      template,
      values: { email: recipient.email, ...more, ...greeting(recipient), ...detailsOf(source) },
      security: true,
      sendCondition: { userId: recipient.id, versionField, minVersion: version },
      expiresAt: inDays(7),
    });

  return {
    passwordReset: (recipient: Recipient, { token, hash, expiresAt }: LinkToken, source: ReportedSource) =>
      outbox.put({
        key: `password-reset:${hash}`,
        userId: recipient.id,
        to: recipient.email,
        locale: recipient.locale,
        template: 'password-reset',
        values: {
          email: recipient.email,
          link: withQuery(pages.reset(), `token=${token}`),
          validFor: inHours(1),
          ...greeting(recipient),
          ...detailsOf(source),
        },
        security: true,
        expiresAt,
      }),

    verifyEmail: confirmation('verify-email'),
    /**
     * To the new address of an account, which may belong to someone else: without the client of the request, which would
     * be disclosed to them.
     */
    confirmAddressChange: confirmation('confirm-address-change'),

    /** Allows sign-in from a new address while wrong passwords from other addresses exhaust the limit of the account. */
    unlock: (recipient: Recipient, { token, hash, expiresAt }: LinkToken, source: ReportedSource) =>
      outbox.put({
        key: `unlock:${hash}`,
        userId: recipient.id,
        to: recipient.email,
        locale: recipient.locale,
        template: 'unlock',
        values: {
          email: recipient.email,
          link: withQuery(pages.unlock(), `token=${token}`),
          validFor: inHours(1),
          ...greeting(recipient),
          ...detailsOf(source),
        },
        security: true,
        expiresAt,
      }),

    /** The code to sign in, for an account or for an address without one. */
    loginCode: (
      { id, email, locale, ...recipient }: Recipient | (Partial<Addressee> & Pick<Addressee, 'email'>),
      { code, id: requestId, expiresAt }: { code: string; id: string; expiresAt: number },
      source: ReportedSource,
    ) =>
      outbox.put({
        key: `login-code:${requestId}`,
        ...(id !== undefined && { userId: id }),
        to: email,
        locale,
        template: 'login-code',
        values: {
          email,
          code: groupedCode(code),
          ...(pages.login && { link: withQuery(pages.login(), `code=${code}`) }),
          validFor: inMinutes(LOGIN_CODE_TTL_MS / MINUTE),
          ...('emailVerified' in recipient && greeting(recipient)),
          ...detailsOf(source),
        },
        security: true,
        expiresAt,
      }),

    /** Enqueued before the change and sent once the password has this version. */
    passwordChanged: (recipient: Recipient, version: number, source: ReportedSource) =>
      changed(
        'password-changed',
        recipient,
        { key: `${recipient.id}:${version}`, versionField: 'passwordVersion', version },
        source,
      ),

    /** To the old address; enqueued before the change and sent once the address has this version. */
    emailChanged: (recipient: Recipient, newEmail: string, version: number, source: ReportedSource) =>
      changed(
        'email-changed',
        recipient,
        { key: `${recipient.id}:${version}`, versionField: 'emailVersion', version },
        source,
        { newEmail },
      ),

    /** Enqueued before the change and sent once the factor has this version. */
    secondFactorChanged: (
      recipient: Recipient,
      { kind, ...change }: { kind: 'added' | 'removed'; versionField: string; version: number },
      source: ReportedSource,
    ) =>
      changed(
        `second-factor-${kind}`,
        recipient,
        { ...change, key: `${recipient.id}:${change.version}` },
        source,
      ),

    /** Enqueued before the change and sent once it is stored. */
    passkeyChanged: (
      recipient: Recipient,
      { kind, ...change }: { kind: 'added' | 'removed'; key: string; versionField: string; version: number },
      source: ReportedSource,
    ) => changed(`passkey-${kind}`, recipient, change, source),

    /** The same about the account of an identity provider whose agents can act for the user. */
    agentsChanged: (
      recipient: Recipient,
      {
        kind,
        ...change
      }: { kind: 'connected' | 'disconnected'; key: string; versionField: string; version: number },
      source: ReportedSource,
    ) => changed(`agents-${kind}`, recipient, change, source),

    /** The same about an account of another provider with which the user can sign in. */
    identityChanged: (
      recipient: Recipient,
      {
        kind,
        provider,
        ...change
      }: {
        kind: 'connected' | 'disconnected';
        provider: string;
        key: string;
        versionField: string;
        version: number;
      },
      source: ReportedSource,
    ) => changed(`identity-${kind}`, recipient, change, source, { provider }),

    welcome: (recipient: Recipient) =>
      outbox.put({
        key: `welcome:${recipient.id}`,
        userId: recipient.id,
        to: recipient.email,
        locale: recipient.locale,
        template: 'welcome',
        values: { email: recipient.email, ...greeting(recipient) },
        security: false,
        expiresAt: inDays(1),
      }),
  };
}

export type ChangeMails = ReturnType<typeof createChangeMails>;

/** The mails about changes that other domains make, which know the ID of the user. */
export function createChangeMails(users: Pick<Users, 'findOne'>, mails: AccountMails) {
  const mailed =
    <C>(send: (recipient: Recipient, change: C, source: ReportedSource) => Promise<void>) =>
    async (change: C, userId: string, source: ReportedSource): Promise<void> => {
      const user = await users.findOne({ id: userId });
      if (user) await send(user, change, source);
    };
  return {
    secondFactor: mailed(mails.secondFactorChanged),
    passkey: mailed(mails.passkeyChanged),
    agents: mailed(mails.agentsChanged),
    identity: mailed(mails.identityChanged),
  };
}
