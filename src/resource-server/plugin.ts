import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestAsyncHookHandler } from 'fastify';
import fp from 'fastify-plugin';
import type { AccessToken } from './access-token.js';
import { ResourceError } from './errors.js';
import { METADATA_HEADERS } from './metadata.js';
import {
  createResourceServer,
  type ProtectedRequest,
  type ResourceServerOptions,
  type TokenDemands,
} from './service.js';

/** The host's `fastify.protectedResource`. */
export interface ProtectedResourceDecorator {
  /**
   * A guard for routes: `{ onRequest: fastify.protectedResource.requireToken({ scopes: ['files:read'] }) }`. The handler
   * finds the token at `request.accessToken`. A later hook, such as `preHandler`, can demand more of the same token; a
   * function then sees the body.
   */
  requireToken(
    demands?: TokenDemands | ((request: FastifyRequest) => TokenDemands),
  ): onRequestAsyncHookHandler;
}

declare module 'fastify' {
  interface FastifyInstance {
    protectedResource: ProtectedResourceDecorator;
  }
  interface FastifyRequest {
    /** After `protectedResource.requireToken`; otherwise null. */
    accessToken: AccessToken | null;
  }
}

/** The options of the plugin. */
export interface ProtectResourceOptions extends ResourceServerOptions {
  /** The address that clients call, if a proxy changes the path. Default: the resource's origin and the path of the request. */
  urlOf?(request: FastifyRequest): string;
}

/**
 * Makes an application a protected resource of an identity provider: it verifies access tokens, answers with the
 * challenges of RFC 6750, 9449 and 9470, and serves its metadata (RFC 9728). Register it at the root of the host.
 *
 * @throws ConfigurationError naming every problem
 */
export const protectResource = fp(
  async (fastify: FastifyInstance, options: ProtectResourceOptions) => {
    const server = createResourceServer({
      onFailure: (err) => fastify.log.warn({ err }, 'the identity provider cannot be reached'),
      ...options,
    });
    const { origin } = new URL(options.resource);
    const urlOf = options.urlOf ?? (({ originalUrl }: FastifyRequest) => origin + originalUrl);

    fastify.decorateRequest('accessToken', null);
    fastify.decorate('protectedResource', {
      requireToken: (asked) => async (request, reply) => {
        const demands = typeof asked === 'function' ? asked(request) : asked;
        try {
          if (request.accessToken) server.require(request.accessToken, demands ?? {});
          else request.accessToken = await server.verify(readRequest(request.raw, urlOf(request)), demands);
        } catch (error) {
          if (!(error instanceof ResourceError)) throw error;
          return refuse(reply, error);
        }
      },
    } satisfies ProtectedResourceDecorator);

    fastify.get(server.metadataPath, async (_, reply) =>
      reply.headers(METADATA_HEADERS).send(server.metadata),
    );
    fastify.addHook('onClose', async () => server.close());
  },
  { fastify: '5.x', name: 'protect-resource' },
);

/** @param url as the client has called it */
export function readRequest({ method = '', rawHeaders }: IncomingMessage, url: string): ProtectedRequest {
  // In `headers`, Node joins or drops repeated ones, which would hide a second proof.
  const linesOf = (name: string) =>
    rawHeaders.filter((_, index) => index % 2 === 1 && rawHeaders[index - 1]?.toLowerCase() === name);
  const [authorization, dpop] = [linesOf('authorization'), linesOf('dpop')];
  return { method, url, authorization, dpop };
}

function refuse(reply: FastifyReply, error: ResourceError): FastifyReply {
  return reply
    .code(error.statusCode)
    .headers({ 'cache-control': 'no-store', ...error.headers })
    .send(error.body());
}
