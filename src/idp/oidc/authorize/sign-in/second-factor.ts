import type { FastifyReply, FastifyRequest } from 'fastify';
import { message } from '../../../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../../../core/http/routes.js';
import { AMR } from '../../claims.js';
import type { SecondFactor } from '../../directory.js';
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

  fastify.post(
    '/authorize/second-factor',
    { config, schema: { body: SecondFactorBody } },
    async (request, reply) => {
      const { interaction: token, code } = request.body;
      const resumed = await resume(request, token);
      if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
      if ('expired' in resumed) return startAgain(request, reply, resumed.expired);
      const { signInRequest, principal } = resumed;
      pages.keepForm(request, signInPages.secondFactor(signInRequest, { token }));
      if (await secondFactor.verify(principal.id, code, requestSource(request))) {
        return forms.complete(request, reply, signInRequest, principal, AMR.secondFactor);
      }
      const problems = [message('second-factor.wrong')];
      return pages.send(reply.code(401), signInPages.secondFactor(signInRequest, { token, problems }));
    },
  );

  fastify.post(
    '/authorize/second-factor/enrol',
    { config, schema: { body: SecondFactorBody } },
    async (request, reply) => {
      const { interaction: token, code } = request.body;
      const resumed = await resume(request, token);
      if ('error' in resumed) return forms.respondWithError(reply, resumed.error, 303);
      if ('expired' in resumed) return startAgain(request, reply, resumed.expired);
      const { signInRequest, principal } = resumed;
      const { id, handle } = principal;
      const enrolment = await secondFactor.pending(id, handle);
      pages.keepForm(request, signInPages.secondFactorEnrolment(signInRequest, { token, enrolment }));
      const codes = await secondFactor.confirm(id, code, token, requestSource(request));
      if (codes) {
        await forms.enter(request, reply, signInRequest, principal, AMR.secondFactor);
        return pages.send(reply, signInPages.recoveryCodes(signInRequest, codes));
      }
      const problems = [message('second-factor.wrong')];
      const page = signInPages.secondFactorEnrolment(signInRequest, { token, enrolment, problems });
      return pages.send(reply.code(401), page);
    },
  );

  /** Asks for the password again, after a form was open for too long. */
  const startAgain = (
    request: FastifyRequest,
    reply: FastifyReply,
    signInRequest: SignInRequest,
  ): FastifyReply =>
    forms.renew(request, reply, signInRequest, (renewed) =>
      signInPages.signIn(signInRequest, { ...renewed, handle: '' }),
    );

  /** What the sign-in is for and who has given the password, or an error for the application. @throws login_rejected */
  async function resume(request: FastifyRequest, token: string) {
    const resumed = await forms.resumeSignIn(request, token);
    if ('error' in resumed) return resumed;
    const { signInRequest, proven, isExpired } = resumed;
    if (isExpired) return { expired: signInRequest };
    const principal = proven ? await directory.findPrincipal(proven.id) : null;
    // Without a password before it, or after the account was disabled or the password changed.
    if (!principal || principal.epoch !== proven?.epoch) throw oidcErrors.login_rejected();
    return { signInRequest, principal };
  }
}
