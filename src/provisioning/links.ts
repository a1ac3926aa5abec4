import type { Origin } from '../http/scope.js';
import { DAY } from '../kernel/clock.js';
import { invalidFields } from '../kernel/errors.js';
import { isSecretOf, newId, newToken, type Random, sha256, UNUSED_HASH } from '../kernel/secrets.js';
import type { UnknownWritesRegistry } from '../ops/unknown-writes.js';
import { createUsedLinks, type LinkUse } from '../ops/used-links.js';
import { type PasswordPolicy, passwordErrors } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';
import { nullIfTaken } from '../storage/collection.js';
import { atMost, type Throttle } from '../throttle/throttle.js';
import { provisioningErrors } from './errors.js';
import { canonicalHandle } from './handles.js';
import { CREATIONS, chosenPasswordProblem, type Dependencies } from './principals.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/**
 * Single-use links that set a password: an invitation activates an account, a reset changes its password. Link and
 * principal are one document, so that using the link and setting the password is one conditional write.
 */

export interface Invitation {
  principal: PrincipalDocument;
  url: string;
  expiresAt: number;
  days: number;
}

export interface Links {
  /**
   * Invites a user, who cannot sign in until the link is used. A new invitation revokes the previous link.
   * @throws kind_not_allowed, invalid_days, handle_taken, VALIDATION_ERROR, RATE_LIMITED
   */
  invite(
    input: { handle: string; name?: string; days?: unknown; kind?: unknown; password?: unknown },
    from: Origin,
  ): Promise<Invitation>;
  /**
   * Creates a link for a forgotten password, which remains valid until the link is used. `null` unless `person` is
   * human and active.
   */
  reset(person: PrincipalDocument, from: Origin): Promise<{ url: string; expiresAt: number } | null>;
  /** The owner of a link, and whether it is an invitation. Does not use the link. @throws link_unknown, link_spent */
  look(token: string): Promise<{ principal: PrincipalDocument; isInvitation: boolean }>;
  /**
   * Sets the password, once. The link remains valid when the password is rejected. A repetition of a request that has
   * failed after that succeeds with the same password only.
   * @throws link_unknown, link_spent, passwords_differ, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED
   */
  accept(
    token: string,
    input: { password: string; confirmation: string | undefined },
    from: Origin,
  ): Promise<PrincipalDocument>;
}

export interface LinkDependencies extends Dependencies {
  passwords: Pick<Passwords, 'problem' | 'hash' | 'verify'>;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'count' | 'countKey' | 'trustOnly'>;
  unknownWrites: Pick<UnknownWritesRegistry, 'track'>;
  issuer(): string;
}

const DEFAULT_INVITE_DAYS = 7;
const MAX_INVITE_DAYS = 30;
const RESET_DAYS = 1;

/** Passwords that are compared with the one that a link has set; the key is the link. */
const REPETITIONS = atMost('link.repetition', 10, DAY);

