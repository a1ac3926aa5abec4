import { type Clock, isRecent, SECOND } from '../../kernel/clock.js';
import type { Directory } from '../model.js';

/** Whether a client, to which something was issued once, is still there. */
export type IsRegistered = (clientId: string) => Promise<boolean>;

/** How long a client that was found counts as there, in milliseconds. */
const FRESH = 5 * SECOND;

/** Clients that are remembered at once. */
const MOST = 10_000;

/** Looks each client up at most every five seconds, so that its tokens end with it and no request pays for that. */
export function createRegistrations(directory: Pick<Directory, 'findClient'>, clock: Clock): IsRegistered {
  const foundAt = new Map<string, number>();
  return async (clientId) => {
    const now = clock.now();
    const known = foundAt.get(clientId);
    if (known !== undefined && isRecent(known, { now, within: FRESH })) return true;
    foundAt.delete(clientId);
    if ((await directory.findClient(clientId)) === null) return false;
    if (foundAt.size >= MOST) foundAt.clear();
    foundAt.set(clientId, now);
    return true;
  };
}
