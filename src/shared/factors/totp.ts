import { createHmac } from 'node:crypto';
import { Secret, TOTP } from 'otpauth';
import { renderSVG } from 'uqr';
import { SECOND } from '../../core/kernel/clock.js';
import type { Random } from '../../core/kernel/secrets.js';
import { typedCode } from '../../core/kernel/text.js';

/** Time-based one-time passwords (RFC 6238) as every authenticator app computes them: SHA-1, six digits, 30 seconds. */

const STEP_MS = 30 * SECOND;

/** Steps before and after the current one: clocks differ, and typing takes time (RFC 6238 §5.2). */
const WINDOW = 1;

/** 160 bits, the length of the HMAC (RFC 4226 §4). */
const SECRET_BYTES = 20;

export interface Enrolment {
  /** The secret for typing: Base32 in groups of four characters. */
  secret: string;
  /** `otpauth://totp/…`, which phones open in the app. */
  uri: string;
  /** The same as an SVG image. */
  qr: string;
}

export const newSecret = (random: Random): string => base32(random.bytes(SECRET_BYTES));

export function enrolmentOf(secret: string, { issuer, label }: { issuer: string; label: string }): Enrolment {
  const uri = totpOf(secret, { issuer, label }).toString();
  return { secret: (secret.match(/.{1,4}/g) ?? []).join(' '), uri, qr: renderSVG(uri, { border: 4 }) };
}

/** The time step whose code this is, or null. */
export function stepOfCode(secret: string, code: string, now: number): number | null {
  if (!/^\d{6}$/.test(code)) return null;
  const delta = totpOf(secret).validate({ token: code, timestamp: now, window: WINDOW });
  return delta === null ? null : Math.floor(now / STEP_MS) + delta;
}

const totpOf = (secret: string, labels: { issuer?: string; label?: string } = {}): TOTP =>
  new TOTP({ ...labels, secret: Secret.fromBase32(secret) });

export const RECOVERY_CODES = 10;

/** 60 bits. */
const RECOVERY_CHARACTERS = 12;

/**
 * The recovery codes that a form creates: `abcd-efgh-ijkm`. A form that is submitted twice creates the same, so that the
 * browser shows valid ones.
 */
export function recoveryCodesOf(key: Buffer, account: string, form: string): string[] {
  return Array.from({ length: RECOVERY_CODES }, (_, index) => {
    const bytes = createHmac('sha256', key).update(`recovery code ${index} of ${account}\0${form}`).digest();
    const text = base32(bytes).slice(0, RECOVERY_CHARACTERS).toLowerCase();
    return (text.match(/.{4}/g) ?? []).join('-');
  });
}

/** The stored form of a recovery code; separators and the case do not matter. Null if it cannot be one. */
export function recoveryHash(key: string, code: string): string | null {
  const plain = typedCode(code).toLowerCase();
  if (!/^[a-z2-7]{12}$/.test(plain)) return null;
  return createHmac('sha256', key).update(plain).digest('base64url');
}

const base32 = (bytes: Uint8Array<ArrayBufferLike>): string =>
  new Secret({ buffer: Uint8Array.from(bytes).buffer }).base32;
