import { mailboxOf } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Effect } from '../../core/ops/commit.js';
import { newLinkToken } from './first-operator.js';
import { type PersonMails, VERIFICATION_LINK_LIFETIME_MS } from './mails.js';
import type { PrincipalDocument } from './store.js';

export interface VerificationLinkDependencies {
  mails: Pick<PersonMails, 'verifyAddress'>;
  issuer(): string;
  clock: Clock;
  random: Random;
}

/** A link that verifies an address. */
export interface VerificationLink {
  /** The fields of the person. */
  stored: Required<Pick<PrincipalDocument, 'verifyHash' | 'verifyExpiresAt'>>;
  /** For the commit that stores them. */
  mail: Effect | undefined;
}

/** A link for a person with an e-mail address that is not verified; undefined for others. */
export type NewVerification = (
  person: PrincipalDocument,
  source: RequestSource,
) => VerificationLink | undefined;

/** The first link of a person who has signed up, and every later one. */
export const createVerificationLinks =
  ({ mails, issuer, clock, random }: VerificationLinkDependencies): NewVerification =>
  (person, source) => {
    if (!isDue(person)) return undefined;
    const token = newLinkToken(person.id, random);
    const expiresAt = clock.now() + VERIFICATION_LINK_LIFETIME_MS;
    const hash = sha256(token);
    return {
      stored: { verifyHash: hash, verifyExpiresAt: expiresAt },
      mail: mails.verifyAddress(person, { url: `${issuer()}/verify/${token}`, hash, expiresAt }, source),
    };
  };

/** Whether the person has an e-mail address that is not verified. */
export const isDue = ({
  kind,
  handle,
  emailVerifiedAt,
}: Pick<PrincipalDocument, 'kind' | 'handle' | 'emailVerifiedAt'>): boolean =>
  kind === 'human' && emailVerifiedAt === undefined && mailboxOf(handle) !== undefined;
