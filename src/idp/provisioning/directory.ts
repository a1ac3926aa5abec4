import type { RequestSource } from '../../core/http/routes.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { type AuditRecord, actorOf, changeDetail } from '../../core/ops/audit.js';
import { type CommitPart, decideAndCommit } from '../../core/ops/commit.js';
import type { SignInMethods } from '../../core/server/contributions.js';
import type { Change, Estimate, Page, Where } from '../../core/storage/collection.js';
import { readPage, searchFirst } from '../../core/storage/pages.js';
import { applyChange } from '../../core/storage/semantics.js';
import type { Groups } from '../groups/service.js';
import type { Permissions } from '../permissions/service.js';
import { type Addresses, namesOf } from './addresses.js';
import type { AgentUses } from './agent-uses.js';
import type { Agents } from './agents.js';
import { provisioningErrors } from './errors.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import type { PersonMails } from './mails.js';
import { changeMetadata, parseEntry } from './metadata.js';
import type { Dependencies } from './principals.js';
import {
  type EndSessions,
  type Kind,
  OPERATOR_FIELDS,
  PASSWORD_LINK_FIELDS,
  type PrincipalCollection,
  type PrincipalDocument,
  type PrincipalState,
  VERIFICATION_FIELDS,
} from './store.js';

export interface PrincipalFilter {
  /** The beginning of their handles. */
  prefix?: string | undefined;
  kind?: Kind | undefined;
  state?: PrincipalState | undefined;
  /** Whether only links are listed that have expired. */
  hasExpiredLink?: boolean | undefined;
}

export interface PrincipalQuery extends PrincipalFilter {
  /** The `next` of the previous page. */
  after?: string | undefined;
  limit?: number;
}

/** Management of principals by the operator, who cannot change passwords, kinds or handles. */
export type PrincipalDirectory = ReturnType<typeof createDirectory>;

/** The fields to unset where a principal is disabled or deleted: its links, and its role as operator. */
const ENDING_FIELDS = [
  ...PASSWORD_LINK_FIELDS,
  ...VERIFICATION_FIELDS,
  ...OPERATOR_FIELDS,
  'usedLink',
] as const;

/** The fields to unset with another address: what is known about the previous one, and the links that were mailed to it. */
const ADDRESS_FIELDS = [
  ...(['emailVerifiedAt', 'vouchedAt', 'mailedLinkHash', 'mailedLinkExpiresAt'] as const),
  ...VERIFICATION_FIELDS,
] as const;

/** Sorts after every handle with the same prefix, and is not part of any. */
const LAST_CHARACTER = '\u{10ffff}';

export interface DirectoryDependencies extends Dependencies {
  signInMethods: Pick<SignInMethods, 'removal'>;
  agents: Pick<Agents, 'stopping'>;
  endSessions: EndSessions;
  groups: Pick<Groups, 'leaving'>;
  permissions: Pick<Permissions, 'leaving'>;
  uses: Pick<AgentUses, 'leaving'>;
  addresses: Addresses;
  /** Absent without a mail server. */
  mails?: Pick<PersonMails, 'verification' | 'emailChanged'> | undefined;
}

