import { addressBlock, UNKNOWN_ADDRESS } from '../kernel/addresses.js';
import { type Localized, longTime } from './messages.js';
import type { Origin } from './scope.js';

/** Where a request came from, as told to the holder of the account. Absent for a request of the operator. */
export type RequestOrigin = Pick<Origin, 'ip' | 'browser'> | undefined;

/**
 * When and from where a request was made, as values of a mail: never more than the address block and the family of the
 * browser.
 *
 * @param now Unix time in milliseconds
 */
export function circumstancesOf(origin: RequestOrigin, now: number): Record<string, string | Localized> {
  if (origin === undefined) return {};
  const ipAddress = addressBlock(origin.ip);
  const browser = origin.browser?.();
  return {
    when: longTime(now),
    ...(ipAddress !== UNKNOWN_ADDRESS && { ipAddress }),
    ...(browser !== undefined && { browser }),
  };
}

/** A device as its owner recognizes it: never more than the families of the browser and the system, and the address block. */
export interface Device {
  browser?: string;
  system?: string;
  place?: string;
}

export function deviceOf({ ip, browser, system }: Pick<Origin, 'ip' | 'browser' | 'system'>): Device {
  const [family, name, place] = [browser?.(), system?.(), addressBlock(ip)];
  return {
    ...(family !== undefined && { browser: family }),
    ...(name !== undefined && { system: name }),
    ...(place !== UNKNOWN_ADDRESS && { place }),
  };
}
