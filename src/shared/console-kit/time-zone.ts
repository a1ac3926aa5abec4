import type { FastifyReply, FastifyRequest } from 'fastify';
import { createCookie } from '../../core/http/cookies.js';
import { DAY, SECOND } from '../../core/kernel/clock.js';

/** The time zone in which pages show times: no request names it, so that operators choose it once for their browser. */

export const ZONES = ['UTC', ...Intl.supportedValuesOf('timeZone').filter((zone) => zone !== 'UTC')];
const LIFETIME_S = (400 * DAY) / SECOND;

export function createTimeZone(publicUrl: () => string) {
  const cookie = createCookie('console_time_zone', publicUrl);
  return {
    /** An IANA name such as `Europe/Berlin`; `UTC` until one is chosen. */
    of(request: Pick<FastifyRequest, 'headers'>): string {
      const chosen = cookie.read(request) ?? '';
      return ZONES.includes(chosen) ? chosen : 'UTC';
    },
    choose: (reply: FastifyReply, zone: string): void => cookie.set(reply, zone, LIFETIME_S),
  };
}
