import type { Origin } from '../http/scope.js';
import { isUnexpired } from '../kernel/clock.js';
import type { AuthDependencies } from './dependencies.js';
import { authErrors } from './errors.js';
import { authLimits } from './limits.js';
import { newLinkToken, parseLinkToken, UNLOCK_LINK_TTL_MS } from './link-tokens.js';
import { isDisabled } from './store.js';

/** Allows owners to sign in while wrong passwords from many addresses exhaust the limit of their account. */
export interface Unlock {
  /**
   * Redeems a mailed link: the owner can then sign in from the address of this request.
   * @throws INVALID_TOKEN, RATE_LIMITED
   */
  unlock(token: string, origin: Origin): Promise<void>;
  /**
   * Mails a link if the account exists, after the response, and returns the message of the response, which is the
   * same in every case. It does not verify the password, because that would evaluate an attempt beyond the limit.
   */
  offerUnlock(email: string, origin: Origin): string;
}

export type UnlockDependencies = Pick<
  AuthDependencies,
  'users' | 'mails' | 'throttle' | 'audit' | 'backgroundTasks' | 'clock' | 'random'
>;

const UNLOCK_MESSAGE =
  'There were too many failed sign-in attempts for this account. If the account exists, a link was sent to its e-mail address within the last hour: open it on this device, then sign in. You can still sign in from locations where you have signed in before.';

export function createUnlock(deps: UnlockDependencies): Unlock {
  const { users, mails, throttle, audit, backgroundTasks, clock } = deps;
  return {
    async unlock(token, { ip }) {
      await throttle.count(authLimits.link, ip);
      const parsed = parseLinkToken(token);
      const user = parsed && (await users.findOne({ id: parsed.userId }));
      const isValid =
        user?.unlockHash === parsed?.hash &&
        isUnexpired(user?.unlockExpiresAt ?? 0, { now: clock.now(), life: UNLOCK_LINK_TTL_MS });
      const redeemed =
        parsed &&
        user &&
        isValid &&
        (await users.updateOne(
          { id: user.id, unlockHash: parsed.hash, suspendedAt: null },
          { unset: ['unlockHash', 'unlockExpiresAt'] },
        ));
      if (!redeemed) throw authErrors.INVALID_TOKEN();
      await Promise.all([
        throttle.trust(redeemed.email, ip),
        audit.record({ event: 'login.unlocked', subject: redeemed.id, ip }),
      ]);
    },

    offerUnlock(email, { ip }) {
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
        if (owner) await mails.unlock(owner, link);
      });
      return UNLOCK_MESSAGE;
    },
  };
}
