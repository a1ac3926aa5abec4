import type { TSchema } from 'typebox';
import { personOf } from '../../core/http/identity.js';
import type { Messages } from '../../core/http/messages.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Acknowledgement, ok } from '../../core/http/schemas.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';
import {
  AddBody,
  BegunAnswer,
  BODY_LIMIT,
  PasskeyAnswer,
  PasskeySignInBody,
  PasskeySignUpBody,
  PasskeysAnswer,
  PlainSignUpBeginBody,
  RemovalBody,
  RenameBody,
  SignUpBeginBody,
} from './schemas.js';
import type { PasskeyFlows } from './service.js';

export interface PasskeyPluginOptions {
  flows: PasskeyFlows;
  /** The schema of the response to a sign-in. */
  signInResponse: TSchema;
  messages: Pick<Messages, 'negotiate'>;
  /** Whether the host has declared fields of users. */
  hasUserFields: boolean;
}

/** Sign-in, sign-up and the passkeys of an account, for pages of the application. */
export async function passkeyPlugin(fastify: FastifyTypebox, options: PasskeyPluginOptions): Promise<void> {
  await signInRoutes(fastify, options);
  await accountRoutes(fastify, options);
}

async function signInRoutes(
  fastify: FastifyTypebox,
  { flows, signInResponse, messages, hasUserFields }: PasskeyPluginOptions,
): Promise<void> {
  const route = { config: access('public'), bodyLimit: BODY_LIMIT };
  const NewAccount = hasUserFields ? SignUpBeginBody : PlainSignUpBeginBody;

  fastify.post('/auth/passkey/begin', { ...route, schema: { response: { 200: BegunAnswer } } }, async () =>
    ok(flows.beginSignIn()),
  );

  fastify.post(
    '/auth/passkey',
    { ...route, schema: { body: PasskeySignInBody, response: { 200: signInResponse } } },
    async (request) => ok(await flows.signIn(request.body, requestSource(request))),
  );

  fastify.post(
    '/auth/register/passkey/begin',
    {
      ...route,
      preValidation: rejectUnknownFields(NewAccount, 'is not a field of a registration'),
      schema: { body: NewAccount, response: { 200: BegunAnswer } },
    },
    async (request) => ok(flows.beginSignUp(request.body)),
  );

  fastify.post(
    '/auth/register/passkey',
    {
      ...route,
      schema: { body: PasskeySignUpBody, response: { 201: signInResponse, 202: Acknowledgement } },
    },
    async (request, reply) => {
      const signedIn = await flows.signUp(request.body, messages.negotiate(request), requestSource(request));
      if (signedIn) return reply.code(201).send(ok(signedIn));
      const message = 'Follow the link in the e-mail that was sent to this address.';
      return reply.code(202).send({ success: true, message });
    },
  );
}

async function accountRoutes(fastify: FastifyTypebox, { flows }: PasskeyPluginOptions): Promise<void> {
  const recently = { config: access('recent-user', { changesFactors: true }), bodyLimit: BODY_LIMIT };

  fastify.get(
    '/user/passkeys',
    { config: access('user'), schema: { response: { 200: PasskeysAnswer } } },
    async (request) => ok({ passkeys: await flows.list(request.saas.user.id) }),
  );

  fastify.post(
    '/user/passkeys/begin',
    { ...recently, schema: { response: { 200: BegunAnswer } } },
    async (request) => ok(await flows.beginAdding(personOf(request.saas))),
  );

  fastify.post(
    '/user/passkeys',
    { ...recently, schema: { body: AddBody, response: { 201: PasskeyAnswer } } },
    async (request, reply) => {
      const added = await flows.add(personOf(request.saas), request.body, requestSource(request));
      return reply.code(201).send(ok(added));
    },
  );

  // The ID is in the body: it can be longer than a path parameter.
  fastify.post(
    '/user/passkeys/rename',
    { ...recently, schema: { body: RenameBody, response: { 200: Acknowledgement } } },
    async (request) => {
      const { id, name } = request.body;
      await flows.rename(request.saas.user.id, id, name, requestSource(request));
      return { success: true } as const;
    },
  );

  fastify.post(
    '/user/passkeys/remove',
    {
      config: access('user', { changesFactors: true }),
      bodyLimit: BODY_LIMIT,
      schema: { body: RemovalBody, response: { 200: Acknowledgement } },
    },
    async (request) => {
      await flows.remove(personOf(request.saas), request.body, requestSource(request));
      return { success: true, message: 'The passkey has been removed.' } as const;
    },
  );
}
