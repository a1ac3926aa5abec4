import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';
import type { Messages } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Acknowledgement, ok } from '../../core/http/schemas.js';
import { createSignInCookies, responseOf, TicketBody } from '../../core/outbound/provider-sign-in.js';
import {
  IdentitiesAnswer,
  IdentityAnswer,
  IdentityParams,
  ProviderParams,
  ProvidersAnswer,
  ResponseForm,
  StartQuery,
} from './schemas.js';
import type { Federation } from './service.js';

export interface FederationPluginOptions {
  federation: Federation;
  /** The schema of the response to a sign-in. */
  signInResponse: TSchema;
  messages: Messages;
  publicUrl(): string;
  /** The address of the callback of a provider. */
  callbackUrl(provider: string): string;
}

const FORM_LIMIT_BYTES = 16 * 1024;

/** Sign-in at other providers, and the connections of an account to them. */
export async function federationPlugin(
  fastify: FastifyTypebox,
  options: FederationPluginOptions,
): Promise<void> {
  await signInRoutes(fastify, options);
  await accountRoutes(fastify, options);
}

async function signInRoutes(
  fastify: FastifyTypebox,
  { federation, signInResponse, messages, publicUrl, callbackUrl }: FederationPluginOptions,
): Promise<void> {
  const page = access('public', { page: true });
  const cookies = createSignInCookies('saas-login', publicUrl);

  fastify.get(
    '/auth/providers',
    { config: access('public'), schema: { response: { 200: ProvidersAnswer } } },
    async () => ok({ providers: federation.providers() }),
  );

  fastify.get(
    '/auth/login/:provider',
    { config: page, schema: { params: ProviderParams, querystring: StartQuery } },
    async (request, reply) => {
      const { url, ...begun } = await federation.begin(request.params.provider, request.query);
      cookies.add(request, reply, begun);
      return reply.redirect(url, 303);
    },
  );

  const finish = async (
    provider: string,
    response: URL,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> => {
    const cookie = cookies.of(response);
    const target = await federation.finish(provider, response, cookie?.read(request));
    cookie?.clear(reply);
    return reply.redirect(target, 303);
  };

  fastify.get(
    '/auth/callback/:provider',
    { config: page, exposeHeadRoute: false, schema: { params: ProviderParams } },
    (request, reply) => {
      const { provider } = request.params;
      return finish(provider, responseOf(request, callbackUrl(provider)), request, reply);
    },
  );

  // Sign in with Apple submits a form (OAuth 2.0 Form Post Response Mode).
  await fastify.register(async (forms: FastifyTypebox) => {
    await forms.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
    forms.post(
      '/auth/callback/:provider',
      { config: page, schema: { params: ProviderParams, body: ResponseForm } },
      (request, reply) => {
        const { provider } = request.params;
        const response = new URL(callbackUrl(provider));
        response.search = new URLSearchParams(request.body as Record<string, string>).toString();
        // Browsers send no cookie with a form of another site, but with the request that a redirect makes of it.
        if (cookies.of(response)?.read(request) === undefined)
          return reply.redirect(response.pathname + response.search, 303);
        return finish(provider, response, request, reply);
      },
    );
  });

  fastify.post(
    '/auth/exchange',
    { config: access('public'), schema: { body: TicketBody, response: { 200: signInResponse } } },
    async (request) =>
      ok(await federation.exchange(request.body, messages.negotiate(request), requestSource(request))),
  );
}

async function accountRoutes(
  fastify: FastifyTypebox,
  { federation }: FederationPluginOptions,
): Promise<void> {
  const recently = access('recent-user', { changesFactors: true });

  fastify.get(
    '/user/identities',
    { config: access('user'), schema: { response: { 200: IdentitiesAnswer } } },
    async (request) => ok({ identities: await federation.list(request.saas.user.id) }),
  );

  fastify.post(
    '/user/identities',
    { config: recently, schema: { body: TicketBody, response: { 200: IdentityAnswer } } },
    async (request) => ok(await federation.connect(request.saas.user, request.body, requestSource(request))),
  );

  fastify.delete(
    '/user/identities/:id',
    { config: recently, schema: { params: IdentityParams, response: { 200: Acknowledgement } } },
    async (request) => {
      await federation.disconnect(request.saas.user.id, request.params.id, requestSource(request));
      return { success: true } as const;
    },
  );
}
