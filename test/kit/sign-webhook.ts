import { createHmac } from 'node:crypto';

/** The payment provider's signature over `body` at `time` (epoch milliseconds): `t=…,v1=…`. */
export function signWebhook(body: string | Buffer, secret: string, time: number): string {
  const seconds = Math.floor(time / 1000);
  return `t=${seconds},v1=${webhookDigest(body, secret, seconds)}`;
}

/** A single `v1` signature, for headers assembled by hand. */
export function webhookDigest(body: string | Buffer, secret: string, seconds: number | string): string {
  return createHmac('sha256', secret).update(`${seconds}.`).update(body).digest('hex');
}
