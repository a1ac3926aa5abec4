import type { RequestSource } from '../../core/http/routes.js';
import { DAY, SECOND } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { newId } from '../../core/kernel/secrets.js';
import { type AuditRecord, actorOf } from '../../core/ops/audit.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { Job } from '../../core/ops/jobs.js';
import { PURGE_BATCH_SIZE, purgeEach, purgeInBatches } from '../../core/ops/purge.js';
import type { AccountData } from '../../core/server/contributions.js';
import type { Change, Where } from '../../core/storage/collection.js';
import { applyChange } from '../../core/storage/semantics.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import type { Groups } from '../groups/service.js';
import { type Addresses, namesOf } from './addresses.js';
import type { Clients } from './clients.js';
import { provisioningErrors } from './errors.js';
import { OPERATOR_LINK_LIFETIME_MS } from './first-operator.js';
import { CREATIONS } from './limits.js';
import { hasExpiredLink, linkUrl, newLink } from './link-tokens.js';
import type { PersonMails } from './mails.js';
import type { Dependencies } from './principals.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** New links that set a password, which the operator gives to people. Only the hash of a link is stored. */

export interface Invitation {
  principal: PrincipalDocument;
  url: string;
  expiresAt: number;
  /** The mailbox to which the link is sent, if it is. */
  sentTo?: string | undefined;
}

/** Who is invited, and what the invitation gives. One that is repeated adds groups, and replaces the rest only where it is given. */
export interface Invited {
  handle: string;
  email?: string | undefined;
  name?: string | undefined;
  /** The groups that the person is in from the acceptance on. */
  groups?: readonly string[] | undefined;
  /** The application to which the person continues: its identifier or its name. It admits the person by groups alone. */
  application?: string | undefined;
}

/** Who is invited, and whether there must be an invitation that was not accepted. */
type Invitee = Invited & { isRepeated?: boolean | undefined };

/** Whether the link is mailed: never, if there is a mail server and an address, or else the invitation is refused. */
export type Delivery = 'none' | 'if-possible' | 'required';

export interface NewLinkDependencies extends Dependencies {
  throttle: Pick<Throttle, 'count'>;
  addresses: Addresses;
  groups: Pick<Groups, 'joining' | 'leaving' | 'refuseUnknown'>;
  clients: Pick<Clients, 'find' | 'findNamed'>;
  accountData: Pick<AccountData, 'delete'>;
  /** Absent without a mail server. */
  mails?: Pick<PersonMails, 'invitation'> | undefined;
  issuer(): string;
}

const DEFAULT_INVITE_DAYS = 7;
const MAX_INVITE_DAYS = 30;

/** After the link has expired. Until then, lists show the invitation. */
const PURGE_AFTER_MS = 30 * DAY;

/** What a link does, and for how long. */
interface LinkKind {
  lifetimeMs: number;
  /** Whether it makes an operator. */
  isForOperator: boolean;
}

const RESET: LinkKind = { lifetimeMs: DAY, isForOperator: false };

