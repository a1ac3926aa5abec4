import { type ConditionalLink, DANGEROUS, linksBelow } from '../../shared/console-kit/details.js';
import type { OperatedUser } from './schemas.js';
import type { AdminServices } from './services.js';

/** The links of the user page to the actions that apply to a user. */
export function linksTo(
  {
    id,
    state,
    emailVerified,
    granted,
    secondFactorSince,
    passkeys,
  }: OperatedUser & { secondFactorSince: string | null; passkeys: number },
  { users: { userRoles, userFields }, provider, impersonationHref }: AdminServices,
) {
  const isActive = state === 'active';
  const links: ConditionalLink[] = [
    ['send-reset', 'Send a password link', isActive, 'Send a link'],
    ['send-verification', 'Send a verification link', isActive && !emailVerified, 'Send a link'],
    ['grant', granted === null ? 'Grant a plan' : 'Change the granted plan', true, 'Billing'],
    ['revoke-grant', 'Withdraw the granted plan', granted !== null, 'Billing'],
    ['resync', 'Sync with the payment provider', provider !== undefined, 'Billing'],
    ['rename', 'Change name', true],
    ['note', 'Edit the note', state !== 'deleting'],
    ['roles', 'Change roles', userRoles !== undefined],
    ['fields', 'Change fields', userFields !== undefined],
    ['operator-role', 'Change the role in the admin area', state !== 'deleting'],
    [impersonationHref?.(id) ?? '', 'Sign in as this user', impersonationHref !== undefined && isActive],
    ['end-sessions', 'End all sessions', isActive],
    ['unsuspend', 'Lift the suspension', state === 'suspended'],
    ['remove-second-factor', 'Remove the second factor', secondFactorSince !== null, DANGEROUS],
    ['remove-passkeys', 'Remove the passkeys', passkeys > 0, DANGEROUS],
    ['suspend', 'Suspend', isActive, DANGEROUS],
    ['delete', 'Delete', true, DANGEROUS],
  ];
  return linksBelow(id, links);
}
