import type { FastifyRequest } from 'fastify';
import type { Localized } from '../../core/http/messages.js';
import type { Session, User } from '../../core/http/schemas.js';
import type { Origin } from '../../core/http/scope.js';

/** What the pages use of the other domains, which the product passes on. */

export interface Identity {
  user: User;
  session: Session;
}

/** The response to a sign-in. */
export interface Tokens {
  refreshToken: string;
}

/** What an authenticator app needs. */
export interface Enrolment {
  secret: string;
  uri: string;
  /** An SVG image of the address. */
  qr: string;
}

export interface SecondFactorStep {
  /** @throws INVALID_CHALLENGE, INVALID_CODE, RATE_LIMITED */
  complete(given: { challenge: string; code: string }, origin: Origin): Promise<Tokens>;
  /** @throws INVALID_CHALLENGE, RATE_LIMITED */
  begin(challenge: string, origin: Origin): Promise<Enrolment>;
  /** @throws INVALID_CHALLENGE, RATE_LIMITED */
  pending(challenge: string, origin: Origin): Promise<Enrolment | null>;
  /** @throws INVALID_CHALLENGE, INVALID_CODE, FACTOR_CHANGED, RATE_LIMITED */
  confirm(
    given: { challenge: string; code: string },
    origin: Origin,
  ): Promise<Tokens & { recoveryCodes: string[] }>;
}

/** Registration, sign-in and sessions. */
export interface Accounts {
  /**
   * @throws INVALID_CREDENTIALS, ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED, SECOND_FACTOR_REQUIRED,
   *   SECOND_FACTOR_ENROLMENT_REQUIRED, RATE_LIMITED, OVERLOADED
   */
  login(input: { email: string; password: string }, origin: Origin): Promise<Tokens>;
  /**
   * Null if the address must be verified first.
   * @throws REGISTRATION_DISABLED, EMAIL_TAKEN, WEAK_PASSWORD, VALIDATION_ERROR, RATE_LIMITED, OVERLOADED
   */
  register(
    input: { email: string; password: string; name?: string; locale?: string | undefined },
    origin: Origin,
  ): Promise<Tokens | null>;
  /** @throws RATE_LIMITED */
  forgotPassword(email: string, origin: Origin): Promise<void>;
  /** @throws RATE_LIMITED */
  resendVerification(email: string, origin: Origin): Promise<void>;
  /** @throws INVALID_CREDENTIALS, EMAIL_TAKEN, VALIDATION_ERROR, REAUTHENTICATION_REQUIRED, RATE_LIMITED, OVERLOADED */
  changeEmail(identity: Identity, given: { email: string; password?: string }, origin: Origin): Promise<void>;
  resume(
    refreshToken: string,
    origin: Origin,
  ): Promise<{ identity: Identity; hasPassword: boolean; refreshToken: string } | null>;
  endSession(refreshToken: string, origin: Pick<Origin, 'ip'>): Promise<void>;
  /** Absent if no encryption key for second factors is configured. */
  secondFactorStep: SecondFactorStep | undefined;
  /** Absent if it is not enabled. */
  emailLogin: EmailLogin | undefined;
}

/** Sign-in with accounts of other providers. */
export interface LoginProviders {
  providers(): { name: string; label: string }[];
  /** Signs in, or registers. @throws INVALID_TICKET, ACCOUNT_EXISTS, PROVIDER_EMAIL_NOT_VERIFIED and those of `login` */
  exchange(
    given: { ticket: string; codeVerifier: string },
    locale: string | undefined,
    origin: Origin,
  ): Promise<Tokens>;
  /** @throws INVALID_TICKET, EMAIL_NOT_VERIFIED, IDENTITY_TAKEN */
  connect(user: User, given: { ticket: string; codeVerifier: string }, origin: Origin): Promise<unknown>;
  list(
    userId: string,
  ): Promise<{ id: string; provider: string; label: string; email: string | null; connectedAt: string }[]>;
  /** @throws NOT_FOUND, LAST_LOGIN_METHOD */
  disconnect(userId: string, id: string, origin: Origin): Promise<void>;
}

