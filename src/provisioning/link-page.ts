import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../http/messages.js';
import { isForm, type Page, type Pages } from '../http/pages.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
import { passwordSentences } from '../passwords/problems.js';
import { provisioningErrors } from './errors.js';
import type { Links } from './links.js';
import { LinkBody, LinkParameters, principalView } from './schemas.js';

export interface LinkPageOptions {
  links: Pick<Links, 'look' | 'accept'>;
  pages: Pages;
  issuer(): string;
}

const FORM_LIMIT_BYTES = 16 * 1024;

/** The page behind an invitation or a reset, where a user sets a password. Only the POST uses the link. */
export async function linkPagePlugin(scope: Scope, { links, pages, issuer }: LinkPageOptions): Promise<void> {
  await scope.register(formbody, { bodyLimit: FORM_LIMIT_BYTES });
  /** The path of the issuer, which includes what a proxy adds. */
  const mount = () => new URL(issuer()).pathname.replace(/\/$/, '');
  const config = access('public', { page: true });

  const formOf = async (token: string, failure: Failure = {}): Promise<Page> => {
    const { principal, isInvitation } = await links.look(token);
    const view = {
      ...(!isInvitation && { title: message('reset-password.title') }),
      isInvitation,
      handle: principal.handle,
      issuer: issuer(),
      action: `${mount()}/invite/${token}`,
      ...failure,
    };
    return { template: 'invite', view };
  };

  scope.get('/invite/done', { config }, (_request, reply) => pages.send(reply, { template: 'invite-done' }));

  scope.get('/invite/:token', { config, schema: { params: LinkParameters } }, async (request, reply) => {
    const { token } = request.params;
    try {
      return pages.send(reply, await formOf(token));
    } catch (error) {
      return showInvalidLink(pages, reply, error);
    }
  });

  scope.post(
    '/invite/:token',
    { config, schema: { params: LinkParameters, body: LinkBody } },
    async (request, reply) => {
      if (isForeign(request, new URL(issuer()).origin)) throw provisioningErrors.foreign_form();
      const { token } = request.params;
      const { password, password_confirm: confirmation } = request.body;
      try {
        if (isForm(request)) pages.keepForm(request, await formOf(token));
        const principal = await links.accept(token, { password, confirmation }, originOf(request));
        if (isForm(request)) return reply.redirect(`${mount()}/invite/done`, 303);
        const { sub, handle, kind } = principalView(principal);
        return reply.code(201).send({ sub, handle, kind });
      } catch (error) {
        if (!isForm(request) || !(error instanceof AppError)) throw error;
        if (error.statusCode !== 422) return showInvalidLink(pages, reply, error);
        return pages.send(reply.code(422), await formOf(token, failureOf(error)));
      }
    },
  );
}

/** The same page for unknown, used and expired links. Other errors are thrown again. */
function showInvalidLink(pages: Pages, reply: FastifyReply, error: unknown): FastifyReply {
  if (!(error instanceof AppError) || (error.statusCode !== 404 && error.statusCode !== 410)) throw error;
  return pages.send(reply.code(error.statusCode), { template: 'invite-dead' });
}

/** Whether another site sent the form. The token protects the account; this check is an additional defense. */
function isForeign({ headers }: FastifyRequest, own: string): boolean {
  const { 'sec-fetch-site': site, origin } = headers;
  return site === 'cross-site' || site === 'same-site' || (origin !== undefined && origin !== own);
}

/** The problems of a rejected form, which stand at the first field, because both passwords have to be typed again. */
interface Failure {
  problems?: Localized[];
  wrong?: { password: true };
}

const failureOf = (error: AppError): Failure => ({
  problems: error.code === 'passwords_differ' ? [message('password.differ')] : passwordSentences(error),
  wrong: { password: true },
});
