import { toSeconds } from '../kernel/clock.js';
import { createDomainCheck, isEmailAddress } from './email-domains.js';
import type { Principal } from './model.js';

export const SCOPES = ['openid', 'email', 'profile', 'offline_access'] as const;

/** No level of assurance (OIDC Core §2): the one class there is without a second factor. */
export const ACR_VALUES = ['0'] as const;

export const CLAIMS = [
  ...['iss', 'sub', 'aud', 'exp', 'iat', 'auth_time', 'jti', 'amr', 'acr', 'nonce', 'at_hash', 'sid'],
  ...['kind', 'sub_profile', 'name', 'preferred_username', 'updated_at', 'email', 'email_verified'],
] as const;

/** What an application learns of a principal, for the scopes it was granted (OIDC Core §5.4). */
export type ClaimsOf = (principal: Principal, scope: string) => Record<string, string | number | boolean>;

/** @param trustedDomains of e-mail, where an invitation proves the address */
export function createClaims(trustedDomains: readonly string[]): ClaimsOf {
  const isInTrustedDomain = createDomainCheck(trustedDomains);
  // Whoever registered has named any address. Where it is not proved, nobody may link an account by it.
  const isVerified = ({ handle, invitedAt }: Principal) =>
    invitedAt !== undefined && isInTrustedDomain(handle);

  return (principal, scope) => {
    const { id, handle, kind, name, updatedAt } = principal;
    const granted = new Set(scope.split(' '));
    return {
      sub: id,
      kind,
      sub_profile: kind === 'agent' ? 'ai_agent' : 'user',
      ...(granted.has('profile') && {
        name: name ?? handle,
        preferred_username: handle,
        updated_at: toSeconds(updatedAt),
      }),
      ...(granted.has('email') &&
        isEmailAddress(handle) && { email: handle, email_verified: isVerified(principal) }),
    };
  };
}
