import { addressOf, canonicalDomain, isDomain, spellingsOf } from '../../core/http/mailboxes.js';
import { toSeconds } from '../../core/kernel/clock.js';
import type { Metadata } from '../provisioning/store.js';
import type { Client, Principal } from './directory.js';

/** `groups` is offered while there is a group. */
export const SCOPES = ['openid', 'email', 'profile', 'groups', 'offline_access'] as const;

export const SCOPES_WITHOUT_GROUPS = SCOPES.filter((scope) => scope !== 'groups');

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
  ...['given_name', 'family_name', 'nickname', 'picture', 'locale'],
] as const;

/** The claims of the scope `profile` that metadata may contain (OIDC Core §5.1). */
const PROFILE_CLAIMS = ['given_name', 'family_name', 'nickname', 'picture', 'locale'];

/** No application gets another claim under the name of one that the provider, a token or a library defines. */
export const RESERVED_CLAIMS: readonly string[] = [
  ...CLAIMS,
  ...['groups', 'scope', 'client_id', 'act', 'may_act', 'cnf', 'azp', 'at_hash', 'c_hash', 's_hash', 'nbf'],
  ...['txn', 'delegation', 'epoch', 'consent', 'events', 'typ', 'token_type', 'active', 'sub_jwk', 'sub_id'],
  ...['phone_number', 'phone_number_verified', 'constructor'],
];

/** The claims about a principal: values of JSON. */
export type Claims = Record<string, string | number | boolean | readonly string[]>;

/** Whether the address of a principal is known to be its own. */
export type IsVerified = (
  principal: Pick<Principal, 'handle' | 'email' | 'invitedAt' | 'vouchedAt' | 'emailVerifiedAt'>,
) => boolean;

/** @param trustedDomains e-mail domains in which an accepted invitation, or the operator of an agent, verifies the address */
export function createIsVerified(trustedDomains: readonly string[]): IsVerified {
  const isInTrustedDomain = createDomainCheck(trustedDomains);
  // Registration accepts any address. A mailed link or an invitation proves access to the mailbox; of an agent, the operator has chosen it.
  return ({ handle, email, invitedAt, vouchedAt, emailVerifiedAt }) => {
    // An invitation chose the handle, but not an address that was given later.
    const chosenAt = email === undefined ? (invitedAt ?? vouchedAt) : vouchedAt;
    return emailVerifiedAt !== undefined || (chosenAt !== undefined && isInTrustedDomain(email ?? handle));
  };
}

/** Which groups a client sees: those that register themselves see none, unless the operator says so. */
export const groupsFor = ({ groupsClaim, origin }: Pick<Client, 'groupsClaim' | 'origin'>): string =>
  groupsClaim ?? (origin === undefined ? 'all' : 'none');

/**
 * The groups in a claim; undefined for none at all.
 * @param filter `all`, `none`, or names separated by commas, each with `=` and another name for it
 */
export function filterGroups(filter: string, groups: readonly string[]): readonly string[] | undefined {
  if (filter === 'none') return undefined;
  if (filter === 'all') return groups;
  const shown = filter.split(',').map((part) => {
    const [group = '', ...as] = part.split('=');
    return { group, name: as.length > 0 ? as.join('=') : group };
  });
  return shown.flatMap(({ group, name }) => (groups.includes(group) ? [name] : []));
}

/** The claims about a principal for the granted scopes (OIDC Core §5.4). */
export type ClaimsOf = (
  principal: Principal,
  scope: string,
  client?: Pick<Client, 'groupsClaim' | 'claims' | 'origin'>,
) => Claims;

/** The claims that an application gets from metadata; one of another type is left out. */
function customClaims(declared: string, metadata: Metadata): Claims {
  const claims = declared.split(',').flatMap((part) => {
    const [, claim = '', type, name = ''] = /^(\w+):(\w+)=(\w+)$/.exec(part) ?? [];
    const value = Object.hasOwn(metadata, name) ? metadata[name] : undefined;
    const isDeclared = type === (Array.isArray(value) ? 'list' : typeof value);
    return value !== undefined && isDeclared ? [[claim, value] as const] : [];
  });
  return Object.fromEntries(claims);
}

export function createClaims(isVerified: IsVerified): ClaimsOf {
  return (principal, scope, client) => {
    const { id, handle, kind, name, updatedAt, metadata = {} } = principal;
    const email = addressOf(principal);
    const granted = new Set(scope.split(' '));
    const groups = client && granted.has('groups') && filterGroups(groupsFor(client), principal.groups);
    const isProfile = granted.has('profile');
    const known = PROFILE_CLAIMS.filter((claim) => isProfile && Object.hasOwn(metadata, claim));
    return {
      // First, so that they replace none of the others.
      ...(isProfile && client?.claims !== undefined && customClaims(client.claims, metadata)),
      ...Object.fromEntries(known.map((claim) => [claim, metadata[claim] ?? ''])),
      sub: id,
      kind,
      sub_profile: kind === 'agent' ? 'ai_agent' : 'user',
      ...(isProfile && {
        name: name ?? handle,
        preferred_username: handle,
        updated_at: toSeconds(updatedAt),
      }),
      ...(granted.has('email') && email !== undefined && { email, email_verified: isVerified(principal) }),
      ...(groups && { groups }),
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
