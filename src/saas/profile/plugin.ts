import { Type } from 'typebox';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Closed, Envelope, OptionalName, ok, User, UserFieldsInput } from '../../core/http/schemas.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';
import type { UserDirectory } from '../auth/users/users.js';

const ProfileAnswer = Envelope(User);

const ProfilePatch = Closed({ name: OptionalName });
/** With the option `userFields`. */
const ProfilePatchWithFields = Closed({
  name: Type.Optional(OptionalName),
  fields: Type.Optional(UserFieldsInput),
});

/** The routes of the profile. */
export async function profilePlugin(
  fastify: FastifyTypebox,
  { changeProfile, hasUserFields }: Pick<UserDirectory, 'changeProfile'> & { hasUserFields: boolean },
): Promise<void> {
  fastify.get(
    '/user/profile',
    {
      config: access('user', { agentScope: 'profile:read' }),
      schema: { response: { 200: ProfileAnswer } },
    },
    async (request) => ok(request.saas.user),
  );

  const Patch = hasUserFields ? ProfilePatchWithFields : ProfilePatch;
  fastify.patch(
    '/user/profile',
    {
      config: access('user'),
      preValidation: rejectUnknownFields(Patch, 'is not a profile field that can be changed'),
      schema: { body: Patch, response: { 200: ProfileAnswer } },
    },
    async (request) => ok(await changeProfile(request.saas.user.id, request.body)),
  );
}
