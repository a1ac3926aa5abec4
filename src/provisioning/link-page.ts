import formbody from '@fastify/formbody';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isForm, type Pages } from '../http/pages.js';
import { access, originOf, type Scope } from '../http/scope.js';
import { AppError } from '../kernel/errors.js';
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

  const showForm = async (reply: FastifyReply, token: string, problems: string[], typed = '') => {
    const { principal, isInvitation } = await links.look(token);
    const isFirstOperator = principal === undefined;
    return pages.send(reply, 'invite', {
      title: isFirstOperator
        ? 'Create the first operator'
        : isInvitation
          ? 'Accept your invitation'
          : 'Choose a new password',
      isFirstOperator,
      isInvitation: isInvitation && !isFirstOperator,
      isReset: !isInvitation,
      handle: principal?.handle ?? typed,
      issuer: issuer(),
      action: `${mount()}/invite/${token}`,
      problems,
    });
  };

  scope.get('/invite/done', { config }, (_request, reply) =>
    pages.send(reply, 'invite-done', { title: 'Password set' }),
  );

  scope.get('/invite/:token', { config, schema: { params: LinkParameters } }, async (request, reply) => {
    const { token } = request.params;
    try {
      return await showForm(reply, token, []);
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
      const { password, password_confirm: confirmation, handle: chosen } = request.body;
      try {
        const principal = await links.accept(
          token,
          { password, confirmation, handle: chosen },
          originOf(request),
        );
        if (isForm(request)) return reply.redirect(`${mount()}/invite/done`, 303);
        const { sub, handle, kind } = principalView(principal);
        return reply.code(201).send({ sub, handle, kind });
      } catch (error) {
        if (!isForm(request) || !(error instanceof AppError)) throw error;
        const { statusCode } = error;
        // 400 and 409 are about the handle that the first operator chose.
        if (![400, 409, 422].includes(statusCode)) return showInvalidLink(pages, reply, error);
        return showForm(reply.code(statusCode), token, problemsOf(error), chosen);
      }
    },
  );
}

/** The same page for unknown, used and expired links. Other errors are thrown again. */
function showInvalidLink(pages: Pages, reply: FastifyReply, error: unknown): FastifyReply {
  if (!(error instanceof AppError) || (error.statusCode !== 404 && error.statusCode !== 410)) throw error;
  return pages.send(reply.code(error.statusCode), 'invite-dead', { title: 'Link expired' });
}

/** Whether another site sent the form. The token protects the account; this check is an additional defense. */
function isForeign({ headers }: FastifyRequest, own: string): boolean {
  const { 'sec-fetch-site': site, origin } = headers;
  return site === 'cross-site' || site === 'same-site' || (origin !== undefined && origin !== own);
}

const FIELDS: Record<string, string> = { password: 'The password', handle: 'The user name' };

function problemsOf({ message, details = [] }: AppError): string[] {
  const sentences = details.flatMap(({ path, message: problem }) => {
    const field = FIELDS[path];
    return field === undefined ? [] : [`${field} ${problem}.`];
  });
  return sentences.length > 0 ? sentences : [message];
}
