import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, readLinkToken, UNLOCK_LIFE } from './links.js';
import { isClosed } from './store.js';

/** The way in from a new place while guesses from many addresses have used up what an account has. */
export interface Unlock {
  /** Lets the owner sign in from where they open the link that was mailed to them. @throws INVALID_TOKEN, RATE_LIMITED */
  unlock(token: string, origin: Origin): Promise<void>;
  /**
   * Mails a link if there is such an account, after the answer, and returns the message of the answer, which is always
   * the same. The password is not evaluated for it: that would be a guess beyond the limit.
   */
  offerUnlock(email: string, origin: Origin): string;
}

export type UnlockDependencies = Pick<
  AuthDependencies,
  'users' | 'mails' | 'throttle' | 'audit' | 'backgroundTasks' | 'clock' | 'random'
>;

const OFFER =
  'There were too many failed sign-in attempts for this account. If the account exists, a link was sent to its e-mail address within the last hour: open it on this device, then sign in. You can still sign in from locations where you have signed in before.';

export function createUnlock(deps: UnlockDependencies): Unlock {
  const { users, mails, throttle, audit, backgroundTasks, clock } = deps;
  return {
    async unlock(token, { ip }) {
      await throttle.count(authLimits.link, ip);
      const claim = readLinkToken(token);
      const user = claim && (await users.findOne({ id: claim.userId }));
      const isLive =
        user?.unlockHash === claim?.hash &&
        isUnexpired(user?.unlockExpiresAt ?? 0, { now: clock.now(), life: UNLOCK_LIFE });
      const spent =
        claim &&
        user &&
        isLive &&
        (await users.updateOne(
          { id: user.id, unlockHash: claim.hash, suspendedAt: null },
          { unset: ['unlockHash', 'unlockExpiresAt'] },
        ));
      if (!spent) throw authErrors.INVALID_TOKEN();
      await Promise.all([
        throttle.trust(spent.email, ip),
        audit.record({ event: 'login.unlocked', subject: spent.id, ip }),
      ]);
    },

    offerUnlock(email, { ip }) {
      backgroundTasks.run('unlock', async () => {
        if (!(await throttle.tryCountKey(authLimits.mailTo.unlock, email, ip))) return;
        const user = await users.findOne({ email });
        if (!user || isClosed(user)) return;
        const link = newLinkToken(user.id, UNLOCK_LIFE, deps);
        // Only while the address is that one: the link must not reach a mailbox that was theirs.
        const owner = await users.updateOne(
          { id: user.id, email, suspendedAt: null },
          { set: { unlockHash: link.hash, unlockExpiresAt: link.expiresAt } },
        );
        if (owner) await mails.unlock(owner, link);
      });
      return OFFER;
    },
  };
}
