import { addressBlock, UNKNOWN_ADDRESS } from '../kernel/addresses.js';
import { defined } from '../kernel/fields.js';
import { type Localized, longTime } from './messages.js';
import type { RequestSource } from './routes.js';

/** The client of a request, as a mail reports it to the owner of the account. Absent for a request of the operator. */
export type ReportedSource = Pick<RequestSource, 'ip' | 'browser'> | undefined;

/** What a mail reports of the source of a change: nothing of the operator, who is named by `by`. */
export const reportedSource = <S extends { by?: string | undefined }>(source: S): S | undefined =>
  source.by === undefined ? source : undefined;

/**
 * When and from where a request was made, as values of a mail: never more than the address block and the family of the
 * browser.
 *
 * @param now Unix time in milliseconds
 */
export function requestDetails(source: ReportedSource, now: number): Record<string, string | Localized> {
  if (source === undefined) return {};
  const ipAddress = addressBlock(source.ip);
  const browser = source.browser?.();
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

/** From where a user signs in. */
export type SessionSource = Pick<RequestSource, 'ip' | 'browser' | 'system'>;

export function deviceOf({ ip, browser, system }: SessionSource): Device {
  const block = addressBlock(ip);
  const place = block === UNKNOWN_ADDRESS ? undefined : block;
  return defined({ browser: browser?.(), system: system?.(), place });
}
