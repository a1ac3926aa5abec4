import type { RequestSource } from '../../../core/http/routes.js';
import { addressBlock } from '../../../core/kernel/addresses.js';
import { isUnexpired } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import { decideAndCommit } from '../../../core/ops/commit.js';
import { repeatedLink } from '../../../core/ops/used-links.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import { isDisabled } from '../store.js';
import { newLinkToken, parseLinkToken, UNLOCK_LINK_TTL_MS } from './link-tokens.js';

/** Allows owners to sign in while wrong passwords from many addresses exhaust the limit of their account. */
export type Unlock = ReturnType<typeof createUnlock>;

const UNLOCK_MESSAGE =
  'There were too many failed sign-in attempts for this account. If the account exists, a link was sent to its e-mail address within the last hour: open it on this device, then sign in. You can still sign in from locations where you have signed in before.';

export function createUnlock(deps: AuthDependencies) {
  const { users, mails, throttle, audit, commit, backgroundTasks, clock } = deps;

  return {
    /**
     * Redeems a mailed link: the owner can then sign in from the address of this request. A repetition succeeds from the same
     * address only.
     * @throws INVALID_TOKEN, RATE_LIMITED
     */
    async unlock(token: string, source: RequestSource) {
      const { ip } = source;
      await throttle.count(authLimits.link, ip);
      const { userId: id, hash } = parseLinkToken(token);
      // Trusting another address block would be another outcome.
      const usedHash = sha256(`${hash} ${addressBlock(ip)}`);
      const email = await decideAndCommit(commit, async () => {
        const user = await users.findOne({ id });
        if (!user || isDisabled(user)) throw authErrors.INVALID_TOKEN();
        const { email: result, unlockHash, unlockExpiresAt: expiresAt = 0, usedLink } = user;
        const now = clock.now();
        if (repeatedLink(usedLink, usedHash, now)?.kind === 'unlock') return { result };
        if (unlockHash !== hash || !isUnexpired(expiresAt, { now, life: UNLOCK_LINK_TTL_MS }))
          throw authErrors.INVALID_TOKEN();
        return {
          parts: [
            users.changing(
              { id, unlockHash, suspendedAt: null },
              {
                set: { usedLink: { kind: 'unlock', hash: usedHash, expiresAt } },
                unset: ['unlockHash', 'unlockExpiresAt'],
              },
            ),
            audit.entry({ event: 'login.unlocked', subject: id, ip }),
          ],
          result,
        };
      });
      await Promise.all([throttle.trust(email, ip), deps.secondFactors?.trust(id, ip)]);
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
        await commit([
          // The condition on the address prevents a link from reaching the user's former mailbox.
          users.changing(
            { id: user.id, email, suspendedAt: null },
            { set: { unlockHash: link.hash, unlockExpiresAt: link.expiresAt } },
          ),
          mails.unlock(user, link, source),
        ]);
      });
      return UNLOCK_MESSAGE;
    },
  };
}
