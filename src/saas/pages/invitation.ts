import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Localized, message } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import type { Invitations } from '../organizations/invitations.js';
import type { PageContext } from './context.js';
import { roleText } from './organization-views.js';
import { EmptyBody, InvitationQuery } from './schemas.js';

/** Below the account page. The link of an invitation appends its token. */
export const INVITATION_PAGE = '/organization/invitation';

const PROBLEMS: Readonly<Record<string, Localized>> = {
  INVITATION_INVALID: message('user-invitation.invalid'),
  INVITATION_OF_OTHER: message('user-invitation.other'),
  SEATS_TAKEN: message('user-invitation.seats'),
  TOO_MANY_MEMBERS: message('user-invitation.members'),
  TOO_MANY_ORGANIZATIONS: message('user-invitation.organizations'),
};

/** The page on which users accept the invitation of an organization. */
export async function invitationPlugin(
  fastify: FastifyTypebox,
  options: PageContext & { invitations: Invitations },
): Promise<void> {
  const { invitations, identityOf, pages, path, publicUrl } = options;
  const config = access('person', { page: true });

  fastify.get(
    INVITATION_PAGE,
    { config, schema: { querystring: InvitationQuery } },
    async (request, reply) => {
      const { token } = request.query;
      return send(request, reply, token, invitations.open(identityOf(request).user, token));
    },
  );

  fastify.post(
    INVITATION_PAGE,
    { config, schema: { querystring: InvitationQuery, body: EmptyBody } },
    async (request, reply) => {
      const { token } = request.query;
      const { user } = identityOf(request);
      const accepted = invitations.accept(user, { token }, requestSource(request));
      return send(
        request,
        reply,
        token,
        accepted.then(() => invitations.open(user, token)),
      );
    },
  );

  async function send(
    request: FastifyRequest,
    reply: FastifyReply,
    token: string,
    attempt: ReturnType<Invitations['open']>,
  ): Promise<FastifyReply> {
    const view = {
      action: `${path()}${INVITATION_PAGE}?token=${token}`,
      handle: identityOf(request).user.email,
      signOutHref: `${path()}/sign-out`,
      home: publicUrl(),
    };
    try {
      const { role, ...invitation } = await attempt;
      return pages.send(reply, {
        template: 'user-invitation',
        view: { ...view, invitation, role: roleText(role) },
      });
    } catch (error) {
      const problem = error instanceof AppError ? PROBLEMS[error.code] : undefined;
      if (problem === undefined) throw error;
      reply.code((error as AppError).statusCode);
      return pages.send(reply, { template: 'user-invitation', view: { ...view, problems: [problem] } });
    }
  }
}
