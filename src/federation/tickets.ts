import { type Clock, isUnexpired, MINUTE } from '../kernel/clock.js';
import { createEncryption } from '../kernel/encryption.js';
import type { Random } from '../kernel/secrets.js';
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

/** Encrypted state that is not stored: nobody but this server reads or changes it. */
export interface Sealed<T> {
  seal(value: T): string;
  /** Null if it is invalid or has expired. */
  open(text: string): T | null;
}

/** Also enough to sign in to an existing account before the provider is connected to it. */
export const LIFETIME_MS = 10 * MINUTE;

export interface SealOptions {
  /** The current secret first. */
  keys: readonly string[];
  clock: Pick<Clock, 'now'>;
  random: Random;
}

/** @param purpose separates the kinds from each other */
export function createSealed<T extends object>(
  purpose: string,
  { keys, clock, random }: SealOptions,
): Sealed<T> {
  const encryption = createEncryption({ keys, purpose, unreadable: () => purpose, random });
  return {
    seal: (value) =>
      encryption.encrypt(purpose, JSON.stringify({ ...value, expiresAt: clock.now() + LIFETIME_MS })),
    open(text) {
      let opened: string;
      try {
        opened = encryption.decrypt(purpose, text);
      } catch {
        // Forged, or sealed with a secret that is not configured any more.
        return null;
      }
      const { expiresAt, ...value } = JSON.parse(opened) as T & { expiresAt: number };
      return isUnexpired(expiresAt, { now: clock.now(), life: LIFETIME_MS }) ? (value as unknown as T) : null;
    },
  };
}
