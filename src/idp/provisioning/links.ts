import type { RequestSource } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import { isSecretOf, sha256, UNUSED_HASH } from '../../core/kernel/secrets.js';
import { type PasswordPolicy, passwordErrors } from '../../core/passwords/common.js';
import type { Passwords } from '../../core/passwords/hasher.js';
import type { SignInMethods } from '../../core/server/contributions.js';
import { type Change, UniqueViolation } from '../../core/storage/collection.js';
import { applyChange } from '../../core/storage/semantics.js';
import { fixedWindow, type Throttle } from '../../core/throttle/throttle.js';
import { provisioningErrors } from './errors.js';
import type { FirstOperator } from './first-operator.js';
import { canonicalForm, canonicalHandle } from './handles.js';
import { findLinkOwner, principalIdOf } from './link-tokens.js';
import type { PersonMails } from './mails.js';
import { createNewLinks, type NewLinkDependencies } from './new-links.js';
import { chosenPasswordProblem } from './principals.js';
import {
  type EndSessions,
  PASSWORD_LINK_FIELDS,
  type PrincipalCollection,
  type PrincipalDocument,
  VERIFICATION_FIELDS,
} from './store.js';

/**
 * Single-use links that set a password: an invitation activates an account, a reset changes its password. Link and
 * principal are one document, so that using the link and setting the password is one conditional write.
 */

/** The page behind a link. */
export interface LinkTarget {
  /** Absent for the first operator, who is created when the link is used. */
  principal?: PrincipalDocument;
  /** Whether it is an invitation; else a reset. */
  isInvitation: boolean;
  /** Whether it was used, so that only the same request can be repeated. */
  isUsed: boolean;
  expiresAt: number;
}

/** What a person chooses at a link. */
export interface Choice {
  password: string;
  /** Compared with the password, if sent. */
  confirmation?: string | undefined;
  /** Of the first operator. */
  handle?: string | undefined;
}

export type Links = ReturnType<typeof createLinks>;

export interface LinkDependencies extends NewLinkDependencies {
  passwords: Pick<Passwords, 'problem' | 'hash' | 'verify'>;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'count' | 'tryCountKey' | 'trustOnly'>;
  firstOperator: Pick<FirstOperator, 'look'>;
  /** Absent without a mail server. */
  mails?: PersonMails | undefined;
  signInMethods: Pick<SignInMethods, 'removal'>;
  /** Lets the owner give codes of a second factor from this address. Absent if no user can have one. */
  trustForCodes?: ((sub: string, ip: string) => Promise<void>) | undefined;
  endSessions: EndSessions;
  /** Removes what a person has allowed applications. Absent where no link is used. */
  forgetConsents?: ((sub: string) => Promise<void>) | undefined;
}

/** Passwords that are compared with the one that a link has set; the key is the link. */
const REPETITIONS = fixedWindow('link.repetition', 10, DAY);