/** The account of an identity provider whose agents may act for a user. */
export interface AgentAccounts {
  view(userId: string): Promise<{ issuer: string; connectedAt: string | null }>;
  /** @throws INVALID_TICKET, EMAIL_NOT_VERIFIED, AGENT_ACCOUNT_TAKEN, ALREADY_CONNECTED */
  connect(user: User, given: { ticket: string; codeVerifier: string }, origin: Origin): Promise<unknown>;
  disconnect(userId: string, origin: Origin): Promise<void>;
}

/** A page that a guard of the account pages has opened. */
export interface PersonGuard {
  personOf(request: FastifyRequest): { principal: { id: string; passkeyOnly?: true } };
  formsOf(request: FastifyRequest): { issue(): string };
  checkForm(request: FastifyRequest<{ Body: { form: string } }>): void;
}

/** A section of the account page, with a link to a page of its own. */
export interface Section {
  id: string;
  title: Localized;
  text: Localized;
  href: string;
  label: Localized;
}

export interface Plan {
  priceId: string | null;
  plan: string;
  name: string | null;
  description: string | null;
  amount: number | null;
  currency: string | null;
  /** Null for a one-time price. */
  interval: string | null;
  intervalCount: number | null;
  trialDays: number | null;
}

export interface Subscription {
  status: string;
  plan: string;
  entitled: boolean;
  priceId: string | null;
  currentPeriodEnd: string | null;
  trialEnd: string | null;
  cancelAtPeriodEnd: boolean | null;
  cancelAt: string | null;
  granted: object | null;
}

export interface Invoice {
  number: string | null;
  status: string | null;
  amountDue: number | null;
  amountPaid: number | null;
  currency: string | null;
  createdAt: string;
  url: string | null;
}

/** Purchases and subscriptions. All but `current` can fail with the payment provider. */
export interface Billing {
  current(userId: string): Promise<Subscription>;
  plans(): Promise<Plan[]>;
  invoices(userId: string): Promise<Invoice[]>;
  openCheckout(
    user: User,
    order: { priceId: string; mode: 'subscription' | 'payment' },
  ): Promise<{ url: string }>;
  openPortal(user: User, returnPath: string): Promise<{ url: string }>;
  /** Fetches the state of the provider, after the payment of a checkout session. @throws NOT_FOUND if it is of another user */
  sync(user: User, sessionId: string): Promise<unknown>;
  previewChange(
    userId: string,
    order: { priceId: string },
  ): Promise<{ amountDue: number; currency: string | null; nextChargeAt: string | null }>;
  change(userId: string, order: { priceId: string }, ip: string): Promise<unknown>;
  cancel(userId: string, order: { when: 'period_end' }, ip: string): Promise<unknown>;
  resume(userId: string, order: object, ip: string): Promise<unknown>;
  /** @param amount in the currency's smallest unit, as the provider counts it */
  formatAmount(amount: number, currency: string, locale: string): string;
}

/** Sign-in with a mailed code. */
export interface EmailLogin {
  /** Returns the login token, without which the code is useless. @throws RATE_LIMITED */
  requestCode(given: { email: string; locale?: string | undefined }, origin: Origin): Promise<string>;
  /** @throws INVALID_CODE, CODE_EXPIRED, REGISTRATION_DISABLED and those of `login` */
  redeem(
    given: { loginToken: string; code: string; locale?: string | undefined },
    origin: Origin,
  ): Promise<Tokens>;
}

/** A ceremony of WebAuthn for the browser, and the token that returns with its response. */
interface Begun {
  ceremony: string;
  options: Record<string, unknown>;
}

/** Sign-in and registration with a passkey. */
export interface Passkeys {
  /** The script of the pages that use them. */
  script: string;
  beginSignIn(): Begun;
  /** @throws PASSKEY_EXPIRED, INVALID_PASSKEY, ACCOUNT_SUSPENDED, EMAIL_NOT_VERIFIED */
  signIn(given: { ceremony: string; credential: object }, origin: Origin): Promise<Tokens>;
  /** The same response for every address. */
  beginSignUp(given: { email: string; name?: string }): Begun;
  /** Null if the address must be verified first. @throws PASSKEY_EXPIRED, PASSKEY_REJECTED and those of `register` */
  signUp(
    given: { ceremony: string; credential: object },
    locale: string | undefined,
    origin: Origin,
  ): Promise<Tokens | null>;
}
