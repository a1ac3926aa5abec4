import { createHmac } from 'node:crypto';
import { type Clock, HOUR, isUnexpired, toSeconds } from '../../core/kernel/clock.js';
import type { Encryption } from '../../core/kernel/encryption.js';
import type { Random } from '../../core/kernel/secrets.js';
import type { EndpointDocument } from './store.js';

/** Signatures of Standard Webhooks (symmetric, v1): https://www.standardwebhooks.com */

const PREFIX = 'whsec_';
const SECRET_BYTES = 32;

/** How long the previous secret signs beside a new one. */
export const PREVIOUS_SECRET_MS = 24 * HOUR;

export const newSecret = (random: Random): string => PREFIX + random.bytes(SECRET_BYTES).toString('base64');

/** A message, as it is signed. */
export interface SignedMessage {
  /** Without a full stop, which separates the parts. */
  id: string;
  body: string;
}

/** The headers of one attempt, with a signature for each of the secrets. */
export function signatureHeaders(
  { id, body }: SignedMessage,
  secrets: readonly string[],
  now: number,
): Record<string, string> {
  const timestamp = String(toSeconds(now));
  const signatures = secrets.map((secret) => {
    const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
    return `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64')}`;
  });
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
  };
}

/** The secrets that sign now, the current one first. @throws if no configured key has encrypted them */
export function openSecrets(
  { id, secret, previousSecret, previousSecretUntil = 0 }: EndpointDocument,
  { encryption, clock }: { encryption: Encryption; clock: Clock },
): string[] {
  const isOverlapping = isUnexpired(previousSecretUntil, { now: clock.now(), life: PREVIOUS_SECRET_MS });
  const stored = isOverlapping && previousSecret !== undefined ? [secret, previousSecret] : [secret];
  return stored.map((text) => encryption.decrypt(id, text));
}
