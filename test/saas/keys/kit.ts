import Fastify, { type FastifyInstance } from 'fastify';
import type { Test } from 'tap';
import { saasBackend } from '../../../src/saas/plugin.js';
import type { Answer } from '../../kit/app.js';
import { saasPluginOptions } from '../../kit/host.js';
import { countedRandom } from '../../kit/random.js';
import { type Person, type Place, place } from '../organizations/kit.js';

/** A backend with API keys, and an application on the same store whose routes state scopes. */

export const SECRET = /^sk_[\w-]{43}$/;

export interface Keyed extends Place {
  /** The application. */
  host: FastifyInstance;
  /** A request to the application. */
  send(token: string, route: string, headers?: Record<string, string>, from?: string): Promise<Sent>;
  /** Creates a key of the person, or of an organization, with all scopes. */
  create(by: Person, more?: object, organization?: string): Promise<{ id: string; secret: string }>;
}

export interface Sent {
  status: number;
  /** The code of an error. */
  code: string | undefined;
  // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
  body: any;
  headers: Record<string, unknown>;
}

export const ALL_SCOPES = ['files:read', 'profile:read', 'billing:read', 'billing:write'];

export const pathOf = (organization?: string): string =>
  organization === undefined ? '/user/keys' : `/organizations/${organization}/keys`;

export async function keyed(t: Test, options: Parameters<typeof place>[1] = {}): Promise<Keyed> {
  // Declares the scope, which the server itself knows of its own routes only.
  const app = await place(t, { apiKeys: true, ...options });
  const host = Fastify();
  t.teardown(() => host.close());
  await host.register(saasBackend, {
    ...saasPluginOptions(t),
    ...{ apiKeys: true, organizations: true, limits: false, databaseUri: app.databaseUri },
    ...{ clock: app.clock, random: countedRandom('host'), emailSmtpUrl: app.sink.url },
    organizationRoles: { member: ['projects:read'], admin: ['projects:read', 'projects:write'] },
    ...options,
  });
  const { requireUser, requireMember, requirePermission, requireEntitled, requireRecentAuth } = host.saas;
  const config = { agentScope: 'files:read' };
  const own = { onRequest: requireUser, config };
  host.get('/files', own, ({ saas }) => ({
    ...{ user: saas.user.id, key: saas.key, scopes: saas.scopes, isSession: saas.session !== null },
    ...{ actor: saas.actor, client: saas.client },
  }));
  host.get('/people', { onRequest: requireUser }, () => ({}));
  host.get('/team', { onRequest: requireMember(), config }, ({ saas }) => ({
    ...{ organization: saas.organization, key: saas.key },
  }));
  host.get('/:organization/team', { onRequest: requireMember(), config }, ({ saas }) => saas.organization);
  host.get('/team-people', { onRequest: requireMember() }, () => ({}));
  host.get('/admins', { onRequest: requireMember({ role: 'admin' }), config }, () => ({}));
  host.get('/projects', { onRequest: requirePermission('projects:write'), config }, () => ({}));
  const both = [requireMember(), requireUser];
  host.get('/both', { onRequest: both, config }, () => ({}));
  host.get('/mine', { onRequest: requireEntitled(), config }, () => ({}));
  host.get('/ours', { onRequest: requireEntitled(undefined, { of: 'organization' }), config }, () => ({}));
  host.get('/recent', { onRequest: requireRecentAuth(), config }, () => ({}));
  await host.ready();
  return {
    ...app,
    host,
    async send(token, route, headers = {}, from = '127.0.0.1') {
      const [method = '', url = ''] = route.split(' ');
      const answer = await host.inject({
        ...{ method: method as 'GET', url, remoteAddress: from },
        ...(method !== 'GET' && method !== 'DELETE' && { payload: {} }),
        headers: { ...(token !== '' && { authorization: `Bearer ${token}` }), ...headers },
      });
      const body = answer.body.startsWith('{') ? answer.json() : {};
      const code = answer.statusCode < 400 ? undefined : (body.error?.code ?? body.code);
      return { status: answer.statusCode, code, body, headers: answer.headers };
    },
    async create(by, more = {}, organization) {
      const given = { name: 'Nightly build', scopes: ALL_SCOPES, ...more };
      const answer = await host.inject({
        ...{ method: 'POST', url: `/api${pathOf(organization)}`, payload: given },
        headers: { authorization: `Bearer ${by.accessToken}` },
      });
      if (answer.statusCode !== 201) throw new Error(`${answer.statusCode} ${answer.body}`);
      const { key, secret } = answer.json().data;
      return { id: key.id, secret };
    },
  };
}

export const listed = (answer: Answer): { id: string }[] => answer.body.data.keys;
