import type { RequestSource } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { isSecretOf, newId, sha256, UNUSED_HASH } from '../../core/kernel/secrets.js';
import { actorOf } from '../../core/ops/audit.js';
import type { UnknownWritesRegistry } from '../../core/ops/unknown-writes.js';
import { createUsedLinks, type LinkUse } from '../../core/ops/used-links.js';
import { type PasswordPolicy, passwordErrors } from '../../core/passwords/common.js';
import type { Passwords } from '../../core/passwords/hasher.js';
import type { SignInMethods } from '../../core/server/contributions.js';
import { nullIfTaken } from '../../core/storage/collection.js';
import { fixedWindow, type Throttle } from '../../core/throttle/throttle.js';
import { provisioningErrors } from './errors.js';
import { type FirstOperator, linkUrl, newLinkToken, OPERATOR_LINK_LIFETIME_MS } from './first-operator.js';
import { canonicalHandle } from './handles.js';
import { CREATIONS } from './limits.js';
import type { PersonMails } from './mails.js';
import { chosenPasswordProblem, type Dependencies } from './principals.js';
import {
  type EndSessions,
  OPERATOR_FIELDS,
  PASSWORD_LINK_FIELDS,
  type PrincipalCollection,
  type PrincipalDocument,
  VERIFICATION_FIELDS,
} from './store.js';

/**
 * Single-use links that set a password: an invitation activates an account, a reset changes its password. Link and
 * principal are one document, so that using the link and setting the password is one conditional write.
 */

export interface Invitation {
  principal: PrincipalDocument;
  url: string;
  expiresAt: number;
}

/** The page behind a link. */
export interface LinkTarget {
  /** Absent for the first operator, who is created when the link is used. */
  principal?: PrincipalDocument;
  /** Whether it is an invitation; else a reset. */
  isInvitation: boolean;
  expiresAt: number;
}

export type Links = ReturnType<typeof createLinks>;

export interface LinkDependencies extends Dependencies {
  passwords: Pick<Passwords, 'problem' | 'hash' | 'verify'>;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'count' | 'countKey' | 'trustOnly'>;
  unknownWrites: Pick<UnknownWritesRegistry, 'track'>;
  firstOperator: Pick<FirstOperator, 'look' | 'create'>;
  /** Absent without a mail server. */
  mails?: PersonMails | undefined;
  /** Removes the passkeys and the second factor of a person. Absent where no link is used. */
  removeOtherLogins?: SignInMethods['remove'] | undefined;
  /** Lets the owner give codes of a second factor from this address. Absent if no user can have one. */
  trustForCodes?: ((sub: string, ip: string) => Promise<void>) | undefined;
  endSessions: EndSessions;
  /** Removes what a person has allowed applications. Absent where no link is used. */
  forgetConsents?: ((sub: string) => Promise<void>) | undefined;
  issuer(): string;
}

const DEFAULT_INVITE_DAYS = 7;
const MAX_INVITE_DAYS = 30;
/** What a link does, and for how long. */
interface LinkKind {
  lifetimeMs: number;
  /** Whether it makes an operator. */
  isForOperator: boolean;
}

const RESET: LinkKind = { lifetimeMs: DAY, isForOperator: false };

/** Passwords that are compared with the one that a link has set; the key is the link. */
const REPETITIONS = fixedWindow('link.repetition', 10, DAY);

