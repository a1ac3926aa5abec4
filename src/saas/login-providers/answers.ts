import type { IDToken, ServerMetadata } from 'openid-client';
import { SECOND } from '../../core/kernel/clock.js';

/** What OpenID providers answer, where they differ from each other and from the specification. */

/** What a provider says about the person who signed in there. */
export interface ProviderIdentity {
  issuer: string;
  subject: string;
  email?: string;
  /** Whether the provider has verified the address. */
  emailVerified: boolean;
  name?: string;
  /** `human` or `agent`, where the provider tells agents from people. */
  kind?: string;
  /** When the person last signed in there, in Unix milliseconds; absent if the provider does not say it. */
  authenticatedAt?: number;
}

/** Stands for the ID of a tenant in the issuer of Entra ID for several tenants. */
export const TENANT = '{tenantid}';

/** Hosts of Microsoft, whose metadata name the number of a tenant, also if they are found by its name. */
const MICROSOFT = /^(login\.microsoftonline\.com|[\w-]+\.(b2clogin|ciamlogin)\.com)$/;

/** Why metadata cannot be used that name this issuer. */
export function issuerProblem(
  stated: string,
  configured: string,
  { trustEmail }: { trustEmail: boolean },
): string | undefined {
  const [found, expected] = [URL.canParse(stated) ? new URL(stated) : null, new URL(configured)];
  const hasTenants = stated.includes(TENANT);
  const isSame =
    found?.href === expected.href ||
    (found?.hostname === expected.hostname && (hasTenants || MICROSOFT.test(found.hostname)));
  if (!isSame) return `its metadata name the issuer ${stated} instead of ${configured}.`;
  if (hasTenants && trustEmail)
    return 'trustEmail needs the issuer of one tenant: an administrator of any tenant can claim any address.';
  return undefined;
}

/** Reads the response of a token endpoint, and the claims of the id_token in it, which are not validated. */
export async function readTokens(answer: Response): Promise<[Response, Record<string, unknown>]> {
  const text = await answer.text();
  const { scope, ...tokens } = objectIn(text);
  const [, claims = ''] = String(tokens['id_token']).split('.');
  // Twitch sends a list.
  const corrected = Array.isArray(scope) ? JSON.stringify({ ...tokens, scope: scope.join(' ') }) : text;
  return [new Response(corrected, answer), objectIn(Buffer.from(claims, 'base64url').toString())];
}

/** The object in a JSON text; empty for another text, which is refused when it is validated. */
function objectIn(text: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

/** Whether the id_tokens of a provider have a nonce, as its metadata suggest: LinkedIn, for example, knows neither nonce nor PKCE. */
export const knowsNonce = ({ claims_supported, code_challenge_methods_supported }: ServerMetadata): boolean =>
  code_challenge_methods_supported !== undefined || claims_supported?.includes('nonce') === true;

/** Sign in with Apple states the name of a person in the first response only, beside the code. */
export function nameFromApple({ searchParams }: URL): { name?: string } {
  const { name } = objectIn(searchParams.get('user') ?? '');
  const { firstName, lastName } = Object(name);
  const parts = [firstName, lastName].filter((part) => typeof part === 'string' && part !== '');
  return parts.length > 0 ? { name: parts.join(' ') } : {};
}

export function identityOf(claims: IDToken, { trustEmail }: { trustEmail: boolean }): ProviderIdentity {
  const { iss, sub, email, name, kind, auth_time: authTime } = claims;
  return {
    issuer: iss,
    subject: sub,
    ...(typeof email === 'string' && { email }),
    emailVerified: trustEmail || isEmailVerified(claims),
    ...(typeof name === 'string' && { name }),
    ...(typeof kind === 'string' && { kind }),
    ...(authTime !== undefined && { authenticatedAt: authTime * SECOND }),
  };
}

function isEmailVerified(claims: Record<string, unknown>): boolean {
  const {
    email,
    email_verified: isVerified,
    xms_edov: isDomainVerified,
    verified_primary_email: primary,
  } = claims;
  // Some providers send it as text.
  if (isVerified !== undefined) return isVerified === true || isVerified === 'true';
  // Entra ID has claims of its own: the tenant has verified the domain of the address, or the address itself.
  const isOwned = [true, 'true', 1, '1'].some((value) => value === isDomainVerified);
  return isOwned || (typeof email === 'string' && [primary].flat().includes(email));
}
