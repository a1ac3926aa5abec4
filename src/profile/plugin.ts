import { access, type Scope } from '../kernel/http.js';
import { ok, type User } from '../kernel/schemas.js';
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
    { config: access('user'), schema: { body: ProfilePatch, response: { 200: ProfileAnswer } } },
    async (request) => ok(await rename(request.saas.user.id, request.body.name)),
  );
}
