import type { FastifyReply, FastifyRequest } from 'fastify';
import { isTrustedOrigin } from '../../core/http/browser.js';
import type { Identity } from '../../core/http/identity.js';
import { requestSource } from '../../core/http/routes.js';
import { MINUTE } from '../../core/kernel/clock.js';
import type { AuthService } from '../auth/service.js';
import type { SessionCookie } from '../auth/sessions/browser-sessions.js';
import type { SignedIn } from '../auth/sign-in/sign-in.js';
import { userPageErrors } from './errors.js';

/** The session of a browser in the cookie of the API, so that pages and an application at the same address share it. */
export type PageSessions = ReturnType<typeof createPageSessions>;

export function createPageSessions(accounts: AuthService, cookie: SessionCookie) {
  const endPrevious = async (request: FastifyRequest): Promise<void> => {
    const previous = cookie.read(request);
    if (previous !== undefined) await accounts.endSession(previous, requestSource(request));
  };

  return {
    /** The user of the session, whose refresh token is rotated when it is old enough. */
    async find(
      request: FastifyRequest,
      reply: FastifyReply,
    ): Promise<{ identity: Identity; hasPassword: boolean } | null> {
      const presented = cookie.read(request);
      const resumed =
        presented === undefined ? null : await accounts.resume(presented, requestSource(request));
      if (!resumed) return null;
      if (resumed.refreshToken !== presented) cookie.set(reply, resumed.refreshToken);
      return resumed;
    },

    /** Stores a new session in the browser, and ends the one that it replaces. */
    async start(request: FastifyRequest, reply: FastifyReply, { refreshToken }: SignedIn) {
      await endPrevious(request);
      cookie.set(reply, refreshToken);
    },

    async end(request: FastifyRequest, reply: FastifyReply) {
      await endPrevious(request);
      cookie.clear(reply);
    },

    /** Removes a session from the browser that has ended already. */
    forget: cookie.clear,
  };
}

/** Rejects forms of other sites, which could sign a browser in to another account. @throws FORM_REJECTED */
export function rejectForeignForm({ headers }: FastifyRequest, publicUrl: string): void {
  if (!isTrustedOrigin(headers, [new URL(publicUrl).origin])) throw userPageErrors.FORM_REJECTED();
}

/** Where a user continues after a sign-in. */
export interface Destination {
  href: string;
  /** Whether it is at another origin. */
  leadsElsewhere: boolean;
}

/**
 * An address of the application, or the account page for any other.
 *
 * @param returnTo a path, or an address at one of the `origins`
 */
export function destinationOf(
  returnTo: string | undefined,
  { publicUrl, origins, fallback }: { publicUrl: string; origins: readonly string[]; fallback: string },
): Destination {
  const own = new URL(publicUrl).origin;
  const url = returnTo !== undefined && URL.canParse(returnTo, own) ? new URL(returnTo, own) : null;
  if (!url || url.username || url.password) return { href: fallback, leadsElsewhere: false };
  // Relative, because in development the page may be open at another name of this machine.
  const path = url.pathname + url.search + url.hash;
  if (url.origin === own) return { href: path.startsWith('//') ? fallback : path, leadsElsewhere: false };
  return origins.includes(url.origin)
    ? { href: url.href, leadsElsewhere: true }
    : { href: fallback, leadsElsewhere: false };
}

/** How long a browser keeps the state of a sign-in. */
export const STATE_LIFETIME_MS = 10 * MINUTE;
