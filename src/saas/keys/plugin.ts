import { personOf } from '../../core/http/identity.js';
import { access, type FastifyTypebox, requestSource } from '../../core/http/routes.js';
import { Acknowledgement, ok } from '../../core/http/schemas.js';
import {
  BODY_LIMIT,
  CreatedKeyAnswer,
  KeyParams,
  KeysAnswer,
  KeysParams,
  NewKey,
  RotationBody,
} from './schemas.js';
import type { KeyService } from './service.js';

export interface KeyPluginOptions {
  service: KeyService;
  /** The ID of the named organization, if the user may manage its keys; absent without organizations. @throws AppError otherwise */
  managedBy: ((userId: string, named: string) => Promise<string>) | undefined;
}

/** The API keys of users and of organizations. Only people manage them. */
export async function keysPlugin(fastify: FastifyTypebox, options: KeyPluginOptions): Promise<void> {
  keyRoutes(fastify, '/user/keys', options);
  if (options.managedBy) keyRoutes(fastify, '/organizations/:organization/keys', options);
}

function keyRoutes(fastify: FastifyTypebox, path: string, { service, managedBy }: KeyPluginOptions): void {
  const user = { config: access('user'), bodyLimit: BODY_LIMIT };
  const recently = { config: access('recent-user'), bodyLimit: BODY_LIMIT };
  const ownerOf = async (userId: string, { organization }: { organization?: string }): Promise<string> =>
    organization !== undefined && managedBy ? managedBy(userId, organization) : userId;

  fastify.get(
    path,
    { ...user, schema: { params: KeysParams, response: { 200: KeysAnswer } } },
    async (request) => {
      const owner = await ownerOf(request.saas.user.id, request.params);
      return ok({ keys: await service.list(owner), availableScopes: [...service.scopes()] });
    },
  );

  fastify.post(
    path,
    { ...recently, schema: { params: KeysParams, body: NewKey, response: { 201: CreatedKeyAnswer } } },
    async (request, reply) => {
      const identity = personOf(request.saas);
      const owner = await ownerOf(identity.user.id, request.params);
      const created = await service.create({ identity, owner }, request.body, requestSource(request));
      return reply.code(201).send(ok(created));
    },
  );

  fastify.post(
    `${path}/:id/rotate`,
    { ...recently, schema: { params: KeyParams, body: RotationBody, response: { 201: CreatedKeyAnswer } } },
    async (request, reply) => {
      const identity = personOf(request.saas);
      const by = { identity, owner: await ownerOf(identity.user.id, request.params) };
      const created = await service.rotate(by, request.params.id, request.body, requestSource(request));
      return reply.code(201).send(ok(created));
    },
  );

  // Without a recent sign-in: a person who wants to stop a program must not be delayed.
  fastify.delete(
    `${path}/:id`,
    { ...user, schema: { params: KeyParams, response: { 200: Acknowledgement } } },
    async (request) => {
      const { id: subject } = request.saas.user;
      const owner = await ownerOf(subject, request.params);
      await service.end(owner, request.params.id, { subject, ip: requestSource(request).ip });
      return { success: true } as const;
    },
  );
}
