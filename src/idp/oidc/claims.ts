import { canonicalDomain, isDomain, mailboxOf, spellingsOf } from '../../core/http/mailboxes.js';
import { toSeconds } from '../../core/kernel/clock.js';
import type { Principal } from './directory.js';

export const SCOPES = ['openid', 'email', 'profile', 'offline_access'] as const;

/** No level of assurance (OIDC Core §2), and a passkey or a password with a second factor. */
export const ACR_VALUES = ['0', 'mfa'] as const;

/** How a person signed in (RFC 8176). A passkey proves a key and, with the verification of the user, a second factor. */
export const AMR = {
  password: ['pwd'],
  secondFactor: ['pwd', 'otp', 'mfa'],
  passkey: ['pop', 'user', 'mfa'],
} as const;

/** The class of a sign-in. */
export const acrOf = (amr: readonly string[] | undefined): string => ACR_VALUES[amr?.includes('mfa') ? 1 : 0];

export const CLAIMS = [
  ...['iss', 'sub', 'aud', 'exp', 'iat', 'auth_time', 'jti', 'amr', 'acr', 'nonce', 'sid'],
  ...['kind', 'sub_profile', 'name', 'preferred_username', 'updated_at', 'email', 'email_verified'],
] as const;

/** The claims about a principal for the granted scopes (OIDC Core §5.4). */
export type ClaimsOf = (principal: Principal, scope: string) => Record<string, string | number | boolean>;

/** @param trustedDomains e-mail domains in which an accepted invitation, or the operator of an agent, verifies the address */
export function createClaims(trustedDomains: readonly string[]): ClaimsOf {
  const isInTrustedDomain = createDomainCheck(trustedDomains);
  // Registration accepts any address. A mailed link or an invitation proves access to the mailbox; of an agent, the operator has chosen it.
  const isVerified = ({ handle, invitedAt, vouchedAt, emailVerifiedAt }: Principal) =>
    emailVerifiedAt !== undefined || ((invitedAt ?? vouchedAt) !== undefined && isInTrustedDomain(handle));

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
        mailboxOf(handle) !== undefined && { email: handle, email_verified: isVerified(principal) }),
    };
  };
}

/** The problem of a domain of the configuration, or `undefined`. */
export function emailDomainProblem(domain: string): string | undefined {
  return isDomain(canonicalDomain(domain))
    ? undefined
    : `must list domains like example.com: ${JSON.stringify(domain)} is not a domain.`;
}

/**
 * Whether an address is in one of these domains, subdomains excluded. A domain beyond ASCII has two spellings, and any
 * other spelling is another domain, even if a resolver would accept it.
 */
function createDomainCheck(domains: readonly string[]): (address: string) => boolean {
  const spellings = new Set(domains.map(canonicalDomain).flatMap(spellingsOf));
  return (address) => spellings.has(address.slice(address.lastIndexOf('@') + 1));
}
