import { withQuery } from '../../core/config/public-url.js';
import { inHours, inMinutes } from '../../core/http/messages.js';
import { type ReportedSource, requestDetails } from '../../core/http/request-details.js';
import { type Clock, DAY, MINUTE } from '../../core/kernel/clock.js';
import type { Effect } from '../../core/ops/commit.js';
import type { Mail, Outbox } from '../../shared/email/outbox.js';
import type { LinkToken } from './links/link-tokens.js';
import { groupedCode, LOGIN_CODE_TTL_MS } from './sign-in/login-codes.js';

/** The part of the e-mail outbox that this domain uses. */
export type AccountOutbox = Pick<Outbox, 'mail'>;

/** Whose mail contains no name. */
export interface Addressee {
  id: string;
  email: string;
  locale?: string | undefined;
}

export interface Recipient extends Addressee {
  name?: string;
  /** As stored. */
  fields?: string;
  emailVerified: boolean;
  signInRevision?: number;
}

/** The mails about accounts, each for the commit of what it is about. */
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
  /** The values of the fields that the host declares; absent without the option. */
  fieldValues?: ((stored: string | undefined) => Record<string, string>) | undefined;
  clock: Clock;
}

export function createAccountMails({ outbox, pages, fieldValues, clock }: AccountMailOptions) {
  /** Only at a verified address: anyone can register the address of another person with an advertisement as the name. */
  const greeting = ({ name, fields, emailVerified }: Pick<Recipient, 'name' | 'fields' | 'emailVerified'>) =>
    emailVerified ? { ...(name !== undefined && { name }), ...fieldValues?.(fields) } : {};
  const inDays = (days: number) => clock.now() + days * DAY;

  const detailsOf = (source: ReportedSource) => requestDetails(source, clock.now());

  /** A mail with a link. */
  const linked = (
    template: Mail['template'],
    { id, email, locale }: Addressee,
    page: () => string,
    { token, hash, expiresAt }: LinkToken,
    values: Partial<Mail['values']>,
  ) =>
    outbox.mail({
      key: `${template}:${hash}`,
      userId: id,
      to: email,
      locale,
      template,
      values: { email, link: withQuery(page(), `token=${token}`), ...values },
      security: true,
      expiresAt,
    });

  /** A mail about a change of access. */
  const changed = (
    template: Mail['template'],
    recipient: Recipient,
    key: string,
    source: ReportedSource,
    more: { newEmail?: string; provider?: string } = {},
  ): Effect =>
    outbox.mail({
      key: `${template}:${key}`,
      userId: recipient.id,
      to: recipient.email,
      locale: recipient.locale,
      template,
      values: { email: recipient.email, ...more, ...greeting(recipient), ...detailsOf(source) },
      security: true,
      expiresAt: inDays(7),
    });

  return {
    passwordReset: (recipient: Recipient, link: LinkToken, source: ReportedSource) =>
      linked('password-reset', recipient, pages.reset, link, {
        validFor: inHours(1),
        ...greeting(recipient),
        ...detailsOf(source),
      }),

    verifyEmail: (addressee: Addressee, link: LinkToken) =>
      linked('verify-email', addressee, pages.verify, link, { validFor: inHours(24) }),

    /**
     * To the new address of an account, which may belong to someone else: without the client of the request, which would
     * be disclosed to them.
     */
    confirmAddressChange: (addressee: Addressee, link: LinkToken) =>
      linked('confirm-address-change', addressee, pages.verify, link, { validFor: inHours(24) }),

    /** Allows sign-in from a new address while wrong passwords from other addresses exhaust the limit of the account. */
    unlock: (recipient: Recipient, link: LinkToken, source: ReportedSource) =>
      linked('unlock', recipient, pages.unlock, link, {
        validFor: inHours(1),
        ...greeting(recipient),
        ...detailsOf(source),
      }),

    /** The code to sign in, for an account or for an address without one. */
    loginCode: (
      {
        id,
        email,
        locale,
        ...recipient
      }: Recipient | { id?: undefined; email: string; locale: string | undefined },
      { code, id: requestId, expiresAt }: { code: string; id: string; expiresAt: number },
      source: ReportedSource,
    ) =>
      outbox.mail({
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

    /** @param version of the password after the change */
    passwordChanged: (recipient: Recipient, version: number, source: ReportedSource) =>
      changed('password-changed', recipient, `${recipient.id}:${version}`, source),

    /** To the old address. @param version of the address after the change */
    emailChanged: (recipient: Recipient, newEmail: string, version: number, source: ReportedSource) =>
      changed('email-changed', recipient, `${recipient.id}:${version}`, source, { newEmail }),

    /** About a change of what gives access beside the password, which has incremented the revision. */
    accessChanged: (
      template: Mail['template'],
      recipient: Recipient,
      source: ReportedSource,
      more?: { provider: string },
    ) => changed(template, recipient, `${recipient.id}:${recipient.signInRevision ?? 0}`, source, more),

    welcome: (recipient: Recipient) =>
      outbox.mail({
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
