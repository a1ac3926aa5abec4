import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import type { Random } from './secrets.js';

/** Encrypts values for the store with AES-256-GCM. */
export type Encryption = ReturnType<typeof createEncryption>;

const VERSION = 'v1';
const IV_BYTES = 12;
const TAG_BYTES = 16;

export interface EncryptionOptions {
  /** The configured secrets, the current one first. */
  keys: readonly string[];
  /** Separates this use of a secret from others, and with it the values. */
  purpose: string;
  /** The error for a value that no key has encrypted, with what to do. */
  unreadable(name: string): string;
  random: Random;
}

export function createEncryption({ keys, purpose, unreadable, random }: EncryptionOptions) {
  const derived = keys.map((key) => Buffer.from(hkdfSync('sha256', key, '', purpose, 32)));
  const [current = Buffer.alloc(0)] = derived;

  const open = (key: Buffer, name: string, stored: string): string | null => {
    const [version, data = ''] = stored.split('.');
    const bytes = Buffer.from(data, 'base64url');
    if (version !== VERSION || bytes.length < IV_BYTES + TAG_BYTES) return null;
    const decipher = createDecipheriv('aes-256-gcm', key, bytes.subarray(0, IV_BYTES), {
      authTagLength: TAG_BYTES,
    });
    decipher.setAAD(Buffer.from(name));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    const text = decipher.update(bytes.subarray(IV_BYTES, -TAG_BYTES));
    try {
      return Buffer.concat([text, decipher.final()]).toString();
    } catch {
      // The tag belongs to another key, name or text.
      return null;
    }
  };

  return {
    /** @param name of the value; under another name it cannot be decrypted */
    encrypt(name: string, text: string): string {
      const iv = random.bytes(IV_BYTES);
      const cipher = createCipheriv('aes-256-gcm', current, iv, { authTagLength: TAG_BYTES });
      cipher.setAAD(Buffer.from(name));
      const encrypted = Buffer.concat([iv, cipher.update(text), cipher.final(), cipher.getAuthTag()]);
      return `${VERSION}.${encrypted.toString('base64url')}`;
    },

    /** @throws Error if neither key has encrypted it, or it was modified */
    decrypt(name: string, stored: string): string {
      for (const key of derived) {
        const text = open(key, name, stored);
        if (text !== null) return text;
      }
      throw new Error(unreadable(name));
    },

    /** Whether the current key has encrypted it. */
    isCurrent: (name: string, stored: string): boolean => open(current, name, stored) !== null,
  };
}
