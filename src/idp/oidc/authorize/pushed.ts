import { type Clock, HOUR, isUnexpired, SECOND } from '../../../core/kernel/clock.js';
import { createEncryption } from '../../../core/kernel/encryption.js';
import { newToken, type Random, sha256 } from '../../../core/kernel/secrets.js';
import type { Write } from '../../../core/storage/collection.js';
import { fixedWindow } from '../../../core/throttle/throttle.js';
import { oidcErrors } from '../errors.js';
import type { PushedRequestDocument, PushedRequests } from '../store.js';
import { type PushedRequest, REQUEST_URI, wasUsed } from './pushed-request.js';
import type { Parameters } from './rules.js';

/** Authorization requests that clients have pushed (RFC 9126). */

export interface OpenedRequest {
  parameters: Parameters;
  pushedAt: number;
}

/** Seconds from the request to the redirect of the browser. */
const LIFETIME_SECONDS = 90;

/** From the first visit of a browser: time to find a password, or to set up a second factor. */
const OPEN_LIFETIME_MS = HOUR;

/** Requests from one address block for clients that cannot authenticate, so that a flood stores little. */
export const PUBLIC_PUSHES = fixedWindow('par', 60, 60 * SECOND);

const PURPOSE = 'pushed authorization request';

export function createPushedAuthorization(
  requests: PushedRequests,
  { clock, random }: { clock: Clock; random: Random },
) {
  const encryptionWith = (requestUri: string) =>
    createEncryption({ keys: [requestUri], purpose: PURPOSE, unreadable: () => PURPOSE, random });

  const find = async (clientId: string | undefined, requestUri: string): Promise<PushedRequestDocument> => {
    const found =
      clientId === undefined || requestUri.length > 256
        ? null
        : await requests.findOne({ id: sha256(requestUri), clientId: sha256(clientId) });
    if (!found || !isUnexpired(found.expiresAt, { now: clock.now(), life: OPEN_LIFETIME_MS }))
      throw oidcErrors.invalid_request({
        message: 'request_uri is unknown, has expired, or belongs to another client.',
      });
    return found;
  };

  const read = ({ parameters, pushedAt }: PushedRequestDocument, requestUri: string): OpenedRequest => ({
    parameters: JSON.parse(encryptionWith(requestUri).decrypt(PURPOSE, parameters)) as Parameters,
    pushedAt,
  });

  return {
    /** Stores the parameters of a valid request. */
    async push(
      clientId: string,
      parameters: Parameters,
    ): Promise<{ request_uri: string; expires_in: number }> {
      const requestUri = newToken(random, REQUEST_URI);
      const now = clock.now();
      const { request_uri: _, ...others } = parameters;
      // They may contain an id_token; the store has only the hash of the key.
      const text = encryptionWith(requestUri).encrypt(PURPOSE, JSON.stringify(others));
      await requests.insert({
        id: sha256(requestUri),
        clientId: sha256(clientId),
        parameters: text,
        pushedAt: now,
        expiresAt: now + LIFETIME_SECONDS * SECOND,
      });
      return { request_uri: requestUri, expires_in: LIFETIME_SECONDS };
    },

    /** Opens a request in a browser, as often as it wants until a code is issued (RFC 9126 §4). @throws invalid_request */
    async open(clientId: string | undefined, requestUri: string): Promise<OpenedRequest> {
      const found = await find(clientId, requestUri);
      if (found.usedAt !== undefined) throw wasUsed();
      if (found.openedAt === undefined) {
        const openedAt = clock.now();
        const set = { openedAt, expiresAt: openedAt + OPEN_LIFETIME_MS };
        await requests.changeOne({ id: found.id, openedAt: null }, { set });
      }
      return read(found, requestUri);
    },

    /** The same for a form that was shown for it, which may be submitted twice. @throws invalid_request */
    resume: async (clientId: string | undefined, requestUri: string): Promise<OpenedRequest> =>
      read(await find(clientId, requestUri), requestUri),

    /** Ends it with its code, in the commit of that. A form that was shown for it may be submitted twice. */
    using: ({ requestUri, isForm }: PushedRequest): Write =>
      requests.changing(
        { id: sha256(requestUri), ...(!isForm && { usedAt: null }) },
        { set: { usedAt: clock.now() } },
      ),
  };
}