export function createDirectory(principals: PrincipalCollection, deps: DirectoryDependencies) {
  const { signInMethods, endSessions, groups, permissions, uses, addresses, agents, mails } = deps;
  const { commit, audit, clock } = deps;
  const get = async (sub: string): Promise<PrincipalDocument | null> =>
    /^u_[0-9a-f]{32}$/.test(sub) ? principals.findOne({ id: sub }) : null;

  /** @param name a handle or an e-mail address */
  const findByName = async (name: string): Promise<PrincipalDocument | null> =>
    // Other text is never looked up, because a store may be unable to represent it.
    isPossibleHandle(name) ? principals.findOne({ handle: await addresses.accountOf(name) }) : null;

  const whereOf = ({ prefix, kind, state, hasExpiredLink }: PrincipalFilter): Where<PrincipalDocument> => {
    const from = prefix === undefined ? undefined : canonicalForm(prefix);
    return {
      ...(from !== undefined && { handle: { gte: from, lt: from + LAST_CHARACTER } }),
      ...defined({ kind, state }),
      ...(hasExpiredLink && { linkExpiresAt: { lte: clock.now() } }),
    };
  };

  /** A change of the state, with what ends with it. */
  const ending = async (
    found: PrincipalDocument,
    change: Change<PrincipalDocument>,
    record: Pick<AuditRecord, 'event' | 'detail'>,
    source: RequestSource,
  ): Promise<CommitPart[]> => {
    const { id, kind, state, email = null, epoch = null, signInRevision = null } = found;
    return [
      principals.changing({ id, kind, state, email, epoch, signInRevision }, change),
      await endSessions(found, source),
      audit.entry({ ...record, subject: id, ...actorOf(source) }),
      kind === 'human' ? agents.stopping(id, source) : undefined,
    ];
  };

  /** Deletes a principal with what gives access to it. False if there is none that is accepted. */
  const remove = (
    sub: string,
    accepts: (found: PrincipalDocument) => boolean,
    source: RequestSource,
  ): Promise<boolean> =>
    decideAndCommit(commit, async () => {
      const found = await get(sub);
      if (!found || found.state === 'deleted' || !accepts(found)) return { result: false };
      const deletion: Change<PrincipalDocument> = {
        set: { state: 'deleted', updatedAt: clock.now() },
        unset: [
          ...(['name', 'email', 'metadata', 'passwordHash', 'secretHash', 'keys'] as const),
          ...(['owner', 'purpose', 'redirectUris', 'clientMetadata', 'expiresAt', 'lastUsedAt'] as const),
          ...(['workloads', 'workloadRules', 'notificationEndpoint'] as const),
          ...ENDING_FIELDS,
        ],
        inc: { epoch: 1 },
      };
      const parts = await ending(found, deletion, { event: `${found.kind}.deleted` }, source);
      const endings = await Promise.all([
        signInMethods.removal(sub),
        groups.leaving(sub),
        permissions.leaving({ subject: sub }),
        uses.leaving(sub),
      ]);
      const freed = addresses.moving(sub, found, {});
      return { parts: [...parts, ...endings.flat(), ...freed], result: true };
    });

  return {
    /**
     * Ordered by handle.
     * @throws VALIDATION_ERROR when `after` is invalid
     */
    list: ({ after, limit, ...filter }: PrincipalQuery): Promise<Page<PrincipalDocument>> =>
      readPage(principals, { sort: 'handle', after, limit, where: whereOf(filter) }),

    estimate: (): Promise<Estimate> => principals.estimate(),

    /** Up to a limit. */
    count: (filter: PrincipalFilter, limit: number): Promise<number> =>
      principals.count(whereOf(filter), limit),

    /** The newest first. */
    newest: async (limit: number): Promise<PrincipalDocument[]> =>
      (await principals.page({ sort: 'createdAt', desc: true, limit })).items,

    /** Finds principals by any part of their handle, name or address, after the one that the text identifies. */
    search: (text: string, limit: number): Promise<PrincipalDocument[]> =>
      searchFirst(principals, {
        text,
        limit,
        identified: get(text).then(async (found) => found ?? findByName(text)),
      }),

    get,

    /** Whether the principal is permanently deleted or never existed. */
    async isDeleted(sub: string): Promise<boolean> {
      const principal = await get(sub);
      return principal === null || principal.state === 'deleted';
    },

    findByName,

    /**
     * Treats the principal as unknown from now on, and revokes its link, codes, tokens, sessions and its role as operator
     * permanently. `null` if unknown.
     * @throws wrong_state
     */
    disable: (sub: string, source: RequestSource): Promise<PrincipalDocument | null> =>
      decideAndCommit(commit, async () => {
        const found = await get(sub);
        if (!found || found.state === 'disabled') return { result: found };
        if (found.state === 'deleted') throw provisioningErrors.wrong_state();
        const disabling: Change<PrincipalDocument> = {
          set: { state: 'disabled', updatedAt: clock.now() },
          unset: ENDING_FIELDS,
          inc: { epoch: 1 },
        };
        const detail = changeDetail({ state: found.state }, { state: 'disabled' });
        const parts = await ending(found, disabling, { event: 'principal.disabled', detail }, source);
        return { parts, result: applyChange(found, disabling) };
      }),

    /**
     * Restores the principal with its password; an invitation that was not accepted must be repeated. `null` if unknown.
     * @throws wrong_state
     */
    async enable(sub: string, source: RequestSource): Promise<PrincipalDocument | null> {
      const found = await get(sub);
      if (!found || found.state === 'active') return found;
      // No operation gives a disabled principal a password, so the state read above is still current.
      const { kind, passwordHash, secretHash, passkeyOnly = false } = found;
      // Agents are never invited.
      const canSignIn =
        kind === 'agent' || passwordHash !== undefined || secretHash !== undefined || passkeyOnly;
      const state = canSignIn ? 'active' : 'invited';
      const enabling = { set: { state, updatedAt: clock.now() } } as const;
      const { committed } = await commit([
        principals.changing({ id: sub, state: 'disabled' }, enabling),
        audit.entry({
          event: 'principal.enabled',
          subject: sub,
          ...actorOf(source),
          detail: changeDetail({ state: 'disabled' }, { state }),
        }),
      ]);
      if (!committed) throw provisioningErrors.wrong_state();
      return applyChange(found, enabling);
    },

    /**
     * Changes what is stored about a principal for claims; null removes an entry. `null` if it is unknown or deleted.
     * @throws VALIDATION_ERROR
     */
    changeMetadata: (
      sub: string,
      change: Readonly<Record<string, unknown>>,
      source: RequestSource,
    ): Promise<PrincipalDocument | null> =>
      decideAndCommit(commit, async () => {
        const found = await get(sub);
        if (!found || found.state === 'deleted') return { result: null };
        const { state, metadataRevision = null } = found;
        const write: Change<PrincipalDocument> = {
          set: { metadata: changeMetadata(found.metadata ?? {}, change), updatedAt: clock.now() },
          inc: { metadataRevision: 1 },
        };
        // The names alone: values may be personal.
        const detail = Object.keys(change).join(' ');
        const parts = [
          principals.changing({ id: sub, state, metadataRevision }, write),
          audit.entry({ event: 'principal.metadata_changed', subject: sub, ...actorOf(source), detail }),
        ];
        return { parts, result: applyChange(found, write) };
      }),

    /**
     * Gives a person another e-mail address, or none beside the handle. It is unverified, links that were mailed to the previous one
     * end, and both mailboxes get a mail. `null` if unknown or deleted.
     * @throws email_taken, VALIDATION_ERROR
     */
    changeEmail: (sub: string, text: string, source: RequestSource): Promise<PrincipalDocument | null> =>
      decideAndCommit(commit, async () => {
        const found = await get(sub);
        if (!found || found.state === 'deleted') return { result: null };
        if (found.kind !== 'human') throw invalidFields({ path: 'email', message: 'is for people' });
        const { handle, state, email: before } = found;
        const { email } = namesOf({ handle, email: text });
        if (email === before) return { result: found };
        const conflict = await addresses.conflict({ handle, ...(email && { email }) }, sub);
        if (conflict) throw conflict;
        const now = clock.now();
        const change: Change<PrincipalDocument> = {
          set: { ...(email && { email }), emailSetAt: now, updatedAt: now },
          unset: [...(email === undefined ? (['email'] as const) : []), ...ADDRESS_FIELDS],
        };
        const changed = applyChange(found, change);
        const link = state === 'active' ? mails?.verification(changed, source) : undefined;
        const write = link
          ? {
              set: { ...change.set, ...link.stored },
              unset: change.unset?.filter((field) => !(field in link.stored)) ?? [],
            }
          : change;
        const parts = [
          principals.changing({ id: sub, state, email: before ?? null }, write),
          ...addresses.moving(sub, found, { ...(email && { email }) }),
          ...(state === 'active' ? [link?.mail, mails?.emailChanged(found, changed, source)] : []),
          // Not the address itself, which the audit would keep.
          audit.entry({ event: 'principal.email_changed', subject: sub, ...actorOf(source) }),
        ];
        return { parts, result: applyChange(found, write), repeatIfTaken: true };
      }),

    parseMetadata: parseEntry,

    /** Removes an agent and keeps its handle reserved. False if there is no such agent. */
    deleteAgent: (sub: string, source: RequestSource): Promise<boolean> =>
      remove(sub, ({ kind }) => kind === 'agent', source),
    /** The same for any principal: a human may be invited or not. */
    delete: (sub: string, source: RequestSource): Promise<boolean> => remove(sub, () => true, source),
    /** The same at the request of the human, unless the credentials have changed since `person` was read. */
    deleteSelf: ({ id, epoch }: Pick<PrincipalDocument, 'id' | 'epoch'>, source: RequestSource) =>
      remove(
        id,
        (found) => found.kind === 'human' && found.state === 'active' && found.epoch === epoch,
        source,
      ),
  };
}
