import { MINUTE } from '../../../core/kernel/clock.js';
import type { Random } from '../../../core/kernel/secrets.js';
import { typedCode } from '../../../core/kernel/text.js';
import type { Collection, Store } from '../../../core/storage/collection.js';

/** A sign-in by e-mail, for an address with an account or without, until its code is used. An address can have several at a time. */
export interface LoginCodeDocument {
  /** SHA-256 of the secret in the login token, which the browser has that began the sign-in. */
  id: string;
  /** SHA-256 of that secret and the mailed code. */
  codeHash: string;
  /** Codes that can still be tried. */
  attemptsLeft: number;
  expiresAt: number;
  /** The account with this address when the code was requested, and its `sessionEpoch`; absent if there was none. */
  userId?: string;
  epoch?: number;
}

export type LoginCodes = Collection<LoginCodeDocument>;

export const loginCodeCollection = (store: Store): LoginCodes =>
  store.collection<LoginCodeDocument>('loginCodes', {
    indexes: [['expiresAt']],
    numbers: ['expiresAt', 'attemptsLeft'],
  });

export const LOGIN_CODE_TTL_MS = 10 * MINUTE;

/** Codes that can be tried for one request. */
export const LOGIN_CODE_ATTEMPTS = 5;

/** Crockford's Base32, in which no two characters look alike. */
const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const CHARACTERS = 8;

/** A code of 40 random bits, like `7KQM3XWT`. */
export const newLoginCode = (random: Random): string =>
  Array.from(random.bytes(CHARACTERS), (byte) => ALPHABET[byte % ALPHABET.length]).join('');

/** As the mail shows it: `7KQM-3XWT`. */
export const groupedCode = (code: string): string =>
  `${code.slice(0, CHARACTERS / 2)}-${code.slice(CHARACTERS / 2)}`;

/** The code that was typed. Separators and the case do not matter, nor do characters that look alike. */
export const readLoginCode = (typed: string): string =>
  typedCode(typed).toUpperCase().replaceAll('O', '0').replaceAll(/[IL]/g, '1');