export function createLinks(principals: PrincipalCollection, deps: LinkDependencies) {
  const { passwords, passwordPolicy, throttle, firstOperator, mails } = deps;
  const { endSessions, forgetConsents, issuer, audit, clock, random } = deps;

  const usedLinks = createUsedLinks(principals, deps);

  /** A new link of a principal, and the fields to store. */
  const newLink = (id: string, { lifetimeMs, isForOperator }: LinkKind) => {
    const token = newLinkToken(id, random);
    const linkHash = sha256(token);
    const stored = {
      linkHash,
      linkExpiresAt: clock.now() + lifetimeMs,
      ...(isForOperator && { operatorLinkHash: linkHash }),
    };
    return { stored, url: linkUrl(issuer(), token) };
  };

  const insertInvited = async (handle: string, name: string | undefined, kind: LinkKind) => {
    const now = clock.now();
    const id = newId('u_', clock, random);
    const { stored, url } = newLink(id, kind);
    const principal: PrincipalDocument = {
      id,
      handle,
      kind: 'human',
      ...(name && { name }),
      state: 'invited',
      ...stored,
      invitedAt: now,
      createdAt: now,
      updatedAt: now,
    };
    const inserted = await principals.insert(principal).then(() => principal, nullIfTaken);
    return inserted && { principal: inserted, url };
  };

  const renewInvitation = async (handle: string, name: string | undefined, kind: LinkKind) => {
    const invited = await principals.findOne({ handle, state: 'invited' });
    if (!invited) return null;
    const { stored, url } = newLink(invited.id, kind);
    const principal = await principals.updateOne(
      { id: invited.id, state: 'invited' },
      {
        set: { ...stored, ...(name && { name }), updatedAt: clock.now() },
        ...(!kind.isForOperator && { unset: ['operatorLinkHash'] }),
      },
    );
    return principal && { principal, url };
  };

  const inviteAs = async (
    { handle, name }: { handle: string; name?: string },
    kind: LinkKind,
    source: RequestSource,
  ): Promise<Invitation> => {
    const canonical = canonicalHandle(handle);
    await throttle.count(CREATIONS, source.ip);
    const invited =
      (await insertInvited(canonical, name, kind)) ?? (await renewInvitation(canonical, name, kind));
    if (!invited) throw provisioningErrors.handle_taken();
    const { principal, url } = invited;
    const event = kind.isForOperator ? 'operator.invited' : 'human.invited';
    await audit.record({ event, subject: principal.id, ...actorOf(source) });
    return { principal, url, expiresAt: principal.linkExpiresAt ?? 0 };
  };

  /** What the page behind a link is about. Does not use the link. @throws link_unknown, link_spent */
  const look = async (token: string): Promise<LinkTarget> => {
    const id = principalIdOf(token);
    // Reads both and compares all hashes in every case, so that the duration reveals no more than the status.
    const [principal, setup] =
      id === undefined
        ? [null, null]
        : await Promise.all([findLinkOwner(principals, id), firstOperator.look(token)]);
    const isCurrent = isSecretOf(token, principal?.linkHash ?? UNUSED_HASH);
    const isMailed = isSecretOf(token, principal?.mailedLinkHash ?? UNUSED_HASH);
    const isUsed = isSecretOf(token, principal?.usedLinkHash ?? UNUSED_HASH);
    if (!principal && setup) {
      if (setup.hasExpired) throw provisioningErrors.link_spent();
      return { isInvitation: true, expiresAt: setup.expiresAt };
    }
    if (!principal || !(isCurrent || isMailed || isUsed)) throw provisioningErrors.link_unknown();
    const { linkExpiresAt, mailedLinkExpiresAt, usedLink, state } = principal;
    const usedExpiresAt = usedLink?.isVerification ? 0 : usedLink?.expiresAt;
    const expiresAt = (isCurrent ? linkExpiresAt : isMailed ? mailedLinkExpiresAt : usedExpiresAt) ?? 0;
    if (expiresAt <= clock.now()) throw provisioningErrors.link_spent();
    const isInvitation = isCurrent ? state === 'invited' : isUsed && usedLink?.isInvitation === true;
    return { principal, isInvitation, expiresAt };
  };

  /** Sets the password and marks the link as used. `null` if the link is not valid any more. */
  const useLink = async (
    principal: PrincipalDocument,
    { isInvitation, expiresAt }: LinkTarget,
    { usedLinkHash, unansweredSince }: LinkUse,
    password: string,
    source: RequestSource,
  ): Promise<PrincipalDocument | null> => {
    const { id, handle, linkHash, mailedLinkHash, operatorLinkHash } = principal;
    const isMailed = mailedLinkHash === usedLinkHash;
    // Someone else may have signed up with the address. The name of a stranger is not greeted in later e-mails.
    const changesOwner = isMailed && (principal.emailVerifiedAt ?? principal.invitedAt) === undefined;
    if (linkHash !== usedLinkHash && !isMailed) return null;
    const becomesOperator = operatorLinkHash === usedLinkHash;
    await passwordPolicy.validate(password, [handle]);
    const passwordHash = await passwords.hash(password, source.isDisconnected);
    // Enqueued before the change and sent only after it, so that a crash in between loses nothing.
    if (!isInvitation) await mails?.passwordChanged(principal, source);
    const now = clock.now();
    const current = isMailed
      ? { mailedLinkHash: usedLinkHash, mailedLinkExpiresAt: { gt: now } }
      : { linkHash: usedLinkHash, linkExpiresAt: { gt: now } };
    const removeOtherLogins = async () => {
      if (changesOwner) await deps.removeOtherLogins?.(id, source);
    };
    await removeOtherLogins();
    const used = await endSessions(id, () =>
      principals.updateOne(
        {
          id,
          state: { in: isMailed ? ['active'] : ['invited', 'active'] },
          ...current,
          ...(becomesOperator && { operatorLinkHash: usedLinkHash }),
        },
        {
          set: {
            state: 'active',
            passwordHash,
            usedLinkHash,
            usedLink: { expiresAt, isInvitation },
            unansweredSince,
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
          inc: { epoch: 1, ...(!isInvitation && { passwordVersion: 1 }) },
        },
      ),
    );
    // Afterwards, because until then the stranger could allow more, and add logins.
    if (used && changesOwner) await forgetConsents?.(id);
    await removeOtherLogins();
    return used;
  };

  /** Creates the first operator. `null` if the link is not valid any more. */
  const useFirstLink = async (
    { expiresAt }: LinkTarget,
    { id, usedLinkHash, unansweredSince }: LinkUse,
    { handle, password }: { handle: string; password: string },
    { isDisconnected }: RequestSource,
  ): Promise<PrincipalDocument | null> => {
    await passwordPolicy.validate(password, [handle]);
    const passwordHash = await passwords.hash(password, isDisconnected);
    const now = clock.now();
    if (expiresAt <= now) return null;
    return firstOperator.create({
      id,
      handle,
      kind: 'human',
      state: 'active',
      passwordHash,
      usedLinkHash,
      usedLink: { expiresAt, isInvitation: true },
      unansweredSince,
      operatorSince: now,
      createdAt: now,
      updatedAt: now,
    });
  };

  /** The principal whose password a failed request with this link has set to `password`; `null` otherwise. */
  const findAccepted = async (
    use: LinkUse,
    password: string,
    { ip, isDisconnected }: RequestSource,
  ): Promise<PrincipalDocument | null> => {
    const principal = await usedLinks.findUnanswered(use);
    if (principal?.state !== 'active') return null;
    await throttle.countKey(REPETITIONS, use.usedLinkHash, ip);
    const { ok } = await passwords.verify(principal.passwordHash ?? null, password, isDisconnected);
    return ok ? principal : null;
  };

  return {
    /**
     * Invites a user, who cannot sign in until the link is used. A new invitation revokes the previous link.
     * @throws kind_not_allowed, invalid_days, handle_taken, VALIDATION_ERROR, RATE_LIMITED
     */
    async invite(
      {
        days = DEFAULT_INVITE_DAYS,
        kind = 'human',
        password,
        ...input
      }: { handle: string; name?: string; days?: unknown; kind?: unknown; password?: unknown },
      source: RequestSource,
    ): Promise<Invitation & { days: number }> {
      if (kind !== 'human') {
        throw provisioningErrors.kind_not_allowed({ message: 'This endpoint invites humans only.' });
      }
      if (password !== undefined)
        throw invalidFields({ path: 'password', message: 'is chosen by the invited person' });
      if (!isDays(days)) throw provisioningErrors.invalid_days();
      const invitation = await inviteAs(input, { lifetimeMs: days * DAY, isForOperator: false }, source);
      return { ...invitation, days };
    },

    /**
     * Invites a user who becomes an operator by using the link, within an hour. Any later invitation makes an ordinary
     * user.
     * @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED
     */
    inviteOperator: (input: { handle: string; name?: string }, source: RequestSource): Promise<Invitation> =>
      inviteAs(input, { lifetimeMs: OPERATOR_LINK_LIFETIME_MS, isForOperator: true }, source),

    /** Ends an invitation that was not accepted; the user can be invited again. `null` if there is none. */
    async withdraw(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const withdrawn = await principals.updateOne(
        { id: sub, state: 'invited' },
        { set: { updatedAt: clock.now() }, unset: ['linkHash', 'linkExpiresAt', ...OPERATOR_FIELDS] },
      );
      if (withdrawn) await audit.record({ event: 'invitation.withdrawn', subject: sub, ...actorOf(source) });
      return withdrawn;
    },

    /**
     * Creates a link for a forgotten password, which remains valid until the link is used. `null` unless `person` is
     * human and active.
     */
    async reset(
      { id }: PrincipalDocument,
      source: RequestSource,
    ): Promise<{ url: string; expiresAt: number } | null> {
      const { stored, url } = newLink(id, RESET);
      const found = await principals.updateOne({ id, kind: 'human', state: 'active' }, { set: stored });
      if (!found) return null;
      await audit.record({ event: 'password.reset_begun', subject: id, ...actorOf(source) });
      return { url, expiresAt: stored.linkExpiresAt };
    },

    look,

    /**
     * Sets the password, once. The first operator chooses the handle, too. The link remains valid when the password is rejected. A repetition of a request that has
     * failed after that succeeds with the same password only.
     * @throws link_unknown, link_spent, passwords_differ, WEAK_PASSWORD, VALIDATION_ERROR, handle_taken, RATE_LIMITED,
     * OVERLOADED
     */
    async accept(
      token: string,
      {
        password,
        confirmation,
        handle,
      }: { password: string; confirmation: string | undefined; handle?: string | undefined },
      source: RequestSource,
    ): Promise<PrincipalDocument> {
      const found = await look(token);
      if (confirmation !== undefined && confirmation !== password) {
        throw provisioningErrors.passwords_differ({
          details: [{ path: 'password_confirm', message: 'does not match password' }],
        });
      }
      const problem = chosenPasswordProblem(password, passwords);
      if (problem) {
        throw passwordErrors.WEAK_PASSWORD({ details: [{ path: 'password', message: problem }] });
      }
      const { principal: owner } = found;
      const chosen = owner ? owner.handle : canonicalHandle(handle ?? '');
      const use = usedLinks.begin(principalIdOf(token) ?? '', sha256(token));
      return usedLinks.complete(use, async () => {
        const accepted = owner
          ? await useLink(owner, found, use, password, source)
          : await useFirstLink(found, use, { handle: chosen, password }, source);
        const principal = accepted ?? (await findAccepted(use, password, source));
        if (!principal) throw provisioningErrors.link_spent();
        const { id, usedLink, operatorSince } = principal;
        await throttle.trustOnly(principal.handle, source.ip);
        await deps.trustForCodes?.(id, source.ip);
        const event = usedLink?.isInvitation ? 'invitation.accepted' : 'password.reset';
        await audit.record({ event, subject: id, ip: source.ip });
        if (usedLink?.isInvitation && operatorSince !== undefined) {
          await audit.record({ event: 'operator.granted', subject: id, ip: source.ip });
        }
        return principal;
      });
    },
  };
}

const isDays = (days: unknown): days is number =>
  Number.isInteger(days) && (days as number) >= 1 && (days as number) <= MAX_INVITE_DAYS;

/** Reads the nearest principal, so that an identifier without a principal takes as long as one with a principal. */
export async function findLinkOwner(
  principals: Pick<PrincipalCollection, 'page'>,
  id: string,
): Promise<PrincipalDocument | null> {
  const query = { where: { id: { lte: id } }, sort: 'id', desc: true, limit: 1 } as const;
  const [nearest] = (await principals.page(query)).items;
  return nearest?.id === id ? nearest : null;
}

/** The id of a principal in the token of a link. */
export function principalIdOf(token: string): string | undefined {
  const name = /^([0-9a-f]{32})[\w-]{43}$/.exec(token)?.[1];
  return name === undefined ? undefined : `u_${name}`;
}
