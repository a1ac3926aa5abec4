import { createServer as createHttpServer } from 'node:http';
import t, { type Test } from 'tap';
import { createServer } from '../../../src/saas/server.js';
import { auditOf, errorOf, PASSWORD, type SaasApp, saasApp, storeOf, testOptions } from '../../kit/app.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** Roles of users in the application. */

const userRoles = ['editor', 'support'];

function serverWith(t: Test, options: { userRoles: string[]; impersonationRoles?: string[] }) {
  const server = createServer({ ...testOptions(temporaryFolder(t)), ...options });
  t.teardown(() => server.stop());
  return server;
}

const withRoles = (t: Test): Promise<SaasApp> => saasApp(t, { userRoles });

const rolesOf = async (app: SaasApp, token: string) =>
  (await app.request('GET', '/api/auth/me', { token })).body.data.user.roles;

t.test('a guard admits users with the role, from the next request on', async (t) => {
  const { fastify } = serverWith(t, { userRoles });
  fastify.register(async (routes) => {
    await fastify.after();
    routes.get('/texts', { onRequest: fastify.saas.requireRole('editor') }, async (request) => ({
      roles: request.saas.user.roles,
    }));
  });
  await fastify.ready();
  const registered = await fastify.inject({
    method: 'POST',
    url: '/api/auth/register',
    payload: { email: 'ada@example.test', password: PASSWORD, roles: ['editor'] },
  });
  t.equal(registered.statusCode, 400, 'a registration takes none');
  const { accessToken } = (
    await fastify.inject({
      method: 'POST',
      url: '/api/auth/register',
      payload: { email: 'ada@example.test', password: PASSWORD },
    })
  ).json().data;
  const ask = async () => {
    const response = await fastify.inject({
      url: '/texts',
      headers: { authorization: `Bearer ${accessToken}` },
    });
    return [response.statusCode, response.json().message ?? response.json().roles];
  };
  const { users } = fastify.saas;
  t.same(await ask(), [403, 'This requires the role editor.']);
  await users.setRoles({ email: 'ada@example.test' }, ['support']);
  t.same(await ask(), [403, 'This requires the role editor.']);
  const changed = await users.setRoles({ email: 'ada@example.test' }, ['support', 'editor', 'editor']);
  t.same(changed.roles, userRoles, 'in the order of the option, each once');
  t.same(await ask(), [200, userRoles]);
  await users.setRoles({ email: 'ada@example.test' }, []);
  t.same(await ask(), [403, 'This requires the role editor.']);
  t.equal((await fastify.inject({ url: '/texts' })).statusCode, 401);
});

t.test(
  'a role that there is not prevents the start, and nothing else knows roles without the option',
  async (t) => {
    const app = await withRoles(t);
    const { saas } = app.server.fastify;
    t.throws(() => saas.requireRole('editr'), {
      message: /'editr' is not one .*editor, support\. Did you mean 'editor'\?/,
    });
    t.throws(() => serverWith(t, { userRoles }).requireRole('editr'), { message: /Did you mean 'editor'/ });
    const without = await saasApp(t);
    t.throws(() => without.server.fastify.saas.requireRole('editor'), {
      message: /needs the option 'userRoles'/,
    });
    const ada = await without.signUp();
    t.notOk(
      'roles' in (await without.request('GET', '/api/auth/me', { token: ada.accessToken })).body.data.user,
    );
    await t.rejects(without.server.fastify.saas.users.setRoles({ id: ada.id }, ['editor']), {
      code: 'VALIDATION_ERROR',
    });
    for (const [wrong, problem] of [
      [{ userRoles: ['Editor'], impersonationRoles: [] }, /USER_ROLES must list names like content_editor/],
      [{ userRoles, impersonationRoles: ['admin'] }, /IMPERSONATION_ROLES has admin/],
      [{ userRoles: [], impersonationRoles: ['support'] }, /IMPERSONATION_ROLES has support/],
    ] satisfies [object, RegExp][])
      t.throws(() => serverWith(t, wrong), { message: problem });
  },
);

