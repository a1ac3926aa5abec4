import type { RequestSource } from '../../core/http/routes.js';
import { isSecretOf, sha256, UNUSED_HASH } from '../../core/kernel/secrets.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { provisioningErrors } from './errors.js';
import { MAIL_REQUESTS, mailsTo } from './limits.js';
import { findLinkOwner } from './link-tokens.js';
import type { PersonMails } from './mails.js';
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

export interface VerificationDependencies extends Dependencies {
  mails: Pick<PersonMails, 'verification' | 'isVerificationDue'>;
  authenticate: Principals['authenticate'];
  throttle: Pick<Throttle, 'count' | 'countKey'>;
}

const VERIFICATIONS = mailsTo('verify');

export function createVerification(principals: PrincipalCollection, deps: VerificationDependencies) {
  const { mails, authenticate, throttle, commit, audit, clock } = deps;

  /**
   * The person whom a link is about. Does not use it.
   * @param isSubmitted whether the link may be used, because the request may be a repetition
   * @throws link_unknown, link_spent
   */
  const look = async (
    token: string,
    isSubmitted: boolean,
  ): Promise<{ person: PrincipalDocument; isUsed: boolean }> => {
    const person = await findLinkOwner(principals, token);
    // Compares both hashes in every case, so that the duration reveals no more than the status.
    const isCurrent = isSecretOf(token, person?.verifyHash ?? UNUSED_HASH);
    const isUsed = isSecretOf(token, person?.usedLink?.hash ?? UNUSED_HASH);
    if (!person || !(isCurrent || isUsed)) throw provisioningErrors.link_unknown();
    const { verifyExpiresAt, usedLink } = person;
    const isRepeatable = isSubmitted && usedLink?.purpose === 'verification';
    const expiresAt = (isCurrent ? verifyExpiresAt : isRepeatable ? usedLink.expiresAt : 0) ?? 0;
    if (expiresAt <= clock.now()) throw provisioningErrors.link_spent();
    return { person, isUsed: !isCurrent };
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
    isDue: mails.isVerificationDue,

    /**
     * Sends a new link, which replaces the previous one. `false` if it is not due.
     * @throws RATE_LIMITED
     */
    async sendAgain(sub: string, source: RequestSource): Promise<boolean> {
      const person = await principals.findOne({ id: sub });
      if (person?.state !== 'active' || !mails.isVerificationDue(person)) return false;
      await throttle.count(MAIL_REQUESTS, source.ip);
      await throttle.countKey(VERIFICATIONS, person.handle, source.ip);
      const link = mails.verification(person, source);
      if (!link) return false;
      const { committed } = await commit([
        principals.changing(
          { id: sub, email: person.email ?? null, kind: 'human', state: 'active' },
          { set: link.stored },
        ),
        link.mail,
      ]);
      return committed;
    },

    look,

    /**
     * Verifies the address, once. The link remains valid when the proof is rejected. A repetition of the request succeeds with a
     * valid proof.
     * @throws link_unknown, link_spent, invalid_credentials, RATE_LIMITED, OVERLOADED
     */
    async verify(token: string, proof: AccountProof, source: RequestSource) {
      let target = await look(token, true);
      const { id, epoch } = await prove(target.person, proof, source);
      const hash = sha256(token);
      while (!target.isUsed) {
        // The credentials have changed since they were proven.
        if (target.person.epoch !== epoch) throw provisioningErrors.link_spent();
        const now = clock.now();
        const { committed } = await commit([
          principals.changing(
            {
              id,
              kind: 'human',
              state: 'active',
              epoch: epoch ?? null,
              verifyHash: hash,
              verifyExpiresAt: { gt: now },
            },
            {
              set: {
                emailVerifiedAt: now,
                usedLink: { hash, purpose: 'verification', expiresAt: target.person.verifyExpiresAt ?? 0 },
                updatedAt: now,
              },
              unset: VERIFICATION_FIELDS,
            },
          ),
          audit.entry({ event: 'email.verified', subject: id, ip: source.ip }),
        ]);
        if (committed) return;
        target = await look(token, true);
      }
    },
  };
}
