import t from 'tap';
import { ADMIN, auditOf, PASSWORD, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { deliver, outcomeOf, subscriptionEvent } from '../billing/kit.js';

const DEFAULTS = {
  siteName: 'SaaS',
  allowRegistration: true,
  maintenanceMode: false,
  emailNotifications: true,
};

t.test('users read exactly four settings, and anyone reads the public ones', async (t) => {
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  const global = await app.request('GET', '/api/global-settings', { token });
  t.equal(global.status, 200);
  t.strictSame(global.body, { success: true, data: DEFAULTS });
  t.equal((await app.request('GET', '/api/global-settings')).status, 401);
  const { emailNotifications: _, ...open } = DEFAULTS;
  t.strictSame((await app.request('GET', '/api/settings/public')).body, { success: true, data: open });
});

t.test('the operator changes settings one version at a time', async (t) => {
  const app = await saasApp(t);
  const patch = (body: object) => app.admin('PATCH', '/admin/api/settings', body);
  const read = await app.admin('GET', '/admin/api/settings');
  t.strictSame(read.body, { success: true, data: { ...DEFAULTS, version: 0 } });
  t.equal(read.headers['cache-control'], 'no-store');

  const first = await patch({ siteName: 'Umbrella', version: 0 });
  t.equal(first.status, 200);
  t.strictSame(first.body.data, { ...DEFAULTS, siteName: 'Umbrella', version: 1 });
  const second = await patch({ emailNotifications: false, version: 1 });
  t.strictSame(second.body.data, {
    ...DEFAULTS,
    siteName: 'Umbrella',
    emailNotifications: false,
    version: 2,
  });
  for (const version of [0, 1, 3]) {
    const stale = await patch({ siteName: 'Hydra', version });
    t.equal(stale.status, 409, `version ${version}`);
    t.equal(stale.body.error.code, 'VERSION_CONFLICT');
  }
  const { accessToken: token } = await app.signUp();
  t.equal((await app.request('GET', '/api/global-settings', { token })).body.data.siteName, 'Umbrella');
});

t.test(
  'changes of settings are audited with operator, address and the values before and after',
  async (t) => {
    const app = await saasApp(t);
    const patch = (body: object, headers = ADMIN) =>
      app.request('PATCH', '/admin/api/settings', { body, headers, from: '203.0.113.9' });
    await patch({ siteName: 'Say "hi"', maintenanceMode: true, emailNotifications: true, version: 0 });
    t.equal((await patch({ siteName: 'Hydra', version: 0 })).status, 409);
    t.equal((await patch({ siteName: '', version: 1 })).status, 400);
    t.equal((await patch({ maintenanceMode: true, version: 1 })).status, 200, 'changes nothing');
    await patch({ maintenanceMode: false, version: 2 });
    const by = { event: 'settings.changed', by: SECRETS.adminUsername, ip: '203.0.113.9' };
    const records = await auditOf(await storeOf(t, app));
    t.strictSame(
      records.map(({ id: _, at: __, ...record }) => record),
      [
        {
          ...by,
          detail: JSON.stringify({
            before: { siteName: 'SaaS', maintenanceMode: false },
            after: { siteName: 'Say "hi"', maintenanceMode: true },
          }),
        },
        { ...by, detail: '{"before":{"maintenanceMode":true},"after":{"maintenanceMode":false}}' },
      ],
    );
  },
);

t.test('settings are type-checked, and unknown ones are dropped', async (t) => {
  const app = await saasApp(t);
  const patch = (body: unknown) => app.admin('PATCH', '/admin/api/settings', body);
  for (const wrong of [
    { siteName: '' },
    { siteName: null },
    { siteName: 5 },
    { siteName: 'a\nb' },
    { siteName: 'x'.repeat(201) },
    { allowRegistration: 'true' },
    { allowRegistration: 1 },
    { maintenanceMode: null },
    { emailNotifications: ['true'] },
    { version: '0' },
    { version: null },
    { version: 0.5 },
    { version: undefined },
  ]) {
    t.equal((await patch({ version: 0, ...wrong })).status, 400, JSON.stringify(wrong));
  }
  const extra = await patch({ version: 0, siteName: 'Umbrella', theme: 'dark', id: 'other' });
  t.strictSame(extra.body.data, { ...DEFAULTS, siteName: 'Umbrella', version: 1 });
});

t.test('maintenance mode refuses users and no one else', async (t) => {
  const app = await saasApp(t, { corsOrigin: ['https://app.example'] });
  const { id, email, accessToken: token, refreshToken } = await app.signUp();
  const body = { maintenanceMode: true, version: 0 };
  await app.admin('PATCH', '/admin/api/settings', body);

  const origin = { origin: 'https://app.example' };
  for (const [method, path] of [
    ['POST', '/api/auth/login'],
    ['POST', '/api/auth/register'],
    ['GET', '/api/auth/me'],
    ['GET', '/api/user/profile'],
    ['PATCH', '/api/user/profile'],
  ] as const) {
    const answer = await app.request(method, path, {
      token,
      headers: origin,
      ...(method !== 'GET' && { body: { email, password: PASSWORD, name: '' } }),
    });
    t.equal(answer.status, 503, path);
    t.equal(answer.body.error.code, 'MAINTENANCE');
    t.match(answer.headers['retry-after'], /^\d+$/);
    t.equal(answer.headers['access-control-allow-origin'], origin.origin, 'a page of ours can read why');
  }
  const preflight = await app.request('OPTIONS', '/api/auth/refresh', {
    headers: {
      ...origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'content-type',
    },
  });
  t.equal(preflight.status, 204, 'a page of ours can still refresh');

  const object = { id: 'sub_1', status: 'active', metadata: { userId: id } };
  const webhook = await deliver(app, subscriptionEvent('created', 0, object));
  t.equal(outcomeOf(webhook), 'processed', 'no payment is lost');
  const open = {
    webhook,
    global: await app.request('GET', '/api/global-settings', { token }),
    public: await app.request('GET', '/api/settings/public'),
    refresh: await app.request('POST', '/api/auth/refresh', { body: { refreshToken } }),
    logout: await app.request('POST', '/api/auth/logout', { token }),
    health: await app.request('GET', '/api/health'),
    ready: await app.request('GET', '/api/ready'),
    admin: await app.admin('GET', '/admin'),
  };
  for (const [name, { status }] of Object.entries(open)) t.equal(status, 200, name);
});
