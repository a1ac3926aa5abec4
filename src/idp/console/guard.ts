import type { FastifyReply, FastifyRequest } from 'fastify';
import { isTrustedOrigin } from '../../core/http/browser.js';
import { type Clock, isRecent, MINUTE } from '../../core/kernel/clock.js';
import type { FirstPartySignIn } from '../oidc/first-party-sign-in.js';
import { operatorErrors } from './errors.js';

/** How old the sign-in of an operator may be. */
const MAX_AUTHENTICATION_AGE_MS = 15 * MINUTE;

/** The path of the console, below that of the issuer. */
export const CONSOLE_PATH = '/admin';

type SignedIn = NonNullable<Awaited<ReturnType<FirstPartySignIn['userOf']>>>;

/**
 * Admits operators by their session only, so that no token and no cached password opens the console. A session is read on
 * each request: the console closes in every process as soon as the session or the role ends.
 */
export function createOperatorGuard({
  signIn,
  clock,
  issuer,
}: {
  signIn: FirstPartySignIn;
  clock: Clock;
  issuer(): string;
}) {
  const admitted = new WeakMap<FastifyRequest, SignedIn>();
  return {
    async guard(request: FastifyRequest, reply: FastifyReply) {
      const isChange = request.method !== 'GET' && request.method !== 'HEAD';
      if (isChange && !isTrustedOrigin(request.headers, [new URL(issuer()).origin]))
        throw operatorErrors.foreign_request();
      const user = await signIn.userOf(request);
      const now = clock.now();
      if (!user || !isRecent(user.session.authTime, { now, within: MAX_AUTHENTICATION_AGE_MS })) {
        const page = { returnTo: CONSOLE_PATH + pathBelow(request), name: 'the console' as const };
        signIn.sendSignIn(request, reply, page, user?.principal.handle);
        return reply;
      }
      const { kind, operatorSince } = user.principal;
      if (kind !== 'human' || operatorSince === undefined) throw operatorErrors.operators_only();
      admitted.set(request, user);
      return undefined;
    },

    /** The operator of a request that the guard has admitted. */
    operatorOf(request: FastifyRequest): SignedIn {
      const user = admitted.get(request);
      if (!user) throw new Error('The request was not admitted by the guard.');
      return user;
    },
  };
}

/** The page of a request below the console, or that of the form which it submits. Anything unusual becomes the start page. */
function pathBelow(request: FastifyRequest): string {
  const below = request.url.slice(request.server.prefix.length);
  const [path = ''] = below.split('?');
  const wanted = request.method === 'GET' ? below : path;
  return /^(?:[/?][\w\-.~%/?=&+:@!$'()*,;]*)?$/.test(wanted) ? wanted : '';
}
