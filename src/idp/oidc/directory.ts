import type { RequestSource } from '../../core/http/routes.js';
import type { PublicJwk } from '../../core/kernel/public-jwk.js';

/** Access to principals and clients, which another domain stores; the product passes a `Directory`. */

export interface Principal {
  id: string;
  handle: string;
  kind: 'agent' | 'human';
  name?: string;
  /** Incremented to invalidate everything issued before. */
  epoch?: number;
  /** Present when the operator invited it. */
  invitedAt?: number;
  /** Present when a link that was mailed to the handle was used. */
  emailVerifiedAt?: number;
  /** Present when the operator created the agent. */
  mintedAt?: number;
  /** Present when the operator, who created the agent, vouches for its address. */
  vouchedAt?: number;
  /** Present for an operator of the provider. */
  operatorSince?: number;
  /** Present for a person without a password. */
  passkeyOnly?: true;
  /** With which an agent authenticates at /token. */
  keys?: readonly { jwk: PublicJwk }[];
  updatedAt: number;
}

/** Whether the principal has registered itself, so that its name is its own claim. */
export const isSelfRegistered = ({
  invitedAt,
  mintedAt,
  operatorSince,
}: Pick<Principal, 'invitedAt' | 'mintedAt' | 'operatorSince'>): boolean =>
  (invitedAt ?? mintedAt ?? operatorSince) === undefined;

export interface Client {
  id: string;
  name: string;
  redirectUris: readonly string[];
  /** Absent for clients without a secret. */
  secretHash?: string;
  /** The secret before the last rotation, while it is valid. */
  previousSecretHash?: string;
  principalKinds: readonly ('agent' | 'human')[];
  /** Redirect targets after sign-out. */
  postLogoutRedirectUris: readonly string[];
  /** Consent is not required for this client. */
  trusted?: true;
  /** It must use PKCE, and people do not use HTTP Basic with it. */
  strict?: true;
  /** It may use the device flow. */
  device?: true;
  /** The https address of an image. */
  logoUri?: string;
  /** The signature of its id_tokens; EdDSA by default. */
  idTokenAlg?: 'ES256';
  /** Where the client is notified that a session has ended. */
  backchannelLogoutUri?: string;
  /** The keys of its assertions (`private_key_jwt`), or where it publishes them: one of the two, and then no secret. */
  jwks?: readonly PublicJwk[];
  jwksUri?: string;
  /** How it became known, if the operator has not registered it: its name is then its own claim. */
  origin?: 'dynamic' | 'metadata';
  /** Present until the first sign-in to such a client. */
  unused?: true;
  /** When such a client ends unless it is used. */
  expiresAt?: number;
}

/** Whether the client cannot authenticate, because it has neither a secret nor a key. */
export const isPublicClient = ({
  secretHash,
  jwks,
  jwksUri,
}: Pick<Client, 'secretHash' | 'jwks' | 'jwksUri'>): boolean =>
  secretHash === undefined && jwks === undefined && jwksUri === undefined;

export interface Directory {
  /**
   * The active principal with these credentials, if it is accepted; else `null`. The duration is the same either way.
   * @throws RATE_LIMITED, OVERLOADED
   */
  authenticate(
    handle: string,
    password: string,
    source: RequestSource,
    accepts: (principal: Principal) => boolean,
  ): Promise<Principal | null>;
  /** The principal with this handle, active or not, else `null`. */
  findByHandle(handle: string): Promise<Pick<Principal, 'id'> | null>;
  /** The active principal of a `sub`, else `null`. */
  findPrincipal(sub: string): Promise<Principal | null>;
  /** Whether the principal is permanently deleted or never existed. */
  isDeleted(sub: string): Promise<boolean>;
  /** As it is known, without a request to another host. */
  findClient(clientId: string): Promise<Client | null>;
  /**
   * The same for a client that presents itself, whose metadata may have to be fetched from its host.
   * @param allowsStale whether metadata of the last day is used while the host does not respond
   * @throws RATE_LIMITED, OVERLOADED
   */
  resolveClient(
    clientId: string,
    from: { ip: string; allowsStale: boolean },
  ): Promise<Client | { problem: string } | null>;
  /** After a sign-in or the issue of tokens. */
  recordUse(client: Client): Promise<void>;
}

/**
 * Creates a person.
 * @throws handle_taken, VALIDATION_ERROR, WEAK_PASSWORD, RATE_LIMITED, OVERLOADED
 */
export type SignUp = (
  input: { handle: string; password: string; name?: string },
  source: RequestSource,
) => Promise<Principal>;

/** The second factor of people. */
export interface SecondFactor {
  isEnrolled(sub: string): Promise<boolean>;
  /**
   * Checks a code and uses it. Null for a wrong or used one.
   * @throws RATE_LIMITED
   */
  verify(sub: string, code: string, source: RequestSource): Promise<string | null>;
  /** Whether the operator requires one of this person, who has none. */
  mustEnrol(principal: Principal): Promise<boolean>;
  /**
   * Whether the person has to confirm the address before a factor is set up. Sends the link.
   * @throws RATE_LIMITED
   */
  awaitsConfirmation(principal: Principal, source: RequestSource): Promise<boolean>;
  /** A secret for a new authenticator app. @param label the user name, which the app shows */
  begin(sub: string, label: string): Promise<Enrolment>;
  /** The secret that was shown last; null if there is none any more. */
  pending(sub: string, label: string): Promise<Enrolment | null>;
  /**
   * Confirms the app with a code of it. Returns the recovery codes, the same ones for the same `form`; null for a wrong code.
   * @throws FACTOR_CHANGED, RATE_LIMITED
   */
  confirm(sub: string, code: string, form: string, source: RequestSource): Promise<string[] | null>;
}

/** What an authenticator app needs: the secret as text, as a link and as an SVG image. */
export interface Enrolment {
  secret: string;
  uri: string;
  qr: string;
}

/** The passkeys of people. `form` is the token of the form with the challenge, `purpose` for the audit. */
export interface SignInPasskeys {
  /** The script of the sign-in page. */
  script: string;
  /** What the script passes to the browser, as JSON. */
  requestOptions(form: string): string;
  /** Whether the person has one. */
  has(sub: string): Promise<boolean>;
  /**
   * The person whose passkey has signed the challenge. Null for an invalid or repeated signature, and if `find` finds no person.
   * @throws RATE_LIMITED, after failures only
   */
  verify<T>(
    signed: { form: string; credential: string; purpose: string },
    find: (sub: string) => Promise<T | null>,
    source: RequestSource,
  ): Promise<T | null>;
}

/** Sign-up with a passkey instead of a password. `form` is the token of the form with the challenge. */
export interface PasskeySignUp {
  /** The script of the sign-up page. */
  script: string;
  /** What the script passes to the browser, as JSON, after it has filled in the user name. */
  creationOptions(form: string): string;
  /**
   * Creates a person with the passkey that the browser has created. Null for an invalid or repeated response.
   * @throws handle_taken, VALIDATION_ERROR, RATE_LIMITED
   */
  create(
    input: { handle: string; name?: string; form: string; credential: string },
    source: RequestSource,
  ): Promise<Principal | null>;
}
