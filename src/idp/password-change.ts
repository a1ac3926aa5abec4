import type { ChangePassword } from '../oidc/account.js';
import { type PasswordPolicy, passwordErrors } from '../passwords/common.js';
import type { Passwords } from '../passwords/hasher.js';
import { chosenPasswordProblem, type Dependencies, type Principals } from '../provisioning/principals.js';
import type { PrincipalCollection } from '../provisioning/store.js';
import type { Throttle } from '../throttle/throttle.js';

export interface PasswordChangeDependencies extends Pick<Dependencies, 'audit' | 'clock'> {
  principals: Pick<Principals, 'authenticate'>;
  passwords: Passwords;
  passwordPolicy: PasswordPolicy;
  throttle: Pick<Throttle, 'trustOnly'>;
}

/** A person changes the password, and with it ends whatever was given out under the old one. */
export function createPasswordChange(
  people: PrincipalCollection,
  { principals, passwords, passwordPolicy, throttle, audit, clock }: PasswordChangeDependencies,
): ChangePassword {
  return async ({ id, handle }, { current, chosen }, from) => {
    const proven = await principals.authenticate(handle, current, from, (principal) => principal.id === id);
    if (proven?.kind !== 'human') return false;
    const problem = chosenPasswordProblem(chosen, passwords);
    if (problem) throw passwordErrors.WEAK_PASSWORD({ details: [{ path: 'password', message: problem }] });
    await passwordPolicy.judge(chosen, [handle]);
    const passwordHash = await passwords.hash(chosen, from.isGone);
    const changed = await people.updateOne(
      { id, kind: 'human', state: 'active', epoch: proven.epoch ?? null },
      {
        set: { passwordHash, updatedAt: clock.now() },
        // A link that may set a password as well is no longer needed.
        unset: ['linkHash', 'linkExpiresAt'],
        inc: { epoch: 1 },
      },
    );
    if (!changed) return false;
    await throttle.trustOnly(handle, from.ip);
    await audit.record({ event: 'password.changed', subject: id, ip: from.ip });
    return true;
  };
}
