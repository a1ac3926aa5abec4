import type { FastifyRequest } from 'fastify';
import { mountPath } from '../../../core/config/public-url.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { oidcErrors } from '../errors.js';
import { AnyForm } from '../schemas.js';
import type { OidcServices } from '../services.js';
import { approveBasic } from './basic.js';
import { createBrowserResponses } from './browser.js';
import { consentPlugin } from './consent.js';
import { type FormChoice, REQUEST_URI } from './pushed-request.js';
import { parametersIn, readParameters, type ValidationResult } from './request.js';
import { sendResponse } from './response.js';
import { NOT_PUSHED } from './rules.js';
import { createInteractionForms, type SignInServices } from './sign-in/forms.js';
import { passkeyPlugin } from './sign-in/passkey.js';
import { passkeySignUpPlugin } from './sign-in/passkey-sign-up.js';
import { passwordPlugin } from './sign-in/password.js';
import { secondFactorPlugin } from './sign-in/second-factor.js';
import { signUpPlugin } from './sign-in/sign-up.js';

/** Longest request target; the form contains its parameters. */
const MAX_URL_BYTES = 8 * 1024;

/** The authorization endpoint: agents authenticate in the request itself, users in a form, once for all clients. */
export async function authorizePlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  const { pages, issuer, refusals } = services;
  const forms = createInteractionForms(services);
  const browser = createBrowserResponses(services, forms);

  fastify.addHook('onRequest', (_request, reply, done) => {
    reply.header('vary', 'Authorization, Cookie, Accept, Accept-Language');
    done();
  });

  // Many agents may share an address, so only their failures count (see `approveBasic`).
  const hasCredentials = ({ headers }: FastifyRequest) => headers.authorization !== undefined;
  const config = access('public', { page: true, unmetered: hasCredentials });
  // No HEAD route: it would run the handler and create a code.
  fastify.get('/authorize', { config, exposeHeadRoute: false }, async (request, reply) => {
    const validated = await validate(request, services);
    if ('error' in validated) {
      const { client, redirectUri, violation } = validated.error;
      const refusal = { clientId: client.id, redirectUri, reason: violation.description };
      await refusals.record(refusal, requestSource(request).ip);
      return forms.respondWithError(reply, validated.error, 302);
    }
    if (request.headers.authorization !== undefined) {
      return sendResponse(pages, reply, await approveBasic(services, validated.request, request), 302);
    }
    return browser.respond(validated.request, request, reply);
  });

  // Browsers send no cookie with a cross-site POST, so it is redirected to the same request with GET. URLs are kept in
  // histories and logs, so unsupported fields are left out.
  fastify.post(
    '/authorize',
    { config: access('public', { page: true }), schema: { body: AnyForm } },
    async (request, reply) =>
      reply.redirect(`${mountPath(issuer())}/authorize?${parametersIn(request.body)}`, 303),
  );

  await fastify.register(signInPlugin, { ...services, forms });
  await fastify.register(consentPlugin, { ...services, forms, browser });
}

/** The steps that prove who a person is, before the question what an application may have. */
async function signInPlugin(fastify: FastifyTypebox, services: SignInServices): Promise<void> {
  const { secondFactor, passkeys, passkeySignUp } = services;
  await fastify.register(passwordPlugin, services);
  await fastify.register(signUpPlugin, services);
  if (secondFactor) await fastify.register(secondFactorPlugin, { ...services, secondFactor });
  if (passkeys) await fastify.register(passkeyPlugin, { ...services, passkeys });
  if (passkeySignUp) await fastify.register(passkeySignUpPlugin, { ...services, passkeySignUp });
}

/** @throws uri_too_long, invalid_request */
async function validate(
  request: FastifyRequest,
  { authorization, pushed }: OidcServices,
): Promise<ValidationResult> {
  const { url } = request;
  if (url.length > MAX_URL_BYTES) throw oidcErrors.uri_too_long();
  const query = new URLSearchParams(url.includes('?') ? url.slice(url.indexOf('?')) : '');
  const given = readParameters(query);
  const { ip } = requestSource(request);
  const { client_id: clientId, request_uri: requestUri = '' } = given;
  if (!requestUri.startsWith(REQUEST_URI)) return requirePush(await authorization.validate(given, ip));
  // The other parameters of the address are ignored (RFC 9126 §4), except which form a link of the pages leads to.
  const { parameters, pushedAt } = await pushed.open(clientId, requestUri);
  const chosen = query.get('page');
  const page = parameters['prompt'] === 'none' ? undefined : FORMS.find((form) => form === chosen);
  const prompt = page && (page === 'sign-up' ? 'create' : 'login');
  return authorization.validate({ ...parameters, ...(prompt && { prompt }) }, ip, {
    requestUri,
    pushedAt,
    page,
  });
}

function requirePush(validated: ValidationResult): ValidationResult {
  if ('error' in validated || !validated.request.client.profile) return validated;
  return { error: { ...validated.request, violation: NOT_PUSHED } };
}

const FORMS: readonly FormChoice[] = ['sign-in', 'sign-up'];
