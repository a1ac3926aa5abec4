import { mailboxOf } from '../../core/http/mailboxes.js';
import { inHours, type Messages } from '../../core/http/messages.js';
import { requestDetails } from '../../core/http/request-details.js';
import type { RequestSource } from '../../core/http/routes.js';
import { type Clock, DAY, HOUR } from '../../core/kernel/clock.js';
import type { Effect } from '../../core/ops/commit.js';
import type { Outbox } from '../../shared/email/outbox.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** A link with a token, which only its mail contains. */
export interface MailedLink {
  url: string;
  /** SHA-256 of its token. */
  hash: string;
  expiresAt: number;
}

type Recipient = Pick<
  PrincipalDocument,
  'id' | 'handle' | 'name' | 'passwordVersion' | 'signInRevision' | 'invitedAt' | 'emailVerifiedAt'
>;

/** Where a request came from, and the language of its answer. */
type MailOrigin = Pick<RequestSource, 'ip' | 'browser' | 'acceptLanguage'>;

type PersonMail = Pick<Parameters<Outbox['put']>[0], 'key' | 'template' | 'values' | 'expiresAt'> & {
  versionField: string;
  minVersion: number;
};

interface Change {
  versionField: string;
  version: number;
}

/** Enqueues the mails to people whose handle is an e-mail address; for others, nothing. */
export type PersonMails = ReturnType<typeof createPersonMails>;

export interface MailDependencies {
  outbox: Outbox;
  messages: Pick<Messages, 'negotiate'>;
}

export const RESET_LINK_LIFETIME_MS = HOUR;
export const VERIFICATION_LINK_LIFETIME_MS = DAY;

const IF_ACTIVE = { versionField: 'active', minVersion: 1 } as const;

/**
 * The value for a send condition; `null` if the mail must not be sent any more: a deleted person gets none, and only an
 * active one gets a link.
 */
export async function readMailVersion(
  principals: Pick<PrincipalCollection, 'findOne'>,
  sub: string,
  field: string,
): Promise<number | null> {
  const person = await principals.findOne({ id: sub });
  if (!person || person.state === 'deleted') return null;
  if (field === 'passwordVersion') return person.passwordVersion ?? 0;
  return person.state === 'active' ? 1 : null;
}

/** The name is greeted only if the mailbox is known to belong to the account: anyone can sign up with an address and a name. */
const greetingOf = ({ name, invitedAt, emailVerifiedAt }: Recipient) =>
  name !== undefined && (invitedAt ?? emailVerifiedAt) !== undefined ? { name } : {};

export function createPersonMails({ outbox, messages, clock }: MailDependencies & { clock: Clock }) {
  const put = async (
    { id, handle }: Recipient,
    source: MailOrigin | undefined,
    { values, versionField, minVersion, ...mail }: PersonMail,
  ): Promise<void> => {
    const to = mailboxOf(handle);
    if (to === undefined) return;
    await outbox.put({
      ...mail,
      userId: id,
      to,
      values: { email: handle, ...values },
      locale: messages.negotiate({ headers: { 'accept-language': source?.acceptLanguage } }),
      security: true,
      sendCondition: { userId: id, versionField, minVersion },
    });
  };

  /** Tells a person about a change of a login, once the field has the version. */
  const putChange = (
    person: Recipient,
    source: MailOrigin | undefined,
    template: PersonMail['template'],
    key: string,
    { versionField, version: minVersion }: Change,
  ) =>
    put(person, source, {
      key,
      template,
      values: { ...greetingOf(person), ...requestDetails(source, clock.now()) },
      versionField,
      minVersion,
      expiresAt: clock.now() + 7 * DAY,
    });

  /** The mail about a change that increments the revision. */
  const changed = (
    person: Recipient,
    source: MailOrigin | undefined,
    template: PersonMail['template'],
  ): Effect | undefined => {
    const to = mailboxOf(person.handle);
    if (to === undefined) return undefined;
    return outbox.mail({
      key: `${template}:${person.id}:${person.signInRevision ?? 0}`,
      userId: person.id,
      to,
      template,
      values: { email: person.handle, ...greetingOf(person), ...requestDetails(source, clock.now()) },
      locale: messages.negotiate({ headers: { 'accept-language': source?.acceptLanguage } }),
      security: true,
      expiresAt: clock.now() + 7 * DAY,
    });
  };

  return {
    passwordReset: (person: Recipient, { url, hash, expiresAt }: MailedLink, source: RequestSource) =>
      put(person, source, {
        key: `password-reset:${hash}`,
        template: 'password-reset',
        values: {
          link: url,
          validFor: inHours(RESET_LINK_LIFETIME_MS / HOUR),
          ...greetingOf(person),
          ...requestDetails(source, clock.now()),
        },
        ...IF_ACTIVE,
        expiresAt,
      }),

    verifyAddress: (person: Recipient, { url, hash, expiresAt }: MailedLink, source: RequestSource) =>
      put(person, source, {
        key: `verify-email:${hash}`,
        template: 'verify-email',
        values: { link: url, validFor: inHours(VERIFICATION_LINK_LIFETIME_MS / HOUR) },
        ...IF_ACTIVE,
        expiresAt,
      }),

    /** Enqueued before the change and sent after it. */
    passwordChanged(person: Recipient, source: RequestSource) {
      const version = (person.passwordVersion ?? 0) + 1;
      const key = `password-changed:${person.id}:${version}`;
      return putChange(person, source, 'password-changed', key, { versionField: 'passwordVersion', version });
    },

    /** @param source absent for the operator */
    secondFactorChanged: (person: Recipient, kind: 'added' | 'removed', source: MailOrigin | undefined) =>
      changed(person, source, `second-factor-${kind}`),

    /** @param source absent for the operator */
    passkeyChanged: (person: Recipient, kind: 'added' | 'removed', source: MailOrigin | undefined) =>
      changed(person, source, `passkey-${kind}`),
  };
}
