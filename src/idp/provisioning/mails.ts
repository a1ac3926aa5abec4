import { addressOf, mailboxOf } from '../../core/http/mailboxes.js';
import { inDays, inHours, longTime, type Messages } from '../../core/http/messages.js';
import { requestDetails } from '../../core/http/request-details.js';
import type { RequestSource } from '../../core/http/routes.js';
import { type Clock, DAY, HOUR } from '../../core/kernel/clock.js';
import { type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Effect } from '../../core/ops/commit.js';
import type { Mail, Outbox } from '../../shared/email/outbox.js';
import { linkUrl, newLink } from './link-tokens.js';
import type { PrincipalDocument } from './store.js';

/** Where a request came from, and the language of its answer. */
type MailOrigin = Pick<RequestSource, 'ip' | 'browser' | 'acceptLanguage'>;

interface ApprovalNotice {
  /** Of the request. */
  id: string;
  /** Names. */
  agent: string;
  resource: string;
  link: string;
  expiresAt: number;
}

type PersonMail = Pick<Mail, 'key' | 'template' | 'values' | 'expiresAt'>;

/** The mails to people who have an e-mail address, for the commits of what they are about; for others, nothing. */
export type PersonMails = ReturnType<typeof createPersonMails>;

export interface MailDependencies {
  outbox: Outbox;
  messages: Pick<Messages, 'negotiate'>;
  issuer(): string;
  clock: Clock;
  random: Random;
  /** Whether the address is known to be that of the person, as applications see it. */
  isVerified(person: PrincipalDocument): boolean;
}

const RESET_LINK_LIFETIME_MS = HOUR;
const VERIFICATION_LINK_LIFETIME_MS = DAY;

/** The name is greeted only if the mailbox is known to belong to the account: anyone can sign up with an address and a name. */
const greetingOf = ({ name, invitedAt, emailVerifiedAt, emailSetAt }: PrincipalDocument) => {
  const knownSince = emailVerifiedAt ?? (emailSetAt === undefined ? invitedAt : undefined);
  return name !== undefined && knownSince !== undefined ? { name } : {};
};

export function createPersonMails(deps: MailDependencies) {
  const { outbox, messages, issuer, clock } = deps;
  const isVerificationDue = (person: PrincipalDocument): boolean =>
    person.kind === 'human' && addressOf(person) !== undefined && !deps.isVerified(person);
  const mailTo = (
    person: PrincipalDocument,
    source: MailOrigin | undefined,
    { values, ...mail }: PersonMail,
  ): Effect | undefined => {
    const email = addressOf(person);
    const to = mailboxOf(email ?? '');
    if (email === undefined || to === undefined) return undefined;
    return outbox.mail({
      ...mail,
      userId: person.id,
      to,
      values: { email, ...values },
      locale: messages.negotiate({ headers: { 'accept-language': source?.acceptLanguage } }),
      security: true,
    });
  };

  const changeContent = (
    person: PrincipalDocument,
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
  const changed = (
    person: PrincipalDocument,
    source: MailOrigin | undefined,
    template: PersonMail['template'],
  ) =>
    mailTo(
      person,
      source,
      changeContent(person, source, template, `${template}:${person.id}:${person.signInRevision ?? 0}`),
    );

  return {
    /** Whether the person has an e-mail address that is not verified. */
    isVerificationDue,

    /** The link of an invitation, with the mailbox that it is sent to; undefined without an address. */
    invitation(
      person: PrincipalDocument,
      { url, lifetimeMs, application }: { url: string; lifetimeMs: number; application: string | undefined },
      source: RequestSource,
    ) {
      const effect = mailTo(person, source, {
        key: `invitation:${sha256(url)}`,
        template: 'invitation',
        values: {
          handle: person.handle,
          link: url,
          validFor: inDays(Math.round(lifetimeMs / DAY)),
          ...(application && { application }),
          ...(person.name !== undefined && { name: person.name }),
        },
        expiresAt: clock.now() + lifetimeMs,
      });
      return effect && { effect, to: addressOf(person) ?? '' };
    },

    /** A link for a forgotten password: the fields of the person, and the mail for the commit that stores them. */
    passwordReset(person: PrincipalDocument, source: RequestSource) {
      const link = newLink(person.id, RESET_LINK_LIFETIME_MS, deps);
      const { hash: mailedLinkHash, expiresAt } = link;
      const mail = mailTo(person, source, {
        key: `password-reset:${mailedLinkHash}`,
        template: 'password-reset',
        values: {
          link: linkUrl(issuer(), link),
          validFor: inHours(RESET_LINK_LIFETIME_MS / HOUR),
          ...greetingOf(person),
          ...requestDetails(source, clock.now()),
        },
        expiresAt,
      });
      return { stored: { mailedLinkHash, mailedLinkExpiresAt: expiresAt }, mail };
    },

    /** A link that verifies the address, likewise; undefined if that is not due. */
    verification(person: PrincipalDocument, source: RequestSource) {
      if (!isVerificationDue(person)) return undefined;
      const { token, hash: verifyHash, expiresAt } = newLink(person.id, VERIFICATION_LINK_LIFETIME_MS, deps);
      const mail = mailTo(person, source, {
        key: `verify-email:${verifyHash}`,
        template: 'verify-email',
        values: {
          link: `${issuer()}/verify/${token}`,
          validFor: inHours(VERIFICATION_LINK_LIFETIME_MS / HOUR),
        },
        expiresAt,
      });
      return { stored: { verifyHash, verifyExpiresAt: expiresAt }, mail };
    },

    /** For the previous address, if there was another one. */
    emailChanged(before: PrincipalDocument, after: PrincipalDocument, source: RequestSource) {
      const newEmail = addressOf(after);
      if (newEmail === undefined) return undefined;
      const key = `email-changed:${before.id}:${after.emailSetAt}`;
      const content = changeContent(before, source, 'email-changed', key);
      return mailTo(before, source, { ...content, values: { ...content.values, newEmail } });
    },

    /** @param person before the change */
    passwordChanged(person: PrincipalDocument, source: RequestSource) {
      const key = `password-changed:${person.id}:${(person.epoch ?? 0) + 1}`;
      return mailTo(person, source, changeContent(person, source, 'password-changed', key));
    },

    /** @param source absent for the operator */
    secondFactorChanged: (
      person: PrincipalDocument,
      kind: 'added' | 'removed',
      source: MailOrigin | undefined,
    ) => changed(person, source, `second-factor-${kind}`),

    /** Names no details: an agent chooses them, and mails are read in more places than the page. */
    approvalRequested(person: PrincipalDocument, { id, agent, resource, link, expiresAt }: ApprovalNotice) {
      const { locale } = person.metadata ?? {};
      const source = typeof locale === 'string' ? { ip: '', acceptLanguage: locale } : undefined;
      return mailTo(person, source, {
        key: `approval:${id}`,
        template: 'approval-requested',
        values: { agent, resource, link, until: longTime(expiresAt), ...greetingOf(person) },
        expiresAt,
      });
    },

    /** @param source absent for the operator */
    passkeyChanged: (person: PrincipalDocument, kind: 'added' | 'removed', source: MailOrigin | undefined) =>
      changed(person, source, `passkey-${kind}`),
  };
}
