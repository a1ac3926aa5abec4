import type { Identity } from '../../core/http/identity.js';
import type { RequestSource } from '../../core/http/routes.js';
import { readTime } from '../../core/http/schemas.js';
import { DAY, SECOND } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { isNetwork } from '../../core/kernel/networks.js';
import { newId, newToken, sha256 } from '../../core/kernel/secrets.js';
import { suggestion } from '../../core/kernel/text.js';
import { type CommitPart, decideAndCommit, type Effect } from '../../core/ops/commit.js';
import { countEach } from '../../core/ops/purge.js';
import type { ReadAccount } from '../../core/server/contributions.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { allOf } from '../../core/storage/pages.js';
import { fixedWindow } from '../../core/throttle/throttle.js';
import { SECRET_PREFIX } from './access.js';
import { type CreatedKey, type KeyView, keyErrors, type NewKey } from './schemas.js';
import { type KeyDocument, type Keys, toKeyView } from './store.js';

/** Keys of a user or an organization that are valid and were not replaced. */
export const MAX_KEYS = 50;

const OVERLAP_SECONDS = DAY / SECOND;

/** New keys that a user creates, also by rotation. */
const CREATION = fixedWindow('key.create', 100, DAY);

/** The user of a new key. */
export interface KeyUser extends ReadAccount {
  /** The mail about the key. */
  keyMail(source: RequestSource): Effect;
}

export interface KeyServiceOptions {
  /** The scopes that a key can have. */
  scopes(): readonly string[];
  /** Null if there is no such user. */
  readUser(id: string): Promise<KeyUser | null>;
  /** @throws UNAUTHENTICATED if the session has ended since it was read */
  ensureCurrent(identity: Identity): Promise<void>;
  /** For the commit of a new key: unmet if there was another one of this owner, or it is being deleted. */
  locking(owner: string): Promise<CommitPart>;
}

/** Who makes a change, and to whom the keys belong. */
export interface KeyMaker {
  identity: Identity;
  owner: string;
}

export type KeyService = ReturnType<typeof createKeyService>;

/** The API keys of users and organizations. */
export function createKeyService(
  keys: Keys,
  { commit, audit, throttle, clock, random }: ModuleContext,
  { scopes, readUser, ensureCurrent, locking }: KeyServiceOptions,
) {
  /** @param decide what to store for the new key, read after what the commit depends on */
  const making = async (
    { identity, owner }: KeyMaker,
    event: string,
    source: RequestSource,
    decide: (id: string) => Promise<{
      given: Omit<KeyDocument, 'id' | 'hash' | 'owner' | 'userId' | 'createdAt'>;
      replaced?: CommitPart;
    }>,
  ): Promise<CreatedKey> => {
    const userId = identity.user.id;
    await throttle.countKey(CREATION, userId, source.ip);
    const secret = newToken(random, SECRET_PREFIX);
    const id = newId('key_', clock, random);
    return decideAndCommit(commit, async () => {
      const [user, lock] = await Promise.all([readUser(userId), locking(owner)]);
      await ensureCurrent(identity);
      if (!user) throw httpErrors.UNAUTHENTICATED();
      const { given, replaced } = await decide(id);
      const key: KeyDocument = { id, hash: sha256(secret), owner, userId, ...given, createdAt: clock.now() };
      const parts = [
        user.nextRevision,
        lock,
        replaced,
        keys.inserting(key),
        user.keyMail(source),
        audit.entry({ event, subject: userId, ip: source.ip, detail: id }),
      ];
      return { parts, result: { key: toKeyView(key), secret } };
    });
  };

  /** Those that were replaced are valid for a few days only. */
  const countOpen = (owner: string): Promise<number> => {
    const open = { owner, replacedBy: null };
    return countEach([
      keys.count({ ...open, expiresAt: null }, MAX_KEYS),
      keys.count({ ...open, expiresAt: { gt: clock.now() } }, MAX_KEYS),
    ]);
  };

  return {
    scopes,

    /** Those of a user or an organization, the newest first, with those that have expired in the last 30 days. */
    list: async (owner: string): Promise<KeyView[]> =>
      (await allOf(keys, { where: { owner }, sort: 'createdAt', desc: true })).map(toKeyView),

    /** @throws VALIDATION_ERROR, TOO_MANY_KEYS, RATE_LIMITED, UNAUTHENTICATED */
    async create(by: KeyMaker, given: NewKey, source: RequestSource): Promise<CreatedKey> {
      const { name, networks } = given;
      const known = scopes();
      const unknown = given.scopes.find((scope) => !known.includes(scope));
      if (unknown !== undefined) {
        const message = `must be of ${known.join(', ')}; given: ${unknown}.${suggestion(unknown, known)}`;
        throw invalidFields({ path: 'scopes', message });
      }
      const odd = networks?.find((network) => !isNetwork(network));
      if (odd !== undefined) {
        const message = `must be addresses or networks like 203.0.113.0/24; given: ${odd}`;
        throw invalidFields({ path: 'networks', message });
      }
      const expiresAt = given.expiresAt === undefined ? undefined : timeOf(given.expiresAt, clock.now());
      const fields = defined({ name, scopes: [...new Set(given.scopes)], networks, expiresAt });
      return making(by, 'keys.created', source, async () => {
        if ((await countOpen(by.owner)) >= MAX_KEYS) throw keyErrors.TOO_MANY_KEYS();
        return { given: fields };
      });
    },

    /**
     * Replaces a key by one with the same name, scopes, networks and lifetime. The user becomes responsible for it. The key before remains
     * valid for a while.
     * @throws NOT_FOUND, KEY_ENDED, RATE_LIMITED, UNAUTHENTICATED
     */
    rotate: (
      by: KeyMaker,
      id: string,
      { overlapSeconds = OVERLAP_SECONDS }: { overlapSeconds?: number },
      source: RequestSource,
    ): Promise<CreatedKey> =>
      making(by, 'keys.rotated', source, async (replacedBy) => {
        const { owner } = by;
        const key = await keys.findOne({ id, owner });
        if (!key) throw noSuchKey();
        const now = clock.now();
        const { name, scopes, networks, createdAt, expiresAt = Number.POSITIVE_INFINITY } = key;
        if (key.replacedBy !== undefined || expiresAt <= now) throw keyErrors.KEY_ENDED();
        const until = Math.min(now + overlapSeconds * SECOND, expiresAt);
        const next = key.expiresAt === undefined ? undefined : now + (expiresAt - createdAt);
        return {
          given: defined({ name, scopes, networks, expiresAt: next }),
          replaced: keys.changing({ id, owner, replacedBy: null }, { set: { replacedBy, expiresAt: until } }),
        };
      }),

    /** With the next request, in every process. @throws NOT_FOUND */
    async end(owner: string, id: string, by: { subject?: string; ip: string }): Promise<void> {
      const { committed } = await commit([
        keys.deleting({ id, owner }),
        audit.entry({ event: 'keys.ended', ...by, detail: id }),
      ]);
      if (!committed) throw noSuchKey();
    },
  };
}

const noSuchKey = () => httpErrors.NOT_FOUND({ message: 'There is no such key.' });

/** @throws VALIDATION_ERROR unless the time exists and is to come */
function timeOf(text: string, now: number): number {
  const time = readTime(text);
  if (time > now) return time;
  throw invalidFields({ path: 'expiresAt', message: 'must be a time to come, like 2027-01-31T00:00:00Z' });
}
