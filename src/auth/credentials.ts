import type { Origin } from '../http/scope.js';
import type { Audit } from '../ops/audit.js';
import type { Passwords } from '../passwords/hasher.js';
import type { Throttle } from '../throttle/throttle.js';
import { authErrors } from './errors.js';
import type { ForeignHashes } from './foreign-hashes.js';
import { authLimits } from './limits.js';
import type { UserDocument, Users } from './store.js';
import type { Unlock } from './unlock.js';

/** Who knows the password of an account. Whoever asks, the same counters hold guesses back. */
export interface Credentials {
  /**
   * The account, and whether its hash should be made anew. An unknown address costs what a known one does.
   * @param given `id`, where there is one, must be the account's
   * @param refusal what the audit calls a wrong password
   * @throws INVALID_CREDENTIALS, RATE_LIMITED, OVERLOADED
   */
  prove(
    given: { id?: string; email: string; password: string },
    origin: Origin,
    refusal: string,
  ): Promise<{ user: UserDocument; outdated: boolean }>;
}

export interface CredentialDependencies {
  users: Users;
  passwords: Passwords;
  foreignHashes: Pick<ForeignHashes, 'decoys'>;
  throttle: Pick<Throttle, 'count' | 'attempt'>;
  audit: Audit;
  offerUnlock: Unlock['offerUnlock'];
}

export function createCredentials({
  users,
  passwords,
  foreignHashes,
  throttle,
  audit,
  offerUnlock,
}: CredentialDependencies): Credentials {
  return {
    async prove({ id, email, password }, origin, refusal) {
      const { ip, isDisconnected } = origin;
      // Before anything is read or counted: a flood costs the less the less is done for whom it turns away.
      await passwords.ensureCapacity();
      await throttle.count(authLimits.login, ip);
      const account = email.toLowerCase();
      const onBudgetSpent = () => offerUnlock(account, origin);
      const proven = await throttle.attempt({ account, ip, onBudgetSpent }, async () => {
        const user = await users.findOne({ email: account });
        // Users who are signed in learn nothing from the time that their own password takes.
        const decoys = id === undefined ? await foreignHashes.decoys() : [];
        const stored = user?.passwordHash ?? null;
        const { ok, outdated } = await passwords.verify(stored, password, isDisconnected, decoys);
        if (user && ok && (id ?? user.id) === user.id) return { user, outdated };
        await audit.recordFailure({ event: refusal, ip, ...(user && { subject: user.id }) });
        return null;
      });
      if (!proven) throw authErrors.INVALID_CREDENTIALS();
      return proven;
    },
  };
}
