import type { FastifyReply, FastifyRequest } from 'fastify';
import { mountPath } from '../../../core/config/public-url.js';
import { longTime, message } from '../../../core/http/messages.js';
import type { Page } from '../../../core/http/pages.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { createFormTokens } from '../../../shared/console-kit/forms.js';
import { viewOfTarget } from '../authorize/pages.js';
import { isAgent, isSelfRegistered } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { FirstPartySignIn } from '../first-party-sign-in.js';
import { INTERVAL } from '../pending.js';
import { AnyForm } from '../schemas.js';
import type { OidcServices } from '../services.js';
import { authenticateClientOrAgent } from '../tokens/agents.js';
import { readCredentials, readResources } from '../tokens/request.js';
import { viewOf } from './details.js';
import { ApprovalDecisionBody, ApprovalParams, ApprovalResponse } from './schemas.js';
import type { ApprovalRequest, Approvals } from './service.js';

type User = NonNullable<Awaited<ReturnType<FirstPartySignIn['userOf']>>>;

/** The endpoint for agents (CIBA §7), and the page on which a person decides. */
export async function approvalsPlugin(
  fastify: FastifyTypebox,
  services: OidcServices & { approvals: Approvals },
): Promise<void> {
  const { approvals, signIn, pages, issuer, clock } = services;
  const { mustSignIn } = approvals;
  const config = access('public', { page: true });

  fastify.post(
    '/bc-authorize',
    { config: access('client'), schema: { body: AnyForm, response: { 200: ApprovalResponse } } },
    async (request, reply) => {
      const credentials = readCredentials(request);
      const agent = await authenticateClientOrAgent(credentials, services);
      if (!isAgent(agent))
        throw oidcErrors.unauthorized_client({
          message: 'Only agents ask for approvals, with their sub as client_id.',
        });
      const asked = { fields: credentials.body, resources: readResources(request.body) };
      const { code, expiresIn } = await approvals.begin(agent, asked, requestSource(request));
      reply.header('pragma', 'no-cache');
      return { auth_req_id: code, expires_in: expiresIn, interval: INTERVAL };
    },
  );

  fastify.get('/approve/:request', { config, schema: { params: ApprovalParams } }, async (request, reply) => {
    const open = await findOpen(request, reply, request.params.request);
    return open ? pages.send(reply, pageOf(open.found, open.user)) : reply;
  });

  fastify.post(
    '/approve/:request',
    { config, schema: { params: ApprovalParams, body: ApprovalDecisionBody } },
    async (request, reply) => {
      const { request: id } = request.params;
      const { form, decision } = request.body;
      const open = await findOpen(request, reply, id);
      if (!open) return reply;
      const { found, user } = open;
      if (!formsOf(user, id).isValid(form)) return pages.send(reply.code(403), pageOf(found, user));
      await approvals.decide(found, decision, user, requestSource(request).ip);
      // Another form may have been faster, or the request has ended in between.
      return sendOutcome(reply, await approvals.find(id, user.principal.id));
    },
  );

  /** The request that the person at the browser may decide now. `null` after another page, which is sent. */
  async function findOpen(request: FastifyRequest, reply: FastifyReply, id: string) {
    const user = await signIn.userOf(request);
    const found = user && (await approvals.find(id, user.principal.id));
    if (user && found?.stored.state === 'pending' && !(await mustSignIn(user))) return { found, user };
    if (user && found?.stored.state !== 'pending') await sendOutcome(reply, found ?? null);
    else await sendSignIn(request, reply, id, user ?? undefined);
    return null;
  }

  const formsOf = ({ token }: User, id: string) =>
    createFormTokens({ secret: `approval ${token} ${id}`, clock });

  const sendSignIn = (request: FastifyRequest, reply: FastifyReply, id: string, user?: User) =>
    signIn.sendSignIn(
      request,
      reply,
      {
        returnTo: /^apr_[0-9a-f]{32}$/.test(id) ? `/approve/${id}` : '/account',
        name: 'the page of an approval',
      },
      user?.principal.handle,
      user && [message('approval.sign-in')],
    );

  const sendOutcome = (reply: FastifyReply, found: ApprovalRequest | null): FastifyReply => {
    if (found?.stored.state === 'approved')
      return pages.send(reply, { template: 'approval-allowed', view: namesIn(found) });
    if (found?.stored.state === 'denied')
      return pages.send(reply, { template: 'approval-denied', view: namesIn(found) });
    return pages.send(reply.code(404), { template: 'approval-gone', view: {} });
  };

  const namesIn = ({ agent, target }: ApprovalRequest) => ({
    agentName: agent.name ?? agent.handle,
    resourceName: target.resource.name,
  });

  function pageOf(request: ApprovalRequest, user: User): Page {
    const { stored, agent, target } = request;
    const { details, bindingMessage } = stored;
    return {
      template: 'approval',
      view: {
        action: `${mountPath(issuer())}/approve/${stored.id}`,
        form: formsOf(user, stored.id).issue(),
        handle: user.principal.handle,
        ...namesIn(request),
        agentHandle: agent.handle,
        isAgentUnverified: isSelfRegistered(agent),
        owner: agent.ownerName,
        purpose: agent.purpose,
        ...viewOfTarget(target, false),
        ...viewOf(details, target),
        bindingMessage,
        until: message('approval.until', { when: longTime(stored.expiresAt) }),
      },
    };
  }
}
