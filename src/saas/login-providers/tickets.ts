import type { SignInChecks } from '../../core/http/provider-sign-in.js';
import { MINUTE } from '../../core/kernel/clock.js';
import type { ProviderIdentity } from './answers.js';

/** A sign-in that has begun, in the cookie of the browser. */
export interface BegunLogin extends SignInChecks {
  provider: string;
  /** Where the browser returns, an absolute address. */
  returnTo: string;
  codeChallenge: string;
}

/** Who has signed in at the provider, for the application that began it. */
export interface Ticket {
  /** Of which there is one sign-in or one connection. */
  id: string;
  provider: string;
  identity: ProviderIdentity;
  codeChallenge: string;
}

/** Also enough to sign in to an existing account before the provider is connected to it. */
export const LIFETIME_MS = 10 * MINUTE;
