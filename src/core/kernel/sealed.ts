import { type Clock, isUnexpired } from './clock.js';
import { createEncryption } from './encryption.js';
import type { Random } from './secrets.js';

/** Encrypted state that a client keeps and that is not stored: only this server reads or changes it. */
export type Sealed<T extends object> = ReturnType<typeof createSealed<T>>;

export interface SealOptions {
  /** The current secret first. */
  keys: readonly string[];
  lifetimeMs: number;
  clock: Pick<Clock, 'now'>;
  random: Random;
}

/** @param purpose separates the kinds from each other */
export function createSealed<T extends object>(
  purpose: string,
  { keys, lifetimeMs, clock, random }: SealOptions,
) {
  const encryption = createEncryption({ keys, purpose, unreadable: () => purpose, random });
  return {
    seal: (value: T): string =>
      encryption.encrypt(purpose, JSON.stringify({ ...value, expiresAt: clock.now() + lifetimeMs })),
    /** Null if it is invalid or has expired. */
    open(text: string): T | null {
      let opened: string;
      try {
        opened = encryption.decrypt(purpose, text);
      } catch {
        // Forged, or sealed with a secret that is not configured any more.
        return null;
      }
      const { expiresAt, ...value } = JSON.parse(opened);
      return isUnexpired(expiresAt, { now: clock.now(), life: lifetimeMs }) ? value : null;
    },
  };
}
