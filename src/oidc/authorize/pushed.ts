import { type Clock, isUnexpired, SECOND } from '../../kernel/clock.js';
import { createEncryption } from '../../kernel/encryption.js';
import { newToken, type Random, sha256 } from '../../kernel/secrets.js';
import { atMost } from '../../throttle/throttle.js';
import { oidcErrors } from '../errors.js';
import type { PushedRequests } from '../store.js';
import { REQUEST_URI } from './request.js';
import type { Parameters } from './rules.js';

/** Authorization requests that clients have pushed (RFC 9126). Loaded with the first of them. */
export interface PushedAuthorization {
  /** Stores the parameters of a valid request. */
  push(clientId: string, parameters: Parameters): Promise<{ request_uri: string; expires_in: number }>;
  /** The parameters of a request, once. @throws invalid_request */
  take(clientId: string | undefined, requestUri: string): Promise<Parameters>;
}

/** Seconds from the request to the redirect of the browser. */
const LIFETIME_SECONDS = 90;

/** Requests from one address block for clients that cannot authenticate, so that a flood stores little. */
export const PUBLIC_PUSHES = atMost('par', 60, 60 * SECOND);

const PURPOSE = 'pushed authorization request';

export function createPushedAuthorization(
  requests: PushedRequests,
  { clock, random }: { clock: Clock; random: Random },
): PushedAuthorization {
  const encryptionWith = (requestUri: string) =>
    createEncryption({ keys: [requestUri], purpose: PURPOSE, unreadable: () => PURPOSE, random });

  return {
    async push(clientId, parameters) {
      const requestUri = newToken(random, REQUEST_URI);
      const expiresAt = clock.now() + LIFETIME_SECONDS * SECOND;
      const { request_uri: _, ...others } = parameters;
      // They may contain an id_token; the store has only the hash of the key.
      const text = encryptionWith(requestUri).encrypt(PURPOSE, JSON.stringify(others));
      await requests.insert({
        id: sha256(requestUri),
        clientId: sha256(clientId),
        parameters: text,
        expiresAt,
      });
      return { request_uri: requestUri, expires_in: LIFETIME_SECONDS };
    },

    async take(clientId, requestUri) {
      const life = { now: clock.now(), life: LIFETIME_SECONDS * SECOND };
      // The deletion decides between concurrent uses, in all processes together.
      const taken =
        clientId === undefined || requestUri.length > 256
          ? null
          : await requests.deleteOne({ id: sha256(requestUri), clientId: sha256(clientId) });
      if (!taken || !isUnexpired(taken.expiresAt, life))
        throw oidcErrors.invalid_request({
          message: 'request_uri is unknown, has expired, was used before or belongs to another client.',
        });
      return JSON.parse(encryptionWith(requestUri).decrypt(PURPOSE, taken.parameters)) as Parameters;
    },
  };
}
