import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Identity } from '../auth/sessions.js';
import { commonHeaders, logFailure } from '../http/answers.js';
import type { RequestHeaders } from '../http/authorization.js';
import type { HostContext } from '../http/host-context.js';
import { createRequestIdGenerator } from '../http/host-context.js';
import { httpErrors, renderEnvelope, toAppError } from '../kernel/errors.js';
import type { Random } from '../kernel/secrets.js';
import type { SaasDecorator, UserGuard, UserRequest } from './decorator.js';

/** The guards of `fastify.saas` for applications that are not made with Fastify. */

// The place that Express's own types provide for fields like this.
declare global {
  namespace Express {
    interface Request {
      /** Who makes this request, behind `requireUser` and `requireEntitled`. */
      saas: Identity;
    }
  }
}

/** A request of `node:http`, and who makes it where a guard has let it pass. */
export type SaasRequest = IncomingMessage & { saas?: Identity };

/** Connect-style middleware that sets `request.saas` and hands the request on, or answers with an error. */
export type ConnectGuard = (
  request: SaasRequest,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/** What a server offers to the other routes of its application. The first call starts the backend if nothing else has. */
export interface ConnectGuards {
  /** Sets `request.saas` to the signed-in user and session, or answers 401. */
  readonly requireUser: ConnectGuard;
  /** The same for users who are entitled, to `plan` where one is named; answers 403 to others. */
  readonly requireEntitled: (plan?: string) => ConnectGuard;
  /**
   * The user and session behind an `Authorization: Bearer` header, for whatever is no middleware: WebSockets, `fetch`
   * handlers, server-side rendering. Takes the headers of Node or of `fetch`.
   * @throws AppError with `statusCode`, `code` and `headers`: UNAUTHENTICATED, TOKEN_EXPIRED, NOT_READY
   */
  readonly authenticate: SaasDecorator['authenticate'];
  /** As `fastify.saas.entitles`. */
  readonly entitles: SaasDecorator['entitles'];
}

export interface ConnectGuardDependencies {
  app: FastifyInstance;
  hostContext: HostContext;
  random: Random;
}

export function createConnectGuards({ app, hostContext, random }: ConnectGuardDependencies): ConnectGuards {
  const { lifecycle, publicUrl } = hostContext;
  let nextId: (() => string) | undefined;

  const ready = async (): Promise<SaasDecorator> => {
    if (lifecycle.draining) throw httpErrors.NOT_READY();
    await app.ready();
    return app.saas;
  };

  const refuse = (thrown: unknown, response: ServerResponse): void => {
    const error = toAppError(thrown);
    nextId ??= createRequestIdGenerator(random);
    const requestId = nextId();
    logFailure(app.log, error, { requestId });
    // The application has answered meanwhile, as a time-out does.
    if (response.headersSent) return;
    const { type, body } = renderEnvelope(error, requestId);
    const headers = {
      ...commonHeaders(publicUrl.get().startsWith('https:')),
      ...error.headers,
      'content-type': type,
      'content-length': Buffer.byteLength(body),
      'x-request-id': requestId,
    };
    response.writeHead(error.statusCode, headers).end(body);
  };

  const guarding =
    (guardOf: (saas: SaasDecorator) => UserGuard): ConnectGuard =>
    (request, response, next) => {
      publicUrl.observePort(request.socket?.localPort);
      ready().then(
        (saas) =>
          guardOf(saas)(request as UserRequest).then(
            () => next(),
            (error) => refuse(error, response),
          ),
        // Draining is an answer; what keeps the backend from starting is the application's to report.
        (error) => (lifecycle.draining ? refuse(error, response) : next(error)),
      );
    };

  return {
    requireUser: guarding((saas) => saas.requireUser),
    requireEntitled: (plan) => guarding((saas) => saas.requireEntitled(plan)),
    authenticate: async (headers: RequestHeaders) => (await ready()).authenticate(headers),
    entitles: async (userId, plan) => (await ready()).entitles(userId, plan),
  };
}
