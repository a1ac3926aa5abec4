import type { FastifyReply, FastifyRequest } from 'fastify';
import { message } from '../../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../../core/http/routes.js';
import { AMR } from '../../claims.js';
import type { Principal, SecondFactor } from '../../directory.js';
import { oidcErrors } from '../../errors.js';
import { SecondFactorBody } from '../../schemas.js';
import type { SignInRequest } from '../pages.js';
import type { SignInServices } from './forms.js';

/** The forms for the second factor and for its enrolment, which continue a sign-in with a password. */
export async function secondFactorPlugin(
  fastify: FastifyTypebox,
  { forms, secondFactor, directory, signInPages, pages }: SignInServices & { secondFactor: SecondFactor },
): Promise<void> {
  const config = access('public', { page: true });
  const schema = { body: SecondFactorBody };

  fastify.post('/authorize/second-factor', { config, schema }, async (request, reply) => {
    const { interaction: token, code } = request.body;
    const resumed = await resume(request, reply, token);
    if (!resumed) return reply;
    const { signInRequest, principal } = resumed;
    pages.keepForm(request, signInPages.secondFactor(signInRequest, { token }));
    if (await secondFactor.verify(principal.id, code, requestSource(request))) {
      return forms.complete(request, reply, signInRequest, principal, AMR.secondFactor);
    }
    return pages.send(reply.code(401), signInPages.secondFactor(signInRequest, { token, problems: WRONG }));
  });

  fastify.post('/authorize/second-factor/enrol', { config, schema }, async (request, reply) => {
    const { interaction: token, code } = request.body;
    const resumed = await resume(request, reply, token);
    if (!resumed) return reply;
    const { signInRequest, principal } = resumed;
    const { id, handle } = principal;
    const enrolment = await secondFactor.pending(id, handle);
    pages.keepForm(request, signInPages.secondFactorEnrolment(signInRequest, { token, enrolment }));
    const codes = await secondFactor.confirm(id, code, token, requestSource(request));
    if (codes) {
      await forms.enter(request, reply, signInRequest, principal, AMR.secondFactor);
      return pages.send(reply, signInPages.recoveryCodes(signInRequest, codes));
    }
    const form = { token, enrolment, problems: WRONG };
    return pages.send(reply.code(401), signInPages.secondFactorEnrolment(signInRequest, form));
  });

  /** What the sign-in is for and who has given the password, which an expired form asks for again. @throws login_rejected */
  async function resume(
    request: FastifyRequest,
    reply: FastifyReply,
    token: string,
  ): Promise<{ signInRequest: SignInRequest; principal: Principal } | null> {
    const resumed = await forms.resumeSignIn(request, reply, token, (signInRequest, renewed) =>
      signInPages.signIn(signInRequest, { ...renewed, handle: '' }),
    );
    if (!resumed) return null;
    const { signInRequest, proven } = resumed;
    const principal = proven ? await directory.findPrincipal(proven.id) : null;
    // Without a password before it, or after the account was disabled or the password changed.
    if (!principal || principal.epoch !== proven?.epoch) throw oidcErrors.login_rejected();
    return { signInRequest, principal };
  }
}

const WRONG = [message('second-factor.wrong')];
