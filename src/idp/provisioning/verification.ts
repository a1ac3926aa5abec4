import { mailboxOf } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { isSecretOf, type Random, sha256, UNUSED_HASH } from '../../core/kernel/secrets.js';
import type { UnknownWritesRegistry } from '../../core/ops/unknown-writes.js';
import { createUsedLinks } from '../../core/ops/used-links.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { provisioningErrors } from './errors.js';
import { newLinkToken } from './first-operator.js';
import { MAIL_REQUESTS, mailsTo } from './limits.js';
import { findLinkOwner, principalIdOf } from './links.js';
import { type PersonMails, VERIFICATION_LINK_LIFETIME_MS } from './mails.js';
import type { Dependencies, Principals } from './principals.js';
import { type PrincipalCollection, type PrincipalDocument, VERIFICATION_FIELDS } from './store.js';

/** Who signed in to a session. */
export type SignedIn = Pick<PrincipalDocument, 'id' | 'epoch'>;

/** What shows that the account is theirs: their session in this browser, or the password. */
export interface AccountProof {
  session: SignedIn | null;
  password: string | undefined;
}

/**
 * Mailed links that verify the address of a person. The link proves the mailbox and the session or the password proves the
 * account, because otherwise anyone could sign up with the address of another person and wait for the click.
 */
export type AddressVerification = ReturnType<typeof createVerification>;

export interface VerificationMailDependencies {
  mails: Pick<PersonMails, 'verifyAddress'>;
  issuer(): string;
  clock: Clock;
  random: Random;
}

/** Sends a link to people who have an e-mail address that is not verified. */
export type VerifyAddress = (person: PrincipalDocument, source: RequestSource) => Promise<void>;

/** The first link of a person who has signed up, and every later one. */
export const createVerificationMails =
  (
    principals: PrincipalCollection,
    { mails, issuer, clock, random }: VerificationMailDependencies,
  ): VerifyAddress =>
  async (person, source) => {
    if (!isDue(person)) return;
    const token = newLinkToken(person.id, random);
    const expiresAt = clock.now() + VERIFICATION_LINK_LIFETIME_MS;
    const hash = sha256(token);
    const stored = await principals.updateOne(
      { id: person.id, kind: 'human', state: 'active' },
      { set: { verifyHash: hash, verifyExpiresAt: expiresAt } },
    );
    if (!stored) return;
    await mails.verifyAddress(stored, { url: `${issuer()}/verify/${token}`, hash, expiresAt }, source);
  };

/** Whether the person has an e-mail address that is not verified. */
const isDue = ({
  kind,
  handle,
  emailVerifiedAt,
}: Pick<PrincipalDocument, 'kind' | 'handle' | 'emailVerifiedAt'>): boolean =>
  kind === 'human' && emailVerifiedAt === undefined && mailboxOf(handle) !== undefined;

export interface VerificationDependencies extends Dependencies {
  verifyAddress: VerifyAddress;
  authenticate: Principals['authenticate'];
  throttle: Pick<Throttle, 'count' | 'countKey'>;
  unknownWrites: Pick<UnknownWritesRegistry, 'track'>;
}

const VERIFICATIONS = mailsTo('verify');

export function createVerification(principals: PrincipalCollection, deps: VerificationDependencies) {
  const { verifyAddress, authenticate, throttle, audit, clock } = deps;
  const usedLinks = createUsedLinks(principals, deps);

  /** The person whom a link is about. Does not use it. @throws link_unknown, link_spent */
  const look = async (token: string): Promise<PrincipalDocument> => {
    const id = principalIdOf(token);
    const person = id === undefined ? null : await findLinkOwner(principals, id);
    // Compares both hashes in every case, so that the duration reveals no more than the status.
    const isCurrent = isSecretOf(token, person?.verifyHash ?? UNUSED_HASH);
    const isUsed = isSecretOf(token, person?.usedLinkHash ?? UNUSED_HASH);
    if (!person || !(isCurrent || isUsed)) throw provisioningErrors.link_unknown();
    const { verifyExpiresAt, usedLink } = person;
    const expiresAt = (isCurrent ? verifyExpiresAt : usedLink?.isVerification && usedLink.expiresAt) ?? 0;
    if (expiresAt <= clock.now()) throw provisioningErrors.link_spent();
    return person;
  };

  /** The holder of the account, as of now. @throws invalid_credentials, RATE_LIMITED, OVERLOADED */
  const prove = async (
    { id, handle }: PrincipalDocument,
    { session, password }: AccountProof,
    source: RequestSource,
  ): Promise<SignedIn> => {
    if (session?.id === id) return session;
    if (password === undefined) throw provisioningErrors.invalid_credentials();
    const proven = await authenticate(handle, password, source, (principal) => principal.id === id);
    if (proven) return proven;
    throw provisioningErrors.invalid_credentials();
  };

  return {
    isDue,

    /**
     * Sends a new link, which replaces the previous one. `false` if it is not due.
     * @throws RATE_LIMITED
     */
    async sendAgain(sub: string, source: RequestSource): Promise<boolean> {
      const person = await principals.findOne({ id: sub });
      if (person?.state !== 'active' || !isDue(person)) return false;
      await throttle.count(MAIL_REQUESTS, source.ip);
      await throttle.countKey(VERIFICATIONS, person.handle, source.ip);
      await verifyAddress(person, source);
      return true;
    },

    look,

    /**
     * Verifies the address, once. The link remains valid when the proof is rejected. A repetition of a request that has failed
     * after that succeeds with a valid proof.
     * @throws link_unknown, link_spent, invalid_credentials, RATE_LIMITED, OVERLOADED
     */
    async verify(token: string, proof: AccountProof, source: RequestSource) {
      const person = await look(token);
      const { id, epoch } = await prove(person, proof, source);
      const use = usedLinks.begin(id, sha256(token));
      await usedLinks.complete(use, async () => {
        const { usedLinkHash, unansweredSince } = use;
        const now = clock.now();
        const verified = await principals.updateOne(
          {
            id,
            kind: 'human',
            state: 'active',
            epoch: epoch ?? null,
            verifyHash: usedLinkHash,
            verifyExpiresAt: { gt: now },
          },
          {
            set: {
              emailVerifiedAt: now,
              usedLinkHash,
              usedLink: { expiresAt: person.verifyExpiresAt ?? 0, isInvitation: false, isVerification: true },
              unansweredSince,
              updatedAt: now,
            },
            unset: VERIFICATION_FIELDS,
          },
        );
        if (!verified && !(await usedLinks.findUnanswered(use))?.usedLink?.isVerification) {
          throw provisioningErrors.link_spent();
        }
        await audit.record({ event: 'email.verified', subject: id, ip: source.ip });
      });
    },
  };
}
