import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Closed, Envelope, OptionalName, ok, User } from '../../core/http/schemas.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';
import type { UserDirectory } from '../auth/users/users.js';

const ProfileAnswer = Envelope(User);

const ProfilePatch = Closed({ name: OptionalName });

/** The routes of the profile. */
export async function profilePlugin(fastify: FastifyTypebox, { rename }: UserDirectory): Promise<void> {
  fastify.get(
    '/user/profile',
    {
      config: access('user', { agentScope: 'profile:read' }),
      schema: { response: { 200: ProfileAnswer } },
    },
    async (request) => ok(request.saas.user),
  );

  fastify.patch(
    '/user/profile',
    {
      config: access('user'),
      preValidation: rejectUnknownFields(ProfilePatch, 'is not a profile field that can be changed'),
      schema: { body: ProfilePatch, response: { 200: ProfileAnswer } },
    },
    async (request) => ok(await rename(request.saas.user.id, request.body.name)),
  );
}
