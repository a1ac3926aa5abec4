import type { IncomingMessage } from 'node:http';
import type {
  FastifyReply,
  FastifyRequest,
  onRequestHookHandler,
  preSerializationHookHandler,
  preValidationHookHandler,
  RouteOptions,
} from 'fastify';
import { isTrustedOrigin } from '../../../core/http/browser.js';
import { createMarkedCookie } from '../../../core/http/cookies.js';
import type { Identity } from '../../../core/http/identity.js';
import { type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { type AppError, invalidFields } from '../../../core/kernel/errors.js';
import type { BackgroundTasks } from '../../../core/ops/background-tasks.js';
import { authErrors } from '../errors.js';
import type { SessionService } from './sessions.js';
import type { SessionTokens } from './tokens.js';

/**
 * Asks for a session whose refresh token is in a cookie. Pages of other origins cannot send it without a CORS preflight,
 * so a request without it never uses the cookie.
 */
const SESSION_MODE = 'session-mode';

/** The cookie that contains the refresh token of a session. */
export type SessionCookie = ReturnType<typeof createSessionCookie>;

/** @param maxAge of a session, in seconds */
export function createSessionCookie(
  { forCookie }: Pick<SessionTokens, 'forCookie'>,
  publicUrl: () => string,
  maxAge: number,
) {
  const { read, set, clear } = createMarkedCookie('saas-session', 'saas-signed-in', publicUrl);
  return {
    read,
    clear,
    set: (reply: FastifyReply, refreshToken: string): void => set(reply, forCookie(refreshToken), maxAge),
  };
}

export interface BrowserSessionOptions {
  cookie: SessionCookie;
  /** The origins of pages that may use the cookie. */
  origins(): readonly string[];
  endSession: SessionService['endSession'];
  readSession: SessionService['readSession'];
  backgroundTasks: BackgroundTasks;
}

/** The part of a request that says who has sent it, of Fastify, Express or `node:http`. */
export type PageRequest = Pick<IncomingMessage, 'method' | 'headers'> & {
  socket?: { localPort?: number | undefined };
};

export type BrowserSessions = ReturnType<typeof createBrowserSessions>;

export function createBrowserSessions(options: BrowserSessionOptions) {
  const { cookie, origins, endSession, readSession, backgroundTasks } = options;

  const usesCookie = ({ headers }: FastifyRequest): boolean => headers[SESSION_MODE] !== undefined;

  /** The reason to reject a request that uses the cookie. */
  const problemOf = ({ headers }: FastifyRequest): AppError | undefined => {
    if (headers[SESSION_MODE] !== 'cookie')
      return invalidFields({ path: SESSION_MODE, message: 'The header must be absent or: cookie.' });
    return isTrustedOrigin(headers, origins()) ? undefined : authErrors.ORIGIN_NOT_ALLOWED();
  };

  const validateMode: onRequestHookHandler = (request, _reply, done) =>
    done(usesCookie(request) ? problemOf(request) : undefined);

  const readToken =
    ({ isRequired }: { isRequired: boolean }): preValidationHookHandler =>
    (request, _reply, done) => {
      const { body } = request;
      const needsToken = usesCookie(request) && isObject(body) && body['refreshToken'] === undefined;
      const refreshToken = needsToken ? cookie.read(request) : undefined;
      if (refreshToken !== undefined) request.body = { ...(body as object), refreshToken };
      done(
        needsToken && isRequired && refreshToken === undefined
          ? authErrors.INVALID_REFRESH_TOKEN()
          : undefined,
      );
    };

  /** The session that a new one replaces in this browser would otherwise stay valid until it expires. */
  const endReplaced = (request: FastifyRequest): void => {
    const replaced = cookie.read(request);
    if (replaced === undefined) return;
    backgroundTasks.run('replaced-session', () => endSession(replaced, requestSource(request)));
  };

  const moveToken =
    ({ isSignIn }: { isSignIn: boolean }): preSerializationHookHandler<Payload> =>
    (request, reply, payload, done) => {
      if (!usesCookie(request) || payload.data?.refreshToken === undefined) return done(null, payload);
      const { refreshToken, ...data } = payload.data;
      if (isSignIn) endReplaced(request);
      cookie.set(reply, refreshToken);
      return done(null, { ...payload, data });
    };

  const clearAfterLogout: preSerializationHookHandler<Payload> = (request, reply, payload, done) => {
    const { scope: ended } = request.body as { scope?: string };
    if (usesCookie(request) && ended !== 'others') cookie.clear(reply);
    done(null, payload);
  };

  return {
    /** The token of a request that uses the cookie and may. @throws VALIDATION_ERROR, ORIGIN_NOT_ALLOWED */
    tokenIn(request: FastifyRequest): string | undefined {
      if (!usesCookie(request)) return undefined;
      const problem = problemOf(request);
      if (problem) throw problem;
      return cookie.read(request);
    },

    /** The session of the browser that opens a page of ours or sends its form; null also for the form of another origin. */
    async ofPage(request: PageRequest): Promise<Identity | null> {
      // Mail programs on the web lead here from another site.
      const isOwn = request.method === 'GET' || isTrustedOrigin(request.headers, origins());
      return readSession({ authorization: undefined, cookie: isOwn ? cookie.read(request) : undefined });
    },

    /**
     * Keeps the refresh token of a session in a cookie for clients that send `Session-Mode: cookie`, on every route of the context
     * whose schema has a refresh token in its response or body.
     */
    keepRefreshTokens(fastify: FastifyTypebox): void {
      fastify.addHook('onRoute', (route) => {
        const { issues, takes, isRequired } = refreshTokensOf(route);
        if (!issues && !takes) return;
        route.onRequest = [route.onRequest ?? [], validateMode].flat();
        if (takes) route.preValidation = [route.preValidation ?? [], readToken({ isRequired })].flat();
        const after = issues ? moveToken({ isSignIn: !takes }) : clearAfterLogout;
        route.preSerialization = [
          route.preSerialization ?? [],
          after as preSerializationHookHandler<unknown>,
        ].flat();
      });
    },
  };
}

interface Payload {
  data?: { refreshToken?: string };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

interface ObjectSchema {
  properties?: Record<string, ObjectSchema>;
  required?: string[];
}

/** Whether a refresh token is part of the response and the body of a route. */
function refreshTokensOf({ schema }: RouteOptions): { issues: boolean; takes: boolean; isRequired: boolean } {
  const responses = Object.values((schema?.response ?? {}) as Record<string, ObjectSchema>);
  const body = schema?.body as ObjectSchema | undefined;
  return {
    issues: responses.some(({ properties }) => properties?.['data']?.properties?.['refreshToken']),
    takes: body?.properties?.['refreshToken'] !== undefined,
    isRequired: body?.required?.includes('refreshToken') ?? false,
  };
}
