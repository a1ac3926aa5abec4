import type { Static } from 'typebox';
import type { BulkAction } from '../../shared/console-kit/actions.js';
import type { OperatedUser } from './schemas.js';
import type { AdminServices } from './services.js';
import { grantForm, grantOf, onlyOwnersOn } from './user-actions.js';

/** What the operator can do with all users that a search or a filter shows. */
export function bulkUserActions({ users, auth, billing, clock }: AdminServices): BulkAction<OperatedUser>[] {
  const accounts = auth.service.administration;
  const nameOf = ({ email }: OperatedUser) => email;
  const isActive = ({ state }: OperatedUser) => state === 'active';
  const form = grantForm(billing.plans.names);
  return [
    {
      verb: 'send-verification',
      label: 'Send a verification link',
      role: 'support',
      roleOn: onlyOwnersOn,
      button: 'Send links',
      consequences:
        'Each user whose address is not verified gets a link by e-mail. Earlier links become invalid.',
      applies: (user) => isActive(user) && !user.emailVerified,
      nameOf,
      run: ({ id }, _, by) => accounts.sendVerification(id, by),
    },
    {
      verb: 'grant',
      label: 'Grant a plan',
      ...form,
      consequences:
        'Each user has access to the plan in addition to purchased ones. The payment provider is not involved. An earlier grant is replaced.',
      applies: isActive,
      nameOf,
      run: ({ id }, given, by) =>
        billing.grants.grant(id, grantOf(given as Static<typeof form.fields>, clock), by),
    },
    {
      verb: 'end-sessions',
      label: 'End all sessions',
      role: 'support',
      roleOn: onlyOwnersOn,
      button: 'End all sessions',
      isDestructive: true,
      consequences: 'From the next request on, each user has to sign in again on every device.',
      applies: isActive,
      nameOf,
      run: ({ id }, _, by) => accounts.endSessions(id, by),
    },
    {
      verb: 'suspend',
      label: 'Suspend',
      button: 'Suspend all',
      isDestructive: true,
      consequences:
        'From the next request on, none of them can sign in or call the API. Subscriptions continue.',
      applies: isActive,
      nameOf,
      run: ({ id }, _, by) => users.suspension.suspend({ id }, by),
    },
  ];
}
