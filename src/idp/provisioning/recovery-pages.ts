import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { mountPath } from '../../core/config/public-url.js';
import { isFormOfOtherSite } from '../../core/http/browser.js';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { provisioningErrors } from './errors.js';
import type { Recovery } from './recovery.js';
import { ForgotPasswordBody, LinkParameters, VerificationBody } from './schemas.js';
import type { RouteServices } from './services.js';
import type { AddressVerification } from './verification.js';

export const FORM_LIMIT_BYTES = 16 * 1024;

const CONFIG = access('public', { page: true });

/** The pages for a forgotten password and behind the link that verifies an address. */
export async function recoveryPagesPlugin(fastify: FastifyTypebox, services: RouteServices): Promise<void> {
  const { recovery, verification, pages, issuer } = services;
  if (!recovery || !verification) {
    const unavailable = { template: 'forgot-password-unavailable', view: { issuer: issuer() } };
    fastify.get('/account/forgot-password', { config: CONFIG }, (_request, reply) =>
      pages.send(reply, unavailable),
    );
    return;
  }
  await fastify.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  await fastify.register(forgotPasswordPages, { ...services, recovery });
  await fastify.register(verificationPages, { ...services, verification });
}

/** @throws foreign_form */
export function rejectForeignForm({ headers }: FastifyRequest, issuer: string): void {
  if (isFormOfOtherSite(headers, new URL(issuer).origin)) throw provisioningErrors.foreign_form();
}

async function forgotPasswordPages(
  fastify: FastifyTypebox,
  { recovery, pages, issuer }: RouteServices & { recovery: Recovery },
): Promise<void> {
  const path = () => `${mountPath(issuer())}/account/forgot-password`;
  const formOf = (handle = ''): Page => ({ template: 'forgot-password', view: { action: path(), handle } });

  fastify.get('/account/forgot-password', { config: CONFIG }, (_request, reply) =>
    pages.send(reply, formOf()),
  );

  fastify.get('/account/forgot-password/sent', { config: CONFIG }, (_request, reply) =>
    pages.send(reply, { template: 'forgot-password-sent', view: { form: path() } }),
  );

  fastify.post(
    '/account/forgot-password',
    { config: CONFIG, schema: { body: ForgotPasswordBody } },
    async (request, reply) => {
      rejectForeignForm(request, issuer());
      // As at sign-in: keyboards with autocompletion append a space.
      const handle = request.body.handle.trim();
      pages.keepForm(request, formOf(handle));
      await recovery.forgotPassword(handle, requestSource(request));
      return reply.redirect(`${path()}/sent`, 303);
    },
  );
}

/** A GET never uses the link, because mail scanners open every link. */
async function verificationPages(
  fastify: FastifyTypebox,
  {
    verification,
    sessionOf,
    pages,
    issuer,
    hasAccountPages,
  }: RouteServices & { verification: AddressVerification },
): Promise<void> {
  const mount = () => mountPath(issuer());
  const forgotPassword = () => `${mount()}/account/forgot-password`;
  const wayOut = () => ({
    accountHref: hasAccountPages ? `${mount()}/account` : undefined,
    forgotPassword: forgotPassword(),
  });

  const formOf = async (request: FastifyRequest, token: string, problems?: Localized[]): Promise<Page> => {
    const { person } = await verification.look(token, request.method === 'POST');
    const { id, handle } = person;
    const isSignedIn = (await sessionOf(request))?.id === id;
    const view = {
      action: `${mount()}/verify/${token}`,
      handle,
      isSignedIn,
      forgotPassword: forgotPassword(),
      ...(problems && { problems, wrong: true }),
    };
    return { template: 'verify-address', view };
  };

  const showInvalidLink = (reply: FastifyReply, error: unknown): FastifyReply => {
    if (!(error instanceof AppError) || ![404, 410].includes(error.statusCode)) throw error;
    return pages.send(reply.code(error.statusCode), { template: 'verify-address-dead', view: wayOut() });
  };

  fastify.get('/verify/done', { config: CONFIG }, (_request, reply) =>
    pages.send(reply, { template: 'verify-address-done', view: wayOut() }),
  );

  fastify.get(
    '/verify/:token',
    { config: CONFIG, schema: { params: LinkParameters } },
    async (request, reply) => {
      try {
        return pages.send(reply, await formOf(request, request.params.token));
      } catch (error) {
        return showInvalidLink(reply, error);
      }
    },
  );

  fastify.post(
    '/verify/:token',
    { config: CONFIG, schema: { params: LinkParameters, body: VerificationBody } },
    async (request, reply) => {
      rejectForeignForm(request, issuer());
      const { token } = request.params;
      const { password } = request.body;
      try {
        const form = await formOf(request, token);
        pages.keepForm(request, form);
        const proof = { session: await sessionOf(request), password };
        await verification.verify(token, proof, requestSource(request));
        return reply.redirect(`${mount()}/verify/done`, 303);
      } catch (error) {
        if (!(error instanceof AppError) || error.statusCode !== 401) return showInvalidLink(reply, error);
        const problem = message(password === undefined ? 'password.missing' : 'verify-address.wrong');
        return pages.send(reply.code(401), await formOf(request, token, [problem]));
      }
    },
  );
}