export function createLinks(principals: PrincipalCollection, deps: LinkDependencies) {
  const { passwords, passwordPolicy, throttle, firstOperator, mails } = deps;
  const { addresses, signInMethods, endSessions, forgetConsents, commit, audit, clock } = deps;

  /**
   * What the page behind a link is about. Does not use the link.
   * @param isSubmitted whether the link may be used, because the request may be a repetition
   * @throws link_unknown, link_spent
   */
  const look = async (token: string, isSubmitted: boolean): Promise<LinkTarget> => {
    // Reads both and compares all hashes in every case, so that the duration reveals no more than the status.
    const [principal, setup] = await Promise.all([
      findLinkOwner(principals, token),
      firstOperator.look(token),
    ]);
    const isCurrent = isSecretOf(token, principal?.linkHash ?? UNUSED_HASH);
    const isMailed = isSecretOf(token, principal?.mailedLinkHash ?? UNUSED_HASH);
    const isUsed = isSecretOf(token, principal?.usedLink?.hash ?? UNUSED_HASH);
    if (!principal && setup) {
      if (setup.hasExpired) throw provisioningErrors.link_spent();
      return { isInvitation: true, isUsed: false, expiresAt: setup.expiresAt };
    }
    if (!principal || !(isCurrent || isMailed || isUsed)) throw provisioningErrors.link_unknown();
    const { linkExpiresAt, mailedLinkExpiresAt, usedLink, state } = principal;
    const isRepeatable = isSubmitted && usedLink?.purpose !== 'verification';
    const usedExpiresAt = isRepeatable ? usedLink?.expiresAt : 0;
    const expiresAt = (isCurrent ? linkExpiresAt : isMailed ? mailedLinkExpiresAt : usedExpiresAt) ?? 0;
    if (expiresAt <= clock.now()) throw provisioningErrors.link_spent();
    const isInvitation = isCurrent ? state === 'invited' : isUsed && usedLink?.purpose !== 'reset';
    return { principal, isInvitation, isUsed: !isCurrent && !isMailed, expiresAt };
  };

  /** The records of an invitation that was accepted. */
  const recordAcceptance = (subject: string, becomesOperator: boolean, { ip }: RequestSource) => [
    audit.entry({ event: 'invitation.accepted', subject, ip }),
    ...(becomesOperator ? [audit.entry({ event: 'operator.granted', subject, ip })] : []),
  ];

  /** Sets the password and marks the link as used. `null` if the principal has changed since it was read. */
  const useLink = async (
    principal: PrincipalDocument,
    { isInvitation, expiresAt }: LinkTarget,
    { hash, passwordHash }: { hash: string; passwordHash: string },
    source: RequestSource,
  ): Promise<PrincipalDocument | null> => {
    const { id, epoch, operatorLinkHash } = principal;
    const isMailed = principal.mailedLinkHash === hash;
    // Someone else may have signed up with the address. The name of a stranger is not greeted in later e-mails.
    const changesOwner = isMailed && (principal.emailVerifiedAt ?? principal.invitedAt) === undefined;
    const becomesOperator = operatorLinkHash === hash;
    const now = clock.now();
    const current = isMailed
      ? { mailedLinkHash: hash, mailedLinkExpiresAt: { gt: now } }
      : { linkHash: hash, linkExpiresAt: { gt: now } };
    const use: Change<PrincipalDocument> = {
      set: {
        state: 'active',
        passwordHash,
        usedLink: { hash, purpose: isInvitation ? 'invitation' : 'reset', expiresAt },
        updatedAt: now,
        ...(becomesOperator && { operatorSince: now }),
        ...(isMailed && { emailVerifiedAt: now }),
      },
      unset: [
        ...PASSWORD_LINK_FIELDS,
        ...(['operatorLinkHash', 'passkeyOnly'] as const),
        ...(isMailed ? VERIFICATION_FIELDS : []),
        ...(changesOwner ? (['name'] as const) : []),
      ],
      inc: { epoch: 1, ...(changesOwner && { signInRevision: 1 }) },
    };
    const { committed } = await commit([
      principals.changing(
        {
          id,
          state: isInvitation ? 'invited' : 'active',
          epoch: epoch ?? null,
          ...current,
          ...(becomesOperator && { operatorLinkHash: hash }),
          ...(changesOwner && { signInRevision: principal.signInRevision ?? null }),
        },
        use,
      ),
      ...(changesOwner ? await signInMethods.removal(id, source) : []),
      await endSessions(principal, source),
      ...(isInvitation
        ? recordAcceptance(id, becomesOperator, source)
        : [
            mails?.passwordChanged(principal, source),
            audit.entry({ event: 'password.reset', subject: id, ip: source.ip }),
          ]),
    ]);
    if (!committed) return null;
    // Afterwards, because until then the stranger could allow more.
    if (changesOwner) await forgetConsents?.(id);
    return applyChange(principal, use);
  };

  /** Creates the first operator. `null` if the link is not valid any more, or a concurrent request has. @throws handle_taken */
  const useFirstLink = async (
    { id, expiresAt }: { id: string; expiresAt: number },
    { handle, hash, passwordHash }: { handle: string; hash: string; passwordHash: string },
    source: RequestSource,
  ): Promise<PrincipalDocument | null> => {
    const now = clock.now();
    if (expiresAt <= now) return null;
    const operator: PrincipalDocument = {
      id,
      handle,
      kind: 'human',
      state: 'active',
      passwordHash,
      usedLink: { hash, purpose: 'setup', expiresAt },
      operatorSince: now,
      createdAt: now,
      updatedAt: now,
    };
    try {
      const parts = [principals.inserting(operator), ...recordAcceptance(id, true, source)];
      await commit([...parts, ...addresses.claiming(operator)]);
      return operator;
    } catch (error) {
      if (!(error instanceof UniqueViolation)) throw error;
      // Engines name either field if both exist.
      if (await principals.findOne({ id })) return null;
      throw provisioningErrors.handle_taken();
    }
  };

  /** The principal whose link the same request has used. @throws link_spent for another request */
  const repeat = async (
    { principal }: LinkTarget,
    { handle, password }: Choice,
    { ip, isDisconnected }: RequestSource,
  ): Promise<PrincipalDocument> => {
    const { usedLink, passwordHash = null } = principal ?? {};
    const isSame =
      usedLink &&
      (usedLink.purpose !== 'setup' || canonicalForm(handle ?? '') === principal?.handle) &&
      (await throttle.tryCountKey(REPETITIONS, usedLink.hash, ip)) &&
      (await passwords.verify(passwordHash, password, isDisconnected)).ok;
    if (!principal || !isSame) throw provisioningErrors.link_spent();
    return principal;
  };

  /** The hash of a password that was chosen for an account with these names. @throws passwords_differ, WEAK_PASSWORD, OVERLOADED */
  const hashChosen = async (
    { password, confirmation }: Choice,
    names: readonly string[],
    { isDisconnected }: RequestSource,
  ): Promise<string> => {
    if (confirmation !== undefined && confirmation !== password) {
      throw provisioningErrors.passwords_differ({
        details: [{ path: 'password_confirm', message: 'does not match password' }],
      });
    }
    const problem = chosenPasswordProblem(password, passwords);
    if (problem) throw passwordErrors.WEAK_PASSWORD({ details: [{ path: 'password', message: problem }] });
    await passwordPolicy.validate(password, names);
    return passwords.hash(password, isDisconnected);
  };

  return {
    ...createNewLinks(principals, deps),

    look,

    /**
     * Sets the password, once. The first operator chooses the handle, too. The link remains valid when the password is rejected. A repetition of the request
     * succeeds with the same password only.
     * @throws link_unknown, link_spent, passwords_differ, WEAK_PASSWORD, VALIDATION_ERROR, handle_taken, RATE_LIMITED,
     * OVERLOADED
     */
    async accept(token: string, choice: Choice, source: RequestSource): Promise<PrincipalDocument> {
      const id = principalIdOf(token) ?? '';
      const hash = sha256(token);
      let passwordHash: string | undefined;
      const use = async (target: LinkTarget): Promise<PrincipalDocument | null> => {
        const { principal, expiresAt } = target;
        const handle = principal?.handle ?? canonicalHandle(choice.handle ?? '');
        passwordHash ??= await hashChosen(
          choice,
          principal?.email ? [handle, principal.email] : [handle],
          source,
        );
        return principal
          ? useLink(principal, target, { hash, passwordHash }, source)
          : useFirstLink({ id, expiresAt }, { handle, hash, passwordHash }, source);
      };
      for (;;) {
        const target = await look(token, true);
        // Decides again after another change, for example a new passkey of a stranger.
        const principal = target.isUsed ? await repeat(target, choice, source) : await use(target);
        if (!principal) continue;
        await throttle.trustOnly(principal.handle, source.ip);
        await deps.trustForCodes?.(id, source.ip);
        return principal;
      }
    },
  };
}
