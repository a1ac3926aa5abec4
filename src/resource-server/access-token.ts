import type { JWTPayload } from 'jose';
import { actorsOf } from '../core/http/revocation-list.js';
import { SECOND } from '../core/kernel/clock.js';

/** One action that a person approves: a type that the API has declared at the provider, and its fields. */
export type ApprovalDetails = { type: string } & Readonly<Record<string, unknown>>;

/** What a verified access token says. */
export interface AccessToken {
  /** Whom it is about: the principal for whom the client acts. */
  subject: string;
  /** `human` or `agent`. */
  kind: string | undefined;
  /** The application that the token was issued to; empty if it names none, which only those of the type `JWT` may do. */
  clientId: string;
  /** What the token permits. */
  scopes: readonly string[];
  /** The agents that act for the subject (RFC 8693 §4.1), the current one first; empty without delegation. */
  actors: readonly string[];
  /** The token's own ID; empty in the same case. */
  id: string;
  /** Milliseconds since 1970. */
  expiresAt: number;
  /** When the person signed in, in milliseconds since 1970, and how (RFC 9470). */
  authTime: number | undefined;
  /** How the person signed in, as the issuer calls it. */
  acr: string | undefined;
  /** The methods of the sign-in (RFC 8176). */
  amr: readonly string[];
  /** What a person has approved once (RFC 9396); `requireApproval` compares it and uses it up. */
  authorizationDetails: readonly ApprovalDetails[];
  /** Every claim. */
  claims: Readonly<Record<string, unknown>>;
}

/** The claims of an access token whose required ones were checked: with the type `at+jwt`, also `jti` and `client_id` (RFC 9068 §2.2). */
export type AccessClaims = JWTPayload & { sub: string; exp: number; client_id?: string };

const isDetail = (one: unknown): one is ApprovalDetails =>
  typeof (one as { type?: unknown } | null)?.type === 'string';

export function accessTokenOf(claims: AccessClaims): AccessToken {
  const textOf = (value: unknown) => (typeof value === 'string' ? value : undefined);
  const { kind, acr, amr, auth_time: authTime, authorization_details: details } = claims;
  // Of Auth0 and Keycloak, Okta, and Entra.
  const client = claims.client_id ?? claims['azp'] ?? claims['cid'] ?? claims['appid'];
  // Okta has an array, and Entra a text.
  const scope = [claims['scope'] ?? claims['scp']].flat().filter((each) => typeof each === 'string');
  return {
    subject: claims.sub,
    kind: textOf(kind),
    clientId: textOf(client) ?? '',
    scopes: scope.join(' ').split(' ').filter(Boolean),
    actors: actorsOf(claims['act']).map(({ sub }) => sub),
    id: claims.jti ?? '',
    expiresAt: claims.exp * SECOND,
    authTime: typeof authTime === 'number' ? authTime * SECOND : undefined,
    acr: textOf(acr),
    amr: Array.isArray(amr) ? amr.filter((each) => typeof each === 'string') : [],
    authorizationDetails: Array.isArray(details) ? details.filter(isDetail) : [],
    claims,
  };
}
