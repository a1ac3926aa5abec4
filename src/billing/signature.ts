import { createHmac, createSecretKey, type KeyObject, timingSafeEqual } from 'node:crypto';
import { toSeconds } from '../kernel/clock.js';

/**
 * The provider's webhook signature: `t=<seconds>,v1=<hex>[,v1=<hex>…]`, where v1 is the HMAC-SHA256 of
 * `<t>.<raw body>`. Verified here and not by the provider's SDK, which accepts times in the far future.
 */

/** A delivery is refused when its time differs from ours by more, in either direction. Seconds. */
const TOLERANCE = 300;

/** More signatures than any roll of secrets needs; the rest is not looked at. */
const MOST_SIGNATURES = 16;

export interface SignatureVerifier {
  /** The signature that matched, or `null`. `now` in epoch milliseconds. */
  verify(header: string | undefined, rawBody: Buffer, now: number): string | null;
}

/** @param secrets every secret that the provider may sign with; none may be empty */
export function createSignatureVerifier(secrets: readonly string[]): SignatureVerifier {
  const keys = secrets.map((secret) => createSecretKey(Buffer.from(secret)));
  return {
    verify(header, rawBody, now) {
      const signed = parse(header);
      if (!signed || Math.abs(toSeconds(now) - Number(signed.time)) > TOLERANCE) return null;
      const expected = keys.map((key) => sign(key, signed.time, rawBody));
      // Every pair is compared, so that the time tells nothing about which one matched.
      const matching = signed.signatures.filter((candidate) => {
        const bytes = Buffer.from(candidate, 'hex');
        return expected.map((digest) => timingSafeEqual(digest, bytes)).includes(true);
      });
      return matching[0] ?? null;
    },
  };
}

function sign(key: KeyObject, time: string, rawBody: Buffer): Buffer {
  return createHmac('sha256', key).update(`${time}.`).update(rawBody).digest();
}

/** The time and the well-formed v1 signatures; `null` where there is not exactly one time. */
function parse(header: string | undefined): { time: string; signatures: string[] } | null {
  const pairs = (header ?? '').split(',', MOST_SIGNATURES + 1).map((pair) => pair.trim());
  const valuesOf = (key: string) =>
    pairs.flatMap((pair) => (pair.startsWith(`${key}=`) ? [pair.slice(key.length + 1)] : []));
  const [time, ...moreTimes] = valuesOf('t');
  if (time === undefined || moreTimes.length > 0 || !/^\d{1,12}$/.test(time)) return null;
  return { time, signatures: valuesOf('v1').filter((value) => /^[0-9a-f]{64}$/.test(value)) };
}
