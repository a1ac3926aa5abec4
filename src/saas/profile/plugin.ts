import { Type } from 'typebox';
import { Envelope, OptionalName, ok, User } from '../../core/http/schemas.js';
import { access, type Scope } from '../../core/http/scope.js';
import { rejectUnknownFields } from '../../core/http/unknown-fields.js';

const ProfileAnswer = Envelope(User);

const ProfilePatch = Type.Object({ name: OptionalName }, { additionalProperties: false });

export interface ProfilePluginOptions {
  /** Changes the display name and returns the user; an empty name removes it. */
  rename(userId: string, name: string): Promise<User>;
}

/** The routes of the profile. */
export async function profilePlugin(scope: Scope, { rename }: ProfilePluginOptions): Promise<void> {
  scope.get(
    '/user/profile',
    {
      config: access('user', { agentScope: 'profile:read' }),
      schema: { response: { 200: ProfileAnswer } },
    },
    async (request) => ok(request.saas.user),
  );

  scope.patch(
    '/user/profile',
    {
      config: access('user'),
      preValidation: rejectUnknownFields(ProfilePatch, 'is not a profile field that can be changed'),
      schema: { body: ProfilePatch, response: { 200: ProfileAnswer } },
    },
    async (request) => ok(await rename(request.saas.user.id, request.body.name)),
  );
}
