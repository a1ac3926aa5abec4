import { createHmac } from 'node:crypto';
import type { Random } from '../../../core/kernel/secrets.js';
import { typedCode } from '../../../core/kernel/text.js';

/** Consonants without Y: no code is a word, and none contains digits that resemble letters (RFC 8628 §6.1). */
const ALPHABET = 'BCDFGHJKLMNPQRSTVWXZ';

/** 34.6 bits. Guesses are limited, and each code is valid for minutes. */
const LENGTH = 8;

/** Bytes from here on would favour the first letters. */
const UNBIASED = 256 - (256 % ALPHABET.length);

export function newUserCode(random: Random): string {
  let code = '';
  while (code.length < LENGTH) {
    const [byte = UNBIASED] = random.bytes(1);
    if (byte < UNBIASED) code += ALPHABET[byte % ALPHABET.length];
  }
  return code;
}

/** The code that a person has typed, in any case and with any separators; `undefined` for a text that cannot be one. */
export function readUserCode(typed: string): string | undefined {
  const code = typedCode(typed).toUpperCase();
  const isCode = code.length === LENGTH && [...code].every((letter) => ALPHABET.includes(letter));
  return isCode ? code : undefined;
}

/** As it is shown: `WDJB-MJHT`. */
export const showUserCode = (code: string): string =>
  `${code.slice(0, LENGTH / 2)}-${code.slice(LENGTH / 2)}`;

/** With the seed as the key: a plain hash of a code could be reversed by enumeration. */
export function hashUserCode(code: string, seed: string): string {
  const key = createHmac('sha256', seed).update('user codes of devices').digest();
  return createHmac('sha256', key).update(code).digest('base64url');
}

/** Prefix of the codes with which devices poll. */
export const DEVICE_CODE = 'dc_';
