import type { Identity } from '../../../core/http/identity.js';
import { canonicalEmail } from '../../../core/http/mailboxes.js';
import type { RequestSource } from '../../../core/http/routes.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import type { AuthDependencies } from '../dependencies.js';
import { authErrors } from '../errors.js';
import { authLimits } from '../limits.js';
import type { Credentials } from '../sign-in/credentials.js';
import { requireRecent } from '../sign-in/recent-auth.js';
import { newLinkToken, VERIFICATION_LINK_TTL_MS } from './link-tokens.js';

/** Changes of addresses, each confirmed by a link that is sent to the new address. */
export function createEmailChange(deps: AuthDependencies & { credentials: Credentials }) {
  const { users, mails, credentials, throttle, audit, commit, clock } = deps;
  const isTaken = async (email: string) => (await users.findOne({ email })) !== null;

  return {
    /**
     * Sends the link to the new address. An account with a second factor needs a recent sign-in, too.
     * @throws INVALID_CREDENTIALS, REAUTHENTICATION_REQUIRED, EMAIL_TAKEN, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
     */
    async changeEmail(
      identity: Identity,
      given: { email: string; password?: string | undefined },
      source: RequestSource,
    ) {
      const { id, email } = identity.user;
      const newEmail = canonicalEmail(given.email);
      if (newEmail === email) {
        const message = 'is already your address';
        throw httpErrors.VALIDATION_ERROR({ details: [{ path: 'email', message }] });
      }
      const user = await credentials.verifyOwner(identity, given.password, source, 'email.change-refused');
      // A link with a new password at the new address removes the second factor.
      if (await deps.secondFactors?.stateOf(id)) requireRecent(identity, {}, clock);
      await throttle.count(authLimits.mail, source.ip);
      // With required verification, no response may disclose which addresses have an account.
      if (!deps.verificationRequired && (await isTaken(newEmail))) throw authErrors.EMAIL_TAKEN();
      // Counted before the link is stored, because storing a link invalidates the previous one, even if the new one is
      // not sent.
      if (!(await throttle.tryCountKey(authLimits.mailTo.change, newEmail, source.ip))) return;
      const link = newLinkToken(id, VERIFICATION_LINK_TTL_MS, deps);
      const { committed } = await commit([
        users.changing(
          { id, email, passwordVersion: user.passwordVersion, suspendedAt: null },
          { set: { newEmail, changeHash: link.hash, changeExpiresAt: link.expiresAt } },
        ),
        audit.entry({ event: 'email.change-asked', subject: id, ip: source.ip }),
      ]);
      if (!committed) throw authErrors.INVALID_CREDENTIALS();
      deps.backgroundTasks.run('e-mail change', async () => {
        if (!(await isTaken(newEmail)))
          await commit([mails.confirmAddressChange({ id, email: newEmail, locale: user.locale }, link)]);
      });
    },
  };
}
