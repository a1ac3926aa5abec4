import type { Test } from 'tap';
import type { Account, Answer, Call } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { type MailedApp, mailedApp } from '../auth/kit.js';

/** A backend with organizations, and people in them. */

export const INVITED = sentence('mail.organization-invitation.subject');

export interface Person extends Account {
  call(method: string, path: string, body?: object, more?: Call): Promise<Answer>;
}

export interface Place extends MailedApp {
  person(name: string): Promise<Person>;
  /** Creates an organization. */
  organize(owner: Person, name?: string): Promise<{ id: string; slug: string }>;
  /** Invites a person, who accepts. */
  join(by: Person, organization: string, person: Person, role?: string): Promise<void>;
}

export const ROLES = {
  admin: ['projects:write', 'projects:read'],
  member: ['projects:read'],
  accountant: ['billing:manage'],
  guest: [],
};

export async function place(t: Test, options: Parameters<typeof mailedApp>[1] = {}): Promise<Place> {
  const app = await mailedApp(t, {
    organizations: true,
    organizationRoles: ROLES,
    limits: false,
    ...options,
  });
  const { users } = app.server.fastify.saas;
  const person = async (name: string): Promise<Person> => {
    const account = await app.signUp({ email: `${name}@example.test`, name });
    await users.update({ id: account.id }, { emailVerified: true });
    return {
      ...account,
      call: (method, path, body, more) =>
        app.request(method, `/api${path}`, { token: account.accessToken, ...(body && { body }), ...more }),
    };
  };
  return {
    ...app,
    person,
    async organize(owner, name = 'Analytical Engines') {
      const { status, body } = await owner.call('POST', '/organizations', { name });
      t.equal(status, 201);
      return body.data.organization;
    },
    async join(by, organization, { email, call }, role = 'member') {
      const invited = await by.call('POST', `/organizations/${organization}/invitations`, { email, role });
      t.equal(invited.status, 201, invited.text);
      const accepted = await call('POST', '/user/invitations/accept', {
        id: invited.body.data.invitation.id,
      });
      t.equal(accepted.status, 200, accepted.text);
    },
  };
}
