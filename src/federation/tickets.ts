import { MINUTE } from '../kernel/clock.js';
import type { LoginChecks, ProviderIdentity } from './providers.js';

/** A sign-in that has begun, in the cookie of the browser. */
export interface BegunLogin extends LoginChecks {
  provider: string;
  /** Where the browser returns, an absolute address. */
  returnTo: string;
  codeChallenge: string;
}

/** Who has signed in at the provider, for the application that began it. */
export interface Ticket {
  provider: string;
  identity: ProviderIdentity;
  codeChallenge: string;
}

/** Also enough to sign in to an existing account before the provider is connected to it. */
export const LIFETIME_MS = 10 * MINUTE;
