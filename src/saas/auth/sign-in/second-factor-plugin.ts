import { personOf } from '../../../core/http/identity.js';
import { Acknowledgement, ok, toTimestamp } from '../../../core/http/schemas.js';
import { access, originOf, type Scope } from '../../../core/http/scope.js';
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
import type { AuthService } from '../service.js';
import type { SecondFactorStep, SecondFactors } from './second-factor.js';

export interface SecondFactorPluginOptions {
  auth: Pick<AuthService, 'proveOwner'>;
  step: SecondFactorStep;
  secondFactors: SecondFactors;
}

/** The second factor of a sign-in, and of the caller's account. */
export async function secondFactorPlugin(scope: Scope, options: SecondFactorPluginOptions): Promise<void> {
  await signInRoutes(scope, options);
  await accountRoutes(scope, options);
}

/** Routes that continue a sign-in with the challenge of its response. */
async function signInRoutes(scope: Scope, { step }: SecondFactorPluginOptions): Promise<void> {
  const route = { config: access('public'), bodyLimit: BODY_LIMIT };

  scope.post(
    '/auth/second-factor',
    { ...route, schema: { body: ChallengeCodeBody, response: { 200: SignInAnswer } } },
    async (request) => ok(await step.complete(request.body, originOf(request))),
  );

  scope.post(
    '/auth/second-factor/begin',
    { ...route, schema: { body: ChallengeBody, response: { 200: EnrolmentAnswer } } },
    async (request) => ok(await step.begin(request.body.challenge, originOf(request))),
  );

  scope.post(
    '/auth/second-factor/confirm',
    { ...route, schema: { body: ChallengeCodeBody, response: { 200: EnrolledSignInAnswer } } },
    async (request) => ok(await step.confirm(request.body, originOf(request))),
  );
}

/** Routes of the caller's account. */
async function accountRoutes(
  scope: Scope,
  { auth, secondFactors }: SecondFactorPluginOptions,
): Promise<void> {
  const recently = { config: access('recent-user'), bodyLimit: BODY_LIMIT };

  scope.get(
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

  scope.post(
    '/user/second-factor/begin',
    { ...recently, schema: { response: { 200: EnrolmentAnswer } } },
    async (request) => {
      const { id, email, emailVerified } = request.saas.user;
      // Whoever registered the address of somebody else must not set up a factor that keeps its owner out.
      if (!emailVerified) throw authErrors.EMAIL_NOT_VERIFIED();
      return ok(await secondFactors.begin(id, email));
    },
  );

  scope.post(
    '/user/second-factor/confirm',
    { ...recently, schema: { body: CodeBody, response: { 200: RecoveryCodesAnswer } } },
    async (request) => {
      const { user, session } = personOf(request.saas);
      const { code } = request.body;
      const form = `${session.id} ${code}`;
      const recoveryCodes = await secondFactors.confirm(user.id, code, form, originOf(request));
      if (!recoveryCodes) throw authErrors.INVALID_CODE();
      return ok({ recoveryCodes });
    },
  );

  scope.post(
    '/user/second-factor/recovery-codes',
    { ...recently, schema: { body: CodeBody, response: { 200: RecoveryCodesAnswer } } },
    async (request) => {
      const { user, session } = personOf(request.saas);
      const { code } = request.body;
      const origin = originOf(request);
      if (!(await secondFactors.verify(user.id, code, origin))) throw authErrors.INVALID_CODE();
      const form = `${session.id} ${code}`;
      return ok({ recoveryCodes: await secondFactors.renewRecoveryCodes(user.id, form, origin) });
    },
  );

  scope.post(
    '/user/second-factor/remove',
    {
      config: access('user'),
      bodyLimit: BODY_LIMIT,
      schema: { body: FactorRemovalBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      const { password, code } = request.body;
      const origin = originOf(request);
      await auth.proveOwner(personOf(request.saas), password, origin);
      if (!(await secondFactors.verify(request.saas.user.id, code, origin))) throw authErrors.INVALID_CODE();
      await secondFactors.remove(request.saas.user.id, origin);
      return { success: true, message: 'The second factor has been removed.' } as const;
    },
  );
}
