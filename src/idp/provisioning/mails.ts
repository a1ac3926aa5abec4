import { mailboxOf } from '../../core/http/mailboxes.js';
import { inHours, type Messages } from '../../core/http/messages.js';
import { requestDetails } from '../../core/http/request-details.js';
import type { RequestSource } from '../../core/http/routes.js';
import { type Clock, DAY, HOUR } from '../../core/kernel/clock.js';
import type { Effect } from '../../core/ops/commit.js';
import type { Mail, Outbox } from '../../shared/email/outbox.js';
import type { PrincipalDocument } from './store.js';

/** A link with a token, which only its mail contains. */
export interface MailedLink {
  url: string;
  /** SHA-256 of its token. */
  hash: string;
  expiresAt: number;
}

type Recipient = Pick<
  PrincipalDocument,
  'id' | 'handle' | 'name' | 'epoch' | 'signInRevision' | 'invitedAt' | 'emailVerifiedAt'
>;

/** Where a request came from, and the language of its answer. */
type MailOrigin = Pick<RequestSource, 'ip' | 'browser' | 'acceptLanguage'>;

type PersonMail = Pick<Mail, 'key' | 'template' | 'values' | 'expiresAt'>;

/** The mails to people whose handle is an e-mail address, for the commits of what they are about; for others, nothing. */
export type PersonMails = ReturnType<typeof createPersonMails>;

export interface MailDependencies {
  outbox: Outbox;
  messages: Pick<Messages, 'negotiate'>;
}

export const RESET_LINK_LIFETIME_MS = HOUR;
export const VERIFICATION_LINK_LIFETIME_MS = DAY;

/** The name is greeted only if the mailbox is known to belong to the account: anyone can sign up with an address and a name. */
const greetingOf = ({ name, invitedAt, emailVerifiedAt }: Recipient) =>
  name !== undefined && (invitedAt ?? emailVerifiedAt) !== undefined ? { name } : {};

export function createPersonMails({ outbox, messages, clock }: MailDependencies & { clock: Clock }) {
  const mailTo = (
    { id, handle }: Recipient,
    source: MailOrigin | undefined,
    { values, ...mail }: PersonMail,
  ): Effect | undefined => {
    const to = mailboxOf(handle);
    if (to === undefined) return undefined;
    return outbox.mail({
      ...mail,
      userId: id,
      to,
      values: { email: handle, ...values },
      locale: messages.negotiate({ headers: { 'accept-language': source?.acceptLanguage } }),
      security: true,
    });
  };

  const changeContent = (
    person: Recipient,
    source: MailOrigin | undefined,
    template: PersonMail['template'],
    key: string,
  ): PersonMail => ({
    key,
    template,
    values: { ...greetingOf(person), ...requestDetails(source, clock.now()) },
    expiresAt: clock.now() + 7 * DAY,
  });

  /** The mail about a change that increments the revision. */
  const changed = (person: Recipient, source: MailOrigin | undefined, template: PersonMail['template']) =>
    mailTo(
      person,
      source,
      changeContent(person, source, template, `${template}:${person.id}:${person.signInRevision ?? 0}`),
    );

  return {
    passwordReset: (person: Recipient, { url, hash, expiresAt }: MailedLink, source: RequestSource) =>
      mailTo(person, source, {
        key: `password-reset:${hash}`,
        template: 'password-reset',
        values: {
          link: url,
          validFor: inHours(RESET_LINK_LIFETIME_MS / HOUR),
          ...greetingOf(person),
          ...requestDetails(source, clock.now()),
        },
        expiresAt,
      }),

    verifyAddress: (person: Recipient, { url, hash, expiresAt }: MailedLink, source: RequestSource) =>
      mailTo(person, source, {
        key: `verify-email:${hash}`,
        template: 'verify-email',
        values: { link: url, validFor: inHours(VERIFICATION_LINK_LIFETIME_MS / HOUR) },
        expiresAt,
      }),

    /** @param person before the change */
    passwordChanged(person: Recipient, source: RequestSource) {
      const key = `password-changed:${person.id}:${(person.epoch ?? 0) + 1}`;
      return mailTo(person, source, changeContent(person, source, 'password-changed', key));
    },

    /** @param source absent for the operator */
    secondFactorChanged: (person: Recipient, kind: 'added' | 'removed', source: MailOrigin | undefined) =>
      changed(person, source, `second-factor-${kind}`),

    /** @param source absent for the operator */
    passkeyChanged: (person: Recipient, kind: 'added' | 'removed', source: MailOrigin | undefined) =>
      changed(person, source, `passkey-${kind}`),
  };
}
