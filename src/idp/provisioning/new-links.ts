import type { RequestSource } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { newId } from '../../core/kernel/secrets.js';
import { actorOf } from '../../core/ops/audit.js';
import { type Change, nullIfTaken } from '../../core/storage/collection.js';
import { applyChange } from '../../core/storage/semantics.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import type { Groups } from '../groups/service.js';
import { provisioningErrors } from './errors.js';
import { OPERATOR_LINK_LIFETIME_MS } from './first-operator.js';
import { canonicalHandle } from './handles.js';
import { CREATIONS } from './limits.js';
import { linkUrl, newLink } from './link-tokens.js';
import type { Dependencies } from './principals.js';
import { OPERATOR_FIELDS, type PrincipalCollection, type PrincipalDocument } from './store.js';

/** New links that set a password, which the operator gives to people. Only the hash of a link is stored. */

export interface Invitation {
  principal: PrincipalDocument;
  url: string;
  expiresAt: number;
}

/** What an invitation gives. */
export interface Invited {
  name?: string | undefined;
  /** The groups that the person is in from the acceptance on; an invitation that is repeated adds to those of the first. */
  groups?: readonly string[] | undefined;
}

export interface NewLinkDependencies extends Dependencies {
  throttle: Pick<Throttle, 'count'>;
  groups: Pick<Groups, 'joining' | 'leaving'>;
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

export function createNewLinks(
  principals: PrincipalCollection,
  { throttle, groups, issuer, commit, audit, clock, random }: NewLinkDependencies,
) {
  /** A new link of a principal, and the fields to store. */
  const createLink = (id: string, { lifetimeMs, isForOperator }: LinkKind) => {
    const link = newLink(id, lifetimeMs, { clock, random });
    const { hash: linkHash, expiresAt: linkExpiresAt } = link;
    const stored = { linkHash, linkExpiresAt, ...(isForOperator && { operatorLinkHash: linkHash }) };
    return { stored, url: linkUrl(issuer(), link) };
  };

  const recordInvitation = (subject: string, { isForOperator }: LinkKind, source: RequestSource) =>
    audit.entry({
      event: isForOperator ? 'operator.invited' : 'human.invited',
      subject,
      ...actorOf(source),
    });

  const insertInvited = async (
    handle: string,
    { name, groups: names = [] }: Invited,
    kind: LinkKind,
    source: RequestSource,
  ) => {
    const now = clock.now();
    const id = newId('u_', clock, random);
    const { stored, url } = createLink(id, kind);
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
    const isInserted = await commit([
      principals.inserting(principal),
      ...(await groups.joining(names, principal, source)),
      recordInvitation(id, kind, source),
    ]).catch(nullIfTaken);
    return isInserted && { principal, url };
  };

  const renewInvitation = async (
    handle: string,
    { name, groups: names = [] }: Invited,
    kind: LinkKind,
    source: RequestSource,
  ) => {
    const invited = await principals.findOne({ handle, state: 'invited' });
    if (!invited) return null;
    const { stored, url } = createLink(invited.id, kind);
    const renewal: Change<PrincipalDocument> = {
      set: { ...stored, ...(name && { name }), updatedAt: clock.now() },
      ...(!kind.isForOperator && { unset: ['operatorLinkHash'] }),
    };
    const { committed } = await commit([
      principals.changing({ id: invited.id, state: 'invited' }, renewal),
      ...(await groups.joining(names, invited, source)),
      recordInvitation(invited.id, kind, source),
    ]);
    return committed ? { principal: applyChange(invited, renewal), url } : null;
  };

  const inviteAs = async (
    { handle, ...given }: { handle: string } & Invited,
    kind: LinkKind,
    source: RequestSource,
  ): Promise<Invitation> => {
    const canonical = canonicalHandle(handle);
    await throttle.count(CREATIONS, source.ip);
    const invited =
      (await insertInvited(canonical, given, kind, source)) ??
      (await renewInvitation(canonical, given, kind, source));
    if (!invited) throw provisioningErrors.handle_taken();
    const { principal, url } = invited;
    return { principal, url, expiresAt: principal.linkExpiresAt ?? 0 };
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
      }: { handle: string; days?: unknown; kind?: unknown; password?: unknown } & Invited,
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

    /** Ends an invitation that was not accepted, with its groups; the user can be invited again. False if there is none. */
    async withdraw(sub: string, source: RequestSource): Promise<boolean> {
      const ending = principals.changing(
        { id: sub, state: 'invited' },
        { set: { updatedAt: clock.now() }, unset: ['linkHash', 'linkExpiresAt', ...OPERATOR_FIELDS] },
      );
      for (;;) {
        const outcome = await commit([
          ending,
          ...(await groups.leaving(sub)),
          audit.entry({ event: 'invitation.withdrawn', subject: sub, ...actorOf(source) }),
        ]);
        if (outcome.committed || outcome.unmet === ending) return outcome.committed;
        // It has left a group since they were read.
      }
    },

    /**
     * Creates a link for a forgotten password, which remains valid until the link is used. `null` unless `person` is
     * human and active.
     */
    async reset(
      { id }: PrincipalDocument,
      source: RequestSource,
    ): Promise<{ url: string; expiresAt: number } | null> {
      const { stored, url } = createLink(id, RESET);
      const { committed } = await commit([
        principals.changing({ id, kind: 'human', state: 'active' }, { set: stored }),
        audit.entry({ event: 'password.reset_begun', subject: id, ...actorOf(source) }),
      ]);
      return committed ? { url, expiresAt: stored.linkExpiresAt } : null;
    },
  };
}

const isDays = (days: unknown): days is number =>
  Number.isInteger(days) && (days as number) >= 1 && (days as number) <= MAX_INVITE_DAYS;
