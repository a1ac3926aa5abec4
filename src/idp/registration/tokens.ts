import { type Clock, DAY, isUnexpired } from '../../core/kernel/clock.js';
import { newId, newToken, type Random, sha256 } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Page, Write } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import type { RegistrationTokenCollection, RegistrationTokenDocument } from './store.js';

/** Initial access tokens. Only commands on the host create them. */
export type RegistrationTokens = ReturnType<typeof createRegistrationTokens>;

export const MAX_TOKEN_USES = 1000;
export const MAX_TOKEN_DAYS = 90;

export function createRegistrationTokens(
  tokens: RegistrationTokenCollection,
  {
    commit,
    audit,
    clock,
    random,
  }: { commit: CommitParts; audit: Pick<Audit, 'entry'>; clock: Clock; random: Random },
) {
  const life = MAX_TOKEN_DAYS * DAY;
  const usable = () => ({ usesLeft: { gt: 0 }, expiresAt: { gt: clock.now(), lte: clock.now() + life } });

  return {
    async create(
      { uses, days }: { uses: number; days: number },
      from: { ip: string },
    ): Promise<{ created: RegistrationTokenDocument; token: string }> {
      const token = newToken(random, 'irt_');
      const id = newId('rtk_', clock, random);
      const now = clock.now();
      const created = {
        id,
        tokenHash: sha256(token),
        uses,
        usesLeft: uses,
        createdAt: now,
        expiresAt: now + days * DAY,
      };
      await commit([
        tokens.inserting(created),
        audit.entry({ event: 'registration-token.created', subject: id, ...actorOf(from) }),
      ]);
      return { created, token };
    },

    list: (after?: string): Promise<Page<RegistrationTokenDocument>> =>
      readPage(tokens, { sort: 'createdAt', after }),

    /** Ends a token; `false` if there is none. */
    async revoke(id: string, from: { ip: string }): Promise<boolean> {
      if (!/^rtk_[0-9a-f]+$/.test(id)) return false;
      const record = { event: 'registration-token.revoked', subject: id, ...actorOf(from) };
      return (await commit([tokens.deleting({ id }), audit.entry(record)])).committed;
    },

    /** The token, if it allows another registration. */
    async find(token: string): Promise<RegistrationTokenDocument | null> {
      const found = await tokens.findOne({ tokenHash: sha256(token) });
      const isUsable =
        found !== null && found.usesLeft > 0 && isUnexpired(found.expiresAt, { now: clock.now(), life });
      return isUsable ? found : null;
    },

    /** Pays for one registration, in the commit of the client, if the token allows another one. */
    using: (id: string): Write => tokens.changing({ id, ...usable() }, { inc: { usesLeft: -1 } }),
  };
}
