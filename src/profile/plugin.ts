import type { preValidationHookHandler } from 'fastify';
import { ok, type User } from '../http/schemas.js';
import { access, type Scope } from '../http/scope.js';
import { httpErrors } from '../kernel/errors.js';
import { ProfileAnswer, ProfilePatch } from './schemas.js';

export interface ProfilePluginOptions {
  /** Changes the display name; an empty one removes it. Answers with the user after the change. */
  rename(userId: string, name: string): Promise<User>;
}

/** What users see and change of themselves. */
export async function profilePlugin(scope: Scope, { rename }: ProfilePluginOptions): Promise<void> {
  scope.get(
    '/user/profile',
    { config: access('user'), schema: { response: { 200: ProfileAnswer } } },
    async (request) => ok(request.saas.user),
  );

  scope.patch(
    '/user/profile',
    {
      config: access('user'),
      preValidation: refuseUnknownFields,
      schema: { body: ProfilePatch, response: { 200: ProfileAnswer } },
    },
    async (request) => ok(await rename(request.saas.user.id, request.body.name)),
  );
}

const MAX_LISTED = 20;
/** Characters of a name that a client chose. */
const MAX_NAME = 100;

/** Unknown fields of other bodies are dropped. A client that sends one here expects it to be stored. */
const refuseUnknownFields: preValidationHookHandler = ({ body }, _reply, done) => {
  const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
  const unknown = Object.keys(isObject ? body : {}).filter(
    (name) => !Object.hasOwn(ProfilePatch.properties, name),
  );
  const details = unknown.slice(0, MAX_LISTED).map((name) => ({
    path: name.slice(0, MAX_NAME),
    message: `is not a profile field that can be changed; allowed fields: ${Object.keys(ProfilePatch.properties).join(', ')}`,
  }));
  done(details.length > 0 ? httpErrors.VALIDATION_ERROR({ details }) : undefined);
};
