import type { RequestSource } from '../../../core/http/routes.js';
import { addressBlock } from '../../../core/kernel/addresses.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { LinkUse, UsedLinks } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import { isDisabled, type UserDocument } from '../store.js';
import { newLinkToken, parseLinkToken, UNLOCK_LINK_TTL_MS } from './link-tokens.js';

/** Allows owners to sign in while wrong passwords from many addresses exhaust the limit of their account. */
export type Unlock = ReturnType<typeof createUnlock>;

const UNLOCK_MESSAGE =
  'There were too many failed sign-in attempts for this account. If the account exists, a link was sent to its e-mail address within the last hour: open it on this device, then sign in. You can still sign in from locations where you have signed in before.';

export function createUnlock(deps: AuthDependencies & { usedLinks: UsedLinks<UserDocument> }) {
  const { users, mails, throttle, audit, usedLinks, backgroundTasks, clock } = deps;

  /** Marks the link as used by an address block. `null` if the link is not valid. */
  const useLink = async (
    { id, unlockHash, unlockExpiresAt: expiresAt = 0 }: UserDocument,
    hash: string,
    { usedLinkHash, unansweredSince }: LinkUse,
  ): Promise<UserDocument | null> => {
    const isValid = isUnexpired(expiresAt, { now: clock.now(), life: UNLOCK_LINK_TTL_MS });
    if (unlockHash !== hash || !isValid) return null;
    const unchanged = { passwordChanged: false, addressVerified: false };
    const usedLink = { kind: 'unlock', expiresAt, ...unchanged } as const;
    return users.updateOne(
      { id, unlockHash: hash, suspendedAt: null },
      { set: { usedLinkHash, usedLink, unansweredSince }, unset: ['unlockHash', 'unlockExpiresAt'] },
    );
  };

  return {
    /**
     * Redeems a mailed link: the owner can then sign in from the address of this request. A repetition of a request that
     * has failed after that succeeds from the same address only.
     * @throws INVALID_TOKEN, RATE_LIMITED
     */
    async unlock(token: string, { ip }: RequestSource) {
      await throttle.count(authLimits.link, ip);
      const parsed = parseLinkToken(token);
      const user = parsed && (await users.findOne({ id: parsed.userId }));
      if (!parsed || !user) throw authErrors.INVALID_TOKEN();
      const { hash } = parsed;
      // Trusting another address block would be another outcome.
      const use = usedLinks.begin(user.id, sha256(`${hash} ${addressBlock(ip)}`));
      await usedLinks.complete(use, async () => {
        const redeemed = (await useLink(user, hash, use)) ?? (await usedLinks.findUnanswered(use));
        if (redeemed?.usedLink?.kind !== 'unlock') throw authErrors.INVALID_TOKEN();
        await Promise.all([
          throttle.trust(redeemed.email, ip),
          deps.secondFactors?.trust(redeemed.id, ip),
          audit.record({ event: 'login.unlocked', subject: redeemed.id, ip }),
        ]);
      });
    },

    /**
     * Mails a link if the account exists, after the response, and returns the message of the response, which is the
     * same in every case. It does not verify the password, because that would evaluate an attempt beyond the limit.
     */
    offerUnlock(email: string, source: RequestSource): string {
      const { ip } = source;
      backgroundTasks.run('unlock', async () => {
        if (!(await throttle.tryCountKey(authLimits.mailTo.unlock, email, ip))) return;
        const user = await users.findOne({ email });
        if (!user || isDisabled(user)) return;
        const link = newLinkToken(user.id, UNLOCK_LINK_TTL_MS, deps);
        // The condition on the address prevents a link from reaching the user's former mailbox.
        const owner = await users.updateOne(
          { id: user.id, email, suspendedAt: null },
          { set: { unlockHash: link.hash, unlockExpiresAt: link.expiresAt } },
        );
        if (owner) await deps.commit([mails.unlock(owner, link, source)]);
      });
      return UNLOCK_MESSAGE;
    },
  };
}
