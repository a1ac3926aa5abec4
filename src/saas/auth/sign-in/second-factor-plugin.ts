import { personOf } from '../../../core/http/identity.js';
import { access, type FastifyTypebox, requestSource } from '../../../core/http/routes.js';
import { Acknowledgement, ok, toTimestamp } from '../../../core/http/schemas.js';
import type { SecondFactors } from '../dependencies.js';
import { authErrors } from '../errors.js';
import {
  BODY_LIMIT,
  ChallengeBody,
  ChallengeCodeBody,
  CodeBody,
  EnrolledSignInAnswer,
  EnrolmentAnswer,
  FactorAnswer,
  FactorRemovalBody,
  RecoveryCodesAnswer,
  SignInAnswer,
} from '../schemas.js';
import type { Reauthentication } from './reauthentication.js';
import type { SecondFactorStep } from './second-factor.js';

export interface SecondFactorPluginOptions {
  auth: Reauthentication;
  step: SecondFactorStep;
  secondFactors: SecondFactors;
}

/** The second factor of a sign-in, and of the caller's account. */
export async function secondFactorPlugin(
  fastify: FastifyTypebox,
  options: SecondFactorPluginOptions,
): Promise<void> {
  await signInRoutes(fastify, options);
  await accountRoutes(fastify, options);
}

/** Routes that continue a sign-in with the challenge of its response. */
async function signInRoutes(fastify: FastifyTypebox, { step }: SecondFactorPluginOptions): Promise<void> {
  const route = { config: access('public'), bodyLimit: BODY_LIMIT };

  fastify.post(
    '/auth/second-factor',
    { ...route, schema: { body: ChallengeCodeBody, response: { 200: SignInAnswer } } },
    async (request) => ok(await step.complete(request.body, requestSource(request))),
  );

  fastify.post(
    '/auth/second-factor/begin',
    { ...route, schema: { body: ChallengeBody, response: { 200: EnrolmentAnswer } } },
    async (request) => ok(await step.begin(request.body.challenge, requestSource(request))),
  );

  fastify.post(
    '/auth/second-factor/confirm',
    { ...route, schema: { body: ChallengeCodeBody, response: { 200: EnrolledSignInAnswer } } },
    async (request) => ok(await step.confirm(request.body, requestSource(request))),
  );
}

/** Routes of the caller's account. */
async function accountRoutes(
  fastify: FastifyTypebox,
  { auth, secondFactors }: SecondFactorPluginOptions,
): Promise<void> {
  const recently = { config: access('recent-user', { changesFactors: true }), bodyLimit: BODY_LIMIT };

  fastify.get(
    '/user/second-factor',
    { config: access('user'), schema: { response: { 200: FactorAnswer } } },
    async (request) => {
      const { id } = request.saas.user;
      const [state, requiredFrom] = await Promise.all([
        secondFactors.stateOf(id),
        secondFactors.requiredFrom(id),
      ]);
      return ok({
        enrolledAt: state && toTimestamp(state.since),
        recoveryCodesLeft: state?.recoveryCodesLeft ?? 0,
        requiredFrom: requiredFrom === null ? null : toTimestamp(requiredFrom),
      });
    },
  );

  fastify.post(
    '/user/second-factor/begin',
    { ...recently, schema: { response: { 200: EnrolmentAnswer } } },
    async (request) => {
      const { id, email, emailVerified } = request.saas.user;
      // A registration with another person's address must not set up a factor, which would lock the owner out.
      if (!emailVerified) throw authErrors.EMAIL_NOT_VERIFIED();
      return ok(await secondFactors.begin(id, email));
    },
  );

  fastify.post(
    '/user/second-factor/confirm',
    { ...recently, schema: { body: CodeBody, response: { 200: RecoveryCodesAnswer } } },
    async (request) => {
      const { user, session } = personOf(request.saas);
      const { code } = request.body;
      const form = `${session.id} ${code}`;
      const recoveryCodes = await secondFactors.confirm(user.id, code, form, requestSource(request));
      if (!recoveryCodes) throw authErrors.INVALID_CODE();
      return ok({ recoveryCodes });
    },
  );

  fastify.post(
    '/user/second-factor/recovery-codes',
    { ...recently, schema: { body: CodeBody, response: { 200: RecoveryCodesAnswer } } },
    async (request) => {
      const { user, session } = personOf(request.saas);
      const { code } = request.body;
      const source = requestSource(request);
      if (!(await secondFactors.verify(user.id, code, source))) throw authErrors.INVALID_CODE();
      const form = `${session.id} ${code}`;
      return ok({ recoveryCodes: await secondFactors.renewRecoveryCodes(user.id, form, source) });
    },
  );

  fastify.post(
    '/user/second-factor/remove',
    {
      config: access('user', { changesFactors: true }),
      bodyLimit: BODY_LIMIT,
      schema: { body: FactorRemovalBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      const { password, code } = request.body;
      const source = requestSource(request);
      await auth.proveOwner(personOf(request.saas), password, source);
      if (!(await secondFactors.verify(request.saas.user.id, code, source))) throw authErrors.INVALID_CODE();
      await secondFactors.remove(request.saas.user.id, source);
      return { success: true, message: 'The second factor has been removed.' } as const;
    },
  );
}
