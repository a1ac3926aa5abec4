import type { FastifyRequest } from 'fastify';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { oidcErrors } from '../errors.js';
import type { Refusals } from '../refusals.js';
import { AnyForm } from '../schemas.js';
import { mountPath } from '../sessions.js';
import { type ApprovalOptions, createApproval } from './approval.js';
import { type BasicOptions, createBasic } from './basic.js';
import { type BrowserOptions, createBrowserResponses } from './browser.js';
import { type ConsentPluginOptions, consentPlugin } from './consent.js';
import type { PushedAuthorization } from './pushed.js';
import {
  type FormChoice,
  isParameter,
  REQUEST_URI,
  readParameters,
  type ValidationResult,
} from './request.js';
import { sendResponse } from './response.js';
import { createInteractionForms, type InteractionFormsOptions } from './sign-in/forms.js';
import { type SignInPluginOptions, signInPlugin } from './sign-in/plugin.js';

type BuiltHere = 'forms' | 'approval' | 'browser';

export type AuthorizePluginOptions = Omit<
  ApprovalOptions &
    BasicOptions &
    BrowserOptions &
    ConsentPluginOptions &
    InteractionFormsOptions &
    SignInPluginOptions,
  BuiltHere
> & {
  /** Requests that clients have pushed. */
  pushed(): Promise<PushedAuthorization>;
  refusals: Refusals;
};

/** Longest request target; the form contains its parameters. */
const MAX_URL_BYTES = 8 * 1024;

/** The authorization endpoint: agents authenticate in the request itself, users in a form, once for all clients. */
export async function authorizePlugin(
  fastify: FastifyTypebox,
  options: AuthorizePluginOptions,
): Promise<void> {
  const { authorization, pages, issuer, refusals } = options;
  const forms = createInteractionForms(options);
  const approval = createApproval(options);
  const approveBasic = createBasic({ ...options, approval });
  const browser = createBrowserResponses({ ...options, forms, approval });
  const config = access('public', { page: true });
  // Many agents may share an address, so only their failures count (see `createBasic`).
  const hasCredentials = ({ headers }: FastifyRequest) => headers.authorization !== undefined;
  const authorizeConfig = access('public', { page: true, unmetered: hasCredentials });

  fastify.addHook('onRequest', (_request, reply, done) => {
    reply.header('vary', 'Authorization, Cookie, Accept, Accept-Language');
    done();
  });

  // No HEAD route: it would run the handler and create a code.
  fastify.get('/authorize', { config: authorizeConfig, exposeHeadRoute: false }, async (request, reply) => {
    if (request.url.length > MAX_URL_BYTES) throw oidcErrors.uri_too_long();
    const query = queryOf(request.url);
    const given = readParameters(query);
    const { ip } = requestSource(request);
    const { client_id: clientId, request_uri: requestUri = '' } = given;
    const validated = requestUri.startsWith(REQUEST_URI)
      ? await validatePushed(clientId, requestUri, query.get('page'), ip)
      : await authorization.validate(given, ip);
    if ('error' in validated) {
      const { client, redirectUri, violation } = validated.error;
      await refusals.record({ clientId: client.id, redirectUri, reason: violation.description }, ip);
      return forms.respondWithError(reply, validated.error, 302);
    }
    if (request.headers.authorization !== undefined) {
      return sendResponse(pages, reply, await approveBasic(validated.request, request), 302);
    }
    return browser.respond(validated.request, request, reply);
  });

  // Browsers send no cookie with a cross-site POST, so it is redirected to the same request with GET.
  fastify.post('/authorize', { config, schema: { body: AnyForm } }, async (request, reply) => {
    const search = new URLSearchParams();
    for (const [name, values] of Object.entries(request.body)) {
      // URLs are kept in histories and logs, so unsupported fields are left out.
      if (!isParameter(name)) continue;
      for (const value of [values].flat()) search.append(name, value);
    }
    return reply.redirect(`${mountPath(issuer())}/authorize?${search}`, 303);
  });

  /** The other parameters of the address are ignored (RFC 9126 §4), except which form a link of the pages leads to. */
  async function validatePushed(
    clientId: string | undefined,
    requestUri: string,
    chosen: string | null,
    ip: string,
  ): Promise<ValidationResult> {
    const { parameters, pushedAt } = await (await options.pushed()).open(clientId, requestUri);
    const page = parameters['prompt'] === 'none' ? undefined : FORMS.find((form) => form === chosen);
    const prompt = page && (page === 'sign-up' ? 'create' : 'login');
    return authorization.validate({ ...parameters, ...(prompt && { prompt }) }, ip, {
      requestUri,
      pushedAt,
      page,
    });
  }

  await fastify.register(signInPlugin, { ...options, forms });
  await fastify.register(consentPlugin, { ...options, forms, browser, approval });
}

const FORMS: readonly FormChoice[] = ['sign-in', 'sign-up'];

const queryOf = (url: string): URLSearchParams =>
  new URLSearchParams(url.includes('?') ? url.slice(url.indexOf('?')) : '');