t.test('the guard protects routes of node:http', async (t) => {
  const server = serverWith(t, { userRoles });
  const guard = server.requireRole('editor');
  const host = createHttpServer((request, response) => guard(request, response, () => response.end('texts')));
  await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
  t.teardown(() => host.close());
  const { port } = host.address() as { port: number };
  await server.fastify.ready();
  const given = { email: 'ada@example.test', password: PASSWORD };
  const registered = await server.fastify.inject({
    method: 'POST',
    url: '/api/auth/register',
    payload: given,
  });
  const { user, accessToken } = registered.json().data;
  const ask = async () => {
    const headers = { authorization: `Bearer ${accessToken}` };
    return (await fetch(`http://127.0.0.1:${port}/texts`, { headers })).status;
  };
  t.equal(await ask(), 403);
  await server.fastify.saas.users.setRoles({ id: user.id }, ['editor']);
  t.equal(await ask(), 200);
});

t.test(
  'users have no route to their roles, and a change is in the audit, the export and an event',
  async (t) => {
    const app = await withRoles(t);
    const { users, events } = app.server.fastify.saas;
    const heard: unknown[] = [];
    events.on('user.updated', ({ user }) => heard.push(user.roles));
    const ada = await app.signUp();
    const { accessToken: token } = ada;
    await users.setRoles({ id: ada.id }, ['editor']);
    for (const [method, path, body] of [
      ['PATCH', '/api/user/profile', { name: 'Ada', roles: ['support'] }],
      ['PUT', '/api/user/profile', { name: 'Ada', roles: ['support'] }],
      ['POST', '/api/auth/login', { email: ada.email, password: PASSWORD, roles: ['support'] }],
    ] as const)
      await app.request(method, path, { token, body });
    t.same(await rolesOf(app, token), ['editor']);
    t.same(heard.at(0), ['editor']);
    const unknown = await users.setRoles({ id: ada.id }, ['admin']).catch((error) => error.details);
    t.match(unknown, [{ path: 'roles', message: /but the roles of USER_ROLES are: editor, support/ }]);
    await t.rejects(users.setRoles({ id: 'usr_0' }, ['editor']), { code: 'NOT_FOUND' });
    const changed = await app.admin('POST', `/admin/api/users/${ada.id}/roles`, { roles: 'support, editor' });
    t.equal(changed.status, 200, changed.text);
    t.equal((await app.admin('POST', `/admin/api/users/${ada.id}/roles`, { roles: 'root' })).status, 400);
    t.match((await app.admin('GET', `/admin/users/${ada.id}`)).text, /Roles<\/dt><dd>editor, support/);
    const records = (await auditOf(await storeOf(t, app))).filter(
      ({ event }) => event === 'user.roles-changed',
    );
    t.match(records, [
      { subject: ada.id, ip: 'local', detail: '{"before":{"roles":""},"after":{"roles":"editor"}}' },
      { by: 'operator', detail: '{"before":{"roles":"editor"},"after":{"roles":"editor, support"}}' },
    ]);
    t.equal(records.length, 2);
    t.same((await app.request('GET', '/api/user/export', { token })).body.data.user.roles, userRoles);
    await app.admin('POST', `/admin/api/users/${ada.id}/roles`, {});
    t.same(await rolesOf(app, token), []);
  },
);

t.test(
  'of concurrent changes none is lost, and a role that the application gives up counts no longer',
  async (t) => {
    const folder = temporaryFolder(t);
    const app = await saasApp(t, { userRoles, folder });
    const { id, email } = await app.signUp();
    const { users } = app.server.fastify.saas;
    await Promise.all([
      users.setRoles({ id }, ['editor', 'support']),
      users.update({ id }, { publicMetadata: { theme: 'dark' } }),
      users.update({ id }, { name: 'Ada' }),
    ]);
    t.match(await users.get({ id }), { roles: userRoles, name: 'Ada', publicMetadata: { theme: 'dark' } });
    await app.close();
    const later = await saasApp(t, { userRoles: ['support', 'author'], folder });
    t.same((await later.server.fastify.saas.users.get({ email })).roles, ['support']);
    const login = await later.post('/auth/login', { email, password: PASSWORD });
    t.equal(errorOf(login), undefined);
    t.same(login.body.data.user.roles, ['support']);
  },
);