export function createLinks(principals: PrincipalCollection, deps: LinkDependencies): Links {
  const { passwords, passwordPolicy, throttle, issuer, audit, clock, random } = deps;

  const usedLinks = createUsedLinks(principals, deps);

  /** A new link of a principal, and the fields to store. */
  const newLink = (id: string, days: number) => {
    const token = newLinkToken(id, random);
    const stored = { linkHash: sha256(token), linkExpiresAt: clock.now() + days * DAY };
    return { stored, url: `${issuer()}/invite/${token}` };
  };

  const insertInvited = async (handle: string, name: string | undefined, days: number) => {
    const now = clock.now();
    const id = newId('u_', clock, random);
    const { stored, url } = newLink(id, days);
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

  const renewInvitation = async (handle: string, name: string | undefined, days: number) => {
    const invited = await principals.findOne({ handle, state: 'invited' });
    if (!invited) return null;
    const { stored, url } = newLink(invited.id, days);
    const principal = await principals.updateOne(
      { id: invited.id, state: 'invited' },
      { set: { ...stored, ...(name && { name }), updatedAt: clock.now() } },
    );
    return principal && { principal, url };
  };

  /** Reads the nearest principal, so that an identifier without a principal takes as long as one with a principal. */
  const findOwner = async (id: string): Promise<PrincipalDocument | null> => {
    const query = { where: { id: { lte: id } }, sort: 'id', desc: true, limit: 1 } as const;
    const [nearest] = (await principals.page(query)).items;
    return nearest?.id === id ? nearest : null;
  };

  const look: Links['look'] = async (token) => {
    const id = principalIdOf(token);
    const principal = id === undefined ? null : await findOwner(id);
    // Compares both hashes in every case, so that the duration reveals no more than the status.
    const isCurrent = isSecretOf(token, principal?.linkHash ?? UNUSED_HASH);
    const isUsed = isSecretOf(token, principal?.usedLinkHash ?? UNUSED_HASH);
    if (!principal || !(isCurrent || isUsed)) throw provisioningErrors.link_unknown();
    const { linkExpiresAt, usedLink, state } = principal;
    const expiresAt = (isCurrent ? linkExpiresAt : usedLink?.expiresAt) ?? 0;
    if (expiresAt <= clock.now()) throw provisioningErrors.link_spent();
    return { principal, isInvitation: isCurrent ? state === 'invited' : usedLink?.isInvitation === true };
  };

  /** Sets the password and marks the link as used. `null` if the link is not valid any more. */
  const useLink = async (
    { principal, isInvitation }: Awaited<ReturnType<typeof look>>,
    { usedLinkHash, unansweredSince }: LinkUse,
    password: string,
    { isDisconnected }: Origin,
  ): Promise<PrincipalDocument | null> => {
    const { id, handle, linkHash, linkExpiresAt: expiresAt = 0 } = principal;
    if (linkHash !== usedLinkHash) return null;
    await passwordPolicy.validate(password, [handle]);
    const passwordHash = await passwords.hash(password, isDisconnected);
    const now = clock.now();
    return principals.updateOne(
      { id, state: { in: ['invited', 'active'] }, linkHash, linkExpiresAt: { gt: now } },
      {
        set: {
          state: 'active',
          passwordHash,
          usedLinkHash,
          usedLink: { expiresAt, isInvitation },
          unansweredSince,
          updatedAt: now,
        },
        unset: ['linkHash', 'linkExpiresAt'],
        inc: { epoch: 1 },
      },
    );
  };

  /** The principal whose password a failed request with this link has set to `password`; `null` otherwise. */
  const findAccepted = async (
    use: LinkUse,
    password: string,
    { ip, isDisconnected }: Origin,
  ): Promise<PrincipalDocument | null> => {
    const principal = await usedLinks.findUnanswered(use);
    if (principal?.state !== 'active') return null;
    await throttle.countKey(REPETITIONS, use.usedLinkHash, ip);
    const { ok } = await passwords.verify(principal.passwordHash ?? null, password, isDisconnected);
    return ok ? principal : null;
  };

  return {
    async invite({ handle, name, days = DEFAULT_INVITE_DAYS, kind = 'human', password }, { ip }) {
      if (kind !== 'human') {
        throw provisioningErrors.kind_not_allowed({ message: 'This endpoint invites humans only.' });
      }
      if (password !== undefined)
        throw invalidFields({ path: 'password', message: 'is chosen by the invited person' });
      if (!isDays(days)) throw provisioningErrors.invalid_days();
      const canonical = canonicalHandle(handle);
      await throttle.count(CREATIONS, ip);
      const invited =
        (await insertInvited(canonical, name, days)) ?? (await renewInvitation(canonical, name, days));
      if (!invited) throw provisioningErrors.handle_taken();
      const { principal, url } = invited;
      await audit.record({ event: 'human.invited', subject: principal.id, ip });
      return { principal, url, expiresAt: principal.linkExpiresAt ?? 0, days };
    },

    async reset({ id }, { ip }) {
      const { stored, url } = newLink(id, RESET_DAYS);
      const found = await principals.updateOne({ id, kind: 'human', state: 'active' }, { set: stored });
      if (!found) return null;
      await audit.record({ event: 'password.reset_begun', subject: id, ip });
      return { url, expiresAt: stored.linkExpiresAt };
    },

    look,

    async accept(token, { password, confirmation }, from) {
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
      const use = usedLinks.begin(found.principal.id, sha256(token));
      return usedLinks.complete(use, async () => {
        const principal =
          (await useLink(found, use, password, from)) ?? (await findAccepted(use, password, from));
        if (!principal) throw provisioningErrors.link_spent();
        const { id, handle, usedLink } = principal;
        await throttle.trustOnly(handle, from.ip);
        const event = usedLink?.isInvitation ? 'invitation.accepted' : 'password.reset';
        await audit.record({ event, subject: id, ip: from.ip });
        return principal;
      });
    },
  };
}

const isDays = (days: unknown): days is number =>
  Number.isInteger(days) && (days as number) >= 1 && (days as number) <= MAX_INVITE_DAYS;

/** Contains the id of the principal, to find it without an index; the 256 random bits after it are the secret. */
function newLinkToken(id: string, random: Random): string {
  return newToken(random, id.slice('u_'.length));
}

function principalIdOf(token: string): string | undefined {
  const name = /^([0-9a-f]{32})[\w-]{43}$/.exec(token)?.[1];
  return name === undefined ? undefined : `u_${name}`;
}
