import type { TSchema } from 'typebox';
import { personOf } from '../../core/http/identity.js';
import type { Messages } from '../../core/http/messages.js';
import { Acknowledgement, ok } from '../../core/http/schemas.js';
import { access, originOf, type Scope } from '../../core/http/scope.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';
import type { PasskeyFlows } from './flows.js';
import {
  AddBody,
  BegunAnswer,
  BODY_LIMIT,
  PasskeyAnswer,
  PasskeysAnswer,
  RemovalBody,
  RenameBody,
  SignInBody,
  SignUpBeginBody,
  SignUpBody,
} from './schemas.js';

export interface PasskeyPluginOptions<S> {
  flows: PasskeyFlows<S>;
  /** The schema of the response to a sign-in. */
  signInAnswer: TSchema;
  messages: Pick<Messages, 'negotiate'>;
}

/** Sign-in, sign-up and the passkeys of an account, for pages of the application. */
export async function passkeyPlugin<S>(scope: Scope, options: PasskeyPluginOptions<S>): Promise<void> {
  await signInRoutes(scope, options);
  await accountRoutes(scope, options);
}

async function signInRoutes<S>(
  scope: Scope,
  { flows, signInAnswer, messages }: PasskeyPluginOptions<S>,
): Promise<void> {
  const route = { config: access('public'), bodyLimit: BODY_LIMIT };

  scope.post('/auth/passkey/begin', { ...route, schema: { response: { 200: BegunAnswer } } }, async () =>
    ok(flows.beginSignIn()),
  );

  scope.post(
    '/auth/passkey',
    { ...route, schema: { body: SignInBody, response: { 200: signInAnswer } } },
    async (request) => ok(await flows.signIn(request.body, originOf(request))),
  );

  scope.post(
    '/auth/register/passkey/begin',
    {
      ...route,
      preValidation: rejectUnknownFields(SignUpBeginBody, 'is not a field of a registration'),
      schema: { body: SignUpBeginBody, response: { 200: BegunAnswer } },
    },
    async (request) => ok(flows.beginSignUp(request.body)),
  );

  scope.post(
    '/auth/register/passkey',
    { ...route, schema: { body: SignUpBody, response: { 201: signInAnswer, 202: Acknowledgement } } },
    async (request, reply) => {
      const signedIn = await flows.signUp(request.body, messages.negotiate(request), originOf(request));
      if (signedIn) return reply.code(201).send(ok(signedIn));
      const message = 'Follow the link in the e-mail that was sent to this address.';
      return reply.code(202).send({ success: true, message });
    },
  );
}

async function accountRoutes<S>(scope: Scope, { flows }: PasskeyPluginOptions<S>): Promise<void> {
  const recently = { config: access('recent-user'), bodyLimit: BODY_LIMIT };

  scope.get(
    '/user/passkeys',
    { config: access('user'), schema: { response: { 200: PasskeysAnswer } } },
    async (request) => ok({ passkeys: await flows.list(request.saas.user.id) }),
  );

  scope.post(
    '/user/passkeys/begin',
    { ...recently, schema: { response: { 200: BegunAnswer } } },
    async (request) => ok(await flows.beginAdding(personOf(request.saas))),
  );

  scope.post(
    '/user/passkeys',
    { ...recently, schema: { body: AddBody, response: { 201: PasskeyAnswer } } },
    async (request, reply) => {
      const added = await flows.add(personOf(request.saas), request.body, originOf(request));
      return reply.code(201).send(ok(added));
    },
  );

  // The ID is in the body: it can be longer than a path parameter.
  scope.post(
    '/user/passkeys/rename',
    { ...recently, schema: { body: RenameBody, response: { 200: Acknowledgement } } },
    async (request) => {
      const { id, name } = request.body;
      await flows.rename(request.saas.user.id, id, name, originOf(request));
      return { success: true } as const;
    },
  );

  scope.post(
    '/user/passkeys/remove',
    {
      config: access('user'),
      bodyLimit: BODY_LIMIT,
      schema: { body: RemovalBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await flows.remove(personOf(request.saas), request.body, originOf(request));
      return { success: true, message: 'The passkey has been removed.' } as const;
    },
  );
}
