import type { preValidationHookHandler } from 'fastify';
import { Type } from 'typebox';
import { Envelope, OptionalName, ok, User } from '../http/schemas.js';
import { access, type Scope } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';

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
      preValidation: rejectUnknownFields,
      schema: { body: ProfilePatch, response: { 200: ProfileAnswer } },
    },
    async (request) => ok(await rename(request.saas.user.id, request.body.name)),
  );
}

/** Limits of an error that repeats field names of the request. */
const MAX_LISTED_FIELDS = 20;
const MAX_NAME_LENGTH = 100;

/** Other routes ignore unknown fields, but a client that sends one here expects it to be stored. */
const rejectUnknownFields: preValidationHookHandler = ({ body }, _reply, done) => {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  const unknown = Object.keys(isObject ? body : {}).filter(
    (name) => !Object.hasOwn(ProfilePatch.properties, name),
  );
  const details = unknown.slice(0, MAX_LISTED_FIELDS).map((name) => ({
    path: name.slice(0, MAX_NAME_LENGTH),
    message: `is not a profile field that can be changed; allowed fields: ${Object.keys(ProfilePatch.properties).join(', ')}`,
  }));
  done(details.length > 0 ? httpErrors.VALIDATION_ERROR({ details }) : undefined);
};
