import type { Clock } from '../../../core/kernel/clock.js';
import type { UnknownWritesRegistry } from '../../../core/ops/unknown-writes.js';
import type { Grants } from '../store.js';

/** A rotation of a refresh token of which the response of the store was lost. */
export interface Rotation {
  id: string;
  clientId: string;
  presented: string;
  next: string;
  rotatedAt: number;
}

/** A redemption of a code of which the response of the store was lost. */
export interface Redemption {
  id: string;
  clientId: string;
  consumedAt: number;
  /** Hash of the access token, which identifies the redemption. */
  hash: string;
}

/** Settles writes to grants that took effect unnoticed, so that the repetition of the client does not count as a replay. */
export function trackUnknownGrantWrites(
  unknownWrites: UnknownWritesRegistry,
  { grants, clock }: { grants: Grants; clock: Clock },
) {
  /** By a write that changes nothing, because a read does not see what the majority has not confirmed yet. */
  const readNewest = (id: string, clientId: string) =>
    grants.updateOne({ id, revokedAt: null }, { set: { clientId } });
  return {
    /** By the hash of the presented token. Begins the window again. A rotation of another time was answered, so its window stays closed. */
    rotations: unknownWrites.track<Rotation>('refresh', async (attempts) => {
      const [{ id, clientId, presented, next }] = attempts as [Rotation];
      for (;;) {
        const grant = await readNewest(id, clientId);
        if (!grant) return true;
        if (grant.refreshHash === presented) return false;
        const isOwn =
          grant.refreshHash === next && attempts.some(({ rotatedAt }) => rotatedAt === grant.rotatedAt);
        if (!isOwn) return true;
        const rotatedAt = clock.now();
        // The outcome of this write may remain unknown as well.
        attempts.push({ id, clientId, presented, next, rotatedAt });
        const renewed = await grants.changeOne(
          { id, revision: grant.revision ?? null, revokedAt: null },
          { set: { rotatedAt }, inc: { revision: 1 } },
        );
        if (renewed) return true;
        // Another request has changed the grant in between.
      }
    }),

    /** By the ID of the grant. Reverts the redemption: its tokens were never received, so the code can be redeemed until it expires. */
    redemptions: unknownWrites.track<Redemption>('code redemption', async (attempts) => {
      const [{ id, clientId }] = attempts as [Redemption];
      const grant = await readNewest(id, clientId);
      if (!grant) return true;
      const { consumedAt, accessTokens: [issued] = [], revision } = grant;
      if (consumedAt === undefined) return false;
      const isOwn =
        revision === undefined &&
        attempts.some((one) => one.consumedAt === consumedAt && one.hash === issued?.hash);
      if (!isOwn) return true;
      await grants.changeOne(
        { id, consumedAt, revision: null, revokedAt: null },
        {
          unset: [
            'consumedAt',
            'unansweredSince',
            'accessTokens',
            'refreshHash',
            'refreshExpiresAt',
            'refreshKey',
          ],
        },
      );
      return true;
    }),
  };
}