export function createNewLinks(principals: PrincipalCollection, deps: NewLinkDependencies) {
  const { throttle, addresses, groups, clients, mails, accountData } = deps;
  const { issuer, commit, audit, clock, random } = deps;

  /** A new link of a principal, and the fields to store. */
  const createLink = (id: string, { lifetimeMs, isForOperator }: LinkKind) => {
    const link = newLink(id, lifetimeMs, { clock, random });
    const { hash: linkHash, expiresAt: linkExpiresAt } = link;
    const stored = { linkHash, linkExpiresAt, ...(isForOperator && { operatorLinkHash: linkHash }) };
    return { stored, url: linkUrl(issuer(), link) };
  };

  /** @throws VALIDATION_ERROR */
  const read = async ({ handle, email, name, groups: joined = [], application }: Invited) => {
    await groups.refuseUnknown(joined, 'groups');
    const client = application === undefined ? undefined : await clients.findNamed(application);
    if (client === null) {
      const message = 'is neither the identifier of an application nor a name that exactly one has';
      throw invalidFields({ path: 'application', message });
    }
    return { names: namesOf({ handle, email }), joined, name: name?.trim(), application: client?.id };
  };

  /** The invited principal of a handle, or `null` for a new one. @throws handle_taken, email_taken */
  const findInvited = async (names: { handle: string; email?: string }) => {
    const found = await principals.findOne({ handle: names.handle });
    if (found && found.state !== 'invited') throw provisioningErrors.handle_taken();
    const conflict = await addresses.conflict(names, found?.id ?? '');
    if (conflict) throw conflict;
    return found;
  };

  /** The mail with the link. @throws VALIDATION_ERROR if it is required and not possible */
  const mailOf = async (
    person: PrincipalDocument,
    link: { url: string; lifetimeMs: number },
    delivery: Delivery,
    source: RequestSource,
  ) => {
    if (delivery === 'none') return undefined;
    const client = person.application === undefined ? null : await clients.find(person.application);
    const mail = mails?.invitation(person, { ...link, application: client?.name }, source);
    if (mail || delivery === 'if-possible') return mail;
    const reason = mails ? 'the person has no e-mail address' : 'no mail server is configured';
    throw invalidFields({ path: 'send', message: `is not possible: ${reason}` });
  };

  const inviteAs = async (
    input: Invitee,
    kind: LinkKind,
    delivery: Delivery,
    source: RequestSource,
  ): Promise<Invitation> => {
    const { names, joined, name, application } = await read(input);
    const { handle, email } = names;
    await throttle.count(CREATIONS, source.ip);
    return decideAndCommit(commit, async () => {
      const found = await findInvited(names);
      if (!found && input.isRepeated)
        throw httpErrors.NOT_FOUND({ message: `There is no open invitation of ${handle}.` });
      const now = clock.now();
      const id = found?.id ?? newId('u_', clock, random);
      const { stored, url } = createLink(id, kind);
      const invitation: Change<PrincipalDocument> = {
        set: {
          ...stored,
          ...(name && { name }),
          ...(email !== undefined && { email, vouchedAt: now }),
          ...(application !== undefined && { application }),
          updatedAt: now,
        },
        unset: [
          ...(kind.isForOperator ? [] : (['operatorLinkHash'] as const)),
          ...(email === undefined ? [] : (['emailSetAt'] as const)),
        ],
      };
      const before: PrincipalDocument = found ?? {
        ...{ id, handle, kind: 'human', state: 'invited' },
        ...{ invitedAt: now, createdAt: now, updatedAt: now },
      };
      const principal = applyChange(before, invitation);
      const mail = await mailOf(principal, { url, lifetimeMs: kind.lifetimeMs }, delivery, source);
      const event = kind.isForOperator ? 'operator.invited' : 'human.invited';
      const parts = [
        ...(found
          ? [
              principals.changing({ id, state: 'invited', email: found.email ?? null }, invitation),
              ...addresses.moving(id, found, principal),
            ]
          : [principals.inserting(principal), ...addresses.claiming(principal)]),
        ...(await groups.joining(joined, principal, source)),
        mail?.effect,
        audit.entry({ event, subject: id, ...actorOf(source) }),
      ];
      const result = { principal, url, expiresAt: stored.linkExpiresAt, sentTo: mail?.to };
      return { parts, result, repeatIfTaken: true };
    });
  };

  /** Removes an invitation that was not accepted, with its names and groups. False if there is none, or it has changed since. */
  const end = async (
    found: PrincipalDocument,
    record: Omit<AuditRecord, 'id' | 'at' | 'subject'>,
  ): Promise<boolean> => {
    const { id, linkExpiresAt: expiry, email } = found;
    const { committed } = await commit([
      principals.deleting({ id, state: 'invited', linkExpiresAt: expiry ?? null, email: email ?? null }),
      ...(await addresses.releasing(id, found)),
      ...(await groups.leaving(id)),
      audit.entry({ ...record, subject: id }),
    ]);
    // A mail that is not sent yet has a link that does not work any more.
    if (committed) await accountData.delete(id);
    return committed;
  };

  /** Those that have expired long ago, and those without a link, which was ended by disabling the principal. */
  const purged = (): Where<PrincipalDocument>[] => {
    const before = clock.now() - PURGE_AFTER_MS;
    return [
      { state: 'invited', linkExpiresAt: { lt: before } },
      { state: 'invited', linkExpiresAt: null, createdAt: { lt: before - MAX_INVITE_DAYS * DAY } },
    ];
  };

  const purge = {
    everySeconds: DAY / SECOND,
    run: ({ signal }) =>
      purgeEach(
        purged().map((where) => async () => {
          let after: string | null = null;
          return purgeInBatches(signal, async () => {
            const query = {
              where,
              sort: 'handle',
              limit: PURGE_BATCH_SIZE,
              ...(after && { after }),
            } as const;
            const { items, next } = await principals.page(query);
            after = next;
            let removed = 0;
            for (const found of items)
              if (await end(found, { event: 'invitation.purged', ip: 'job' })) removed += 1;
            return { removed, isLast: next === null };
          });
        }),
      ),
  } satisfies Job;

  return {
    /** Whether the link of an invitation has expired, or was ended. */
    hasExpired: (invited: PrincipalDocument): boolean => hasExpiredLink(invited, clock.now()),

    /**
     * Invites a user, who cannot sign in until the link is used. A new invitation revokes the previous link.
     * @throws kind_not_allowed, invalid_days, handle_taken, email_taken, NOT_FOUND, VALIDATION_ERROR, RATE_LIMITED
     */
    async invite(
      {
        days = DEFAULT_INVITE_DAYS,
        kind = 'human',
        password,
        delivery = 'none',
        ...input
      }: Invitee & { days?: unknown; kind?: unknown; password?: unknown; delivery?: Delivery },
      source: RequestSource,
    ): Promise<Invitation & { days: number }> {
      if (kind !== 'human') {
        throw provisioningErrors.kind_not_allowed({ message: 'This endpoint invites humans only.' });
      }
      if (password !== undefined)
        throw invalidFields({ path: 'password', message: 'is chosen by the invited person' });
      if (!isDays(days)) throw provisioningErrors.invalid_days();
      const link = { lifetimeMs: days * DAY, isForOperator: false };
      return { ...(await inviteAs(input, link, delivery, source)), days };
    },

    /**
     * Invites a user who becomes an operator by using the link, within an hour. Any later invitation makes an ordinary
     * user.
     * @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED
     */
    inviteOperator: (input: { handle: string; name?: string }, source: RequestSource): Promise<Invitation> =>
      inviteAs(input, { lifetimeMs: OPERATOR_LINK_LIFETIME_MS, isForOperator: true }, 'none', source),

    /**
     * What an invitation would meet, without inviting anyone.
     * @throws handle_taken, email_taken, VALIDATION_ERROR
     */
    async examine(input: Invited): Promise<'new' | 'open' | 'expired' | 'active'> {
      const { names } = await read(input);
      const holder = await principals.findOne({ handle: names.handle });
      if (holder?.kind === 'human' && holder.state === 'active') return 'active';
      const found = await findInvited(names);
      if (!found) return 'new';
      return hasExpiredLink(found, clock.now()) ? 'expired' : 'open';
    },

    /** Ends an invitation that was not accepted, with its groups; its names are free again. False if there is none. */
    async withdraw(sub: string, source: RequestSource): Promise<boolean> {
      for (;;) {
        const found = await principals.findOne({ id: sub });
        if (found?.state !== 'invited') return false;
        if (await end(found, { event: 'invitation.withdrawn', ...actorOf(source) })) return true;
        // It was repeated, or has left a group, since they were read.
      }
    },

    /** Deletes invitations that expired 30 days ago. */
    purge,

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
