import t, { type Test } from 'tap';
import { Type } from 'typebox';
import { createCommit } from '../../../src/core/ops/commit.js';
import { openStore } from '../../../src/core/storage/open.js';
import { ConfigurationError } from '../../../src/index.js';
import { openCustomSettings } from '../../../src/saas/settings/module.js';
import { type CustomSettingsDocument, settingsCollection } from '../../../src/saas/settings/store.js';
import { auditOf, type SaasApp, SECRETS, saasApp, storeOf } from '../../kit/app.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { submit } from '../admin/kit.js';

/** Settings that the host declares. */

const settings = {
  supportEmail: {
    schema: Type.String({ pattern: '^[^@ ]+@[^@ ]+$', maxLength: 254, description: 'Where users get help' }),
    label: 'Support address',
    public: true,
    default: 'help@example.test',
  },
  maxSeats: { schema: Type.Integer({ minimum: 1, maximum: 500 }), default: 5 },
  beta: { schema: Type.Boolean(), public: true },
  tone: { schema: Type.Enum(['formal', 'friendly']), default: 'formal' },
  apiKey: { schema: Type.String({ minLength: 8 }), secret: true },
} as const;

const KEY = 'Vw3kLq8ZsT1mXe6YbN0cRj4HuPd9Ga2F-settings';
const NEXT_KEY = 'Tz8nRb5WqY2kLd7JxG4vMc1PsE6uHa9F-settings';
const API_KEY = 'live-9wXk2mQ7';
const PATH = '/admin/api/settings/custom';

const withSettings = { customSettings: settings, settingsEncryptionKey: KEY };

const read = async (app: SaasApp) => (await app.admin('GET', PATH)).body.data;
const patch = (app: SaasApp, version: number, values: object) =>
  app.admin('PATCH', PATH, { version, values });
const valuesOf = (app: SaasApp) => app.server.fastify.saas.settings.get<typeof settings>();

t.test('the host reads typed values, which the operator changes one version at a time', async (t) => {
  const app = await saasApp(t, withSettings);
  const values = await valuesOf(app);
  // The types follow from the declarations.
  const [email, seats]: [string, number] = [values.supportEmail, values.maxSeats];
  const [beta, key]: [boolean | undefined, string | undefined] = [values.beta, values.apiKey];
  // @ts-expect-error a setting without a default may be undefined
  const text: string = values.apiKey;
  t.same([email, seats, beta, key, text], ['help@example.test', 5, undefined, undefined, undefined]);

  const initial = { supportEmail: 'help@example.test', maxSeats: 5, beta: null, tone: 'formal' };
  t.strictSame(await read(app), { version: 0, values: initial, secrets: { apiKey: false } });
  const changed = await patch(app, 0, { maxSeats: 12, beta: true, apiKey: API_KEY });
  t.equal(changed.status, 200);
  t.strictSame(changed.body.data, {
    version: 1,
    values: { ...initial, maxSeats: 12, beta: true },
    secrets: { apiKey: true },
  });
  t.same(await valuesOf(app), { ...initial, maxSeats: 12, beta: true, apiKey: API_KEY });
  for (const version of [0, 2]) {
    const stale = await patch(app, version, { maxSeats: 1 });
    t.equal(stale.body.error.code, 'VERSION_CONFLICT', `version ${version}`);
  }
  t.equal((await patch(app, 1, { maxSeats: null, apiKey: null })).status, 200);
  t.strictSame(await valuesOf(app), { ...initial, beta: true, apiKey: undefined });
  t.equal((await app.admin('GET', '/admin/api/settings')).body.data.version, 0, 'another version');
});

t.test('values are validated by their schema, and unknown settings are rejected', async (t) => {
  const app = await saasApp(t, withSettings);
  const wrong: object[] = [
    { supportEmail: 'none' },
    { supportEmail: 5 },
    { supportEmail: 'a\0@b' },
    { supportEmail: '\ud800@b' },
    { maxSeats: 0 },
    { maxSeats: 501 },
    { maxSeats: '5' },
    { maxSeats: 1.5 },
    { beta: 'true' },
    { tone: 'rude' },
    { apiKey: 'short' },
    { other: 1 },
    { toString: 'x' },
    { beta: true, maxSeats: [1] },
  ];
  for (const values of wrong) t.equal((await patch(app, 0, values)).status, 400, JSON.stringify(values));
  const { body } = await patch(app, 0, { suportEmail: 'a@b', maxSeats: 0 });
  t.match(body.error.details, [
    { path: 'values.suportEmail', message: /is not a setting\..*supportEmail/ },
    { path: 'values.maxSeats', message: /1/ },
  ]);
  t.equal((await app.admin('PATCH', PATH, { values: {} })).status, 400, 'without a version');
  t.equal((await read(app)).version, 0);
});

t.test('public settings have their own key beside the fixed ones', async (t) => {
  const app = await saasApp(t, withSettings);
  await patch(app, 0, { apiKey: API_KEY, beta: false });
  const open = await app.request('GET', '/api/settings/public');
  t.strictSame(open.body.data, {
    siteName: 'SaaS',
    allowRegistration: true,
    maintenanceMode: false,
    custom: { supportEmail: 'help@example.test', beta: false },
  });
  const { accessToken: token } = await app.signUp();
  const global = await app.request('GET', '/api/global-settings', { token });
  t.same(Object.keys(global.body.data).length, 4, 'exactly four');
  const none = await saasApp(t);
  t.notOk('custom' in (await none.request('GET', '/api/settings/public')).body.data);
  t.equal((await none.admin('GET', PATH)).status, 404);
  t.same(await none.server.fastify.saas.settings.get(), {});
});

t.test('a secret setting is encrypted, and appears in no response, record or page', async (t) => {
  const app = await saasApp(t, withSettings);
  const seen: string[] = [];
  const remember = async (answer: Promise<{ text: string }>) => seen.push((await answer).text);
  await remember(patch(app, 0, { apiKey: API_KEY, maxSeats: 7 }));
  await remember(app.admin('GET', PATH));
  await remember(app.admin('GET', '/admin/settings'));
  await remember(app.request('GET', '/api/settings/public'));
  const store = await storeOf(t, app);
  const document = await settingsCollection<CustomSettingsDocument>(store).findOne({ id: 'custom' });
  const [record, ...others] = await auditOf(store);
  seen.push(JSON.stringify(document), JSON.stringify(record));
  for (const text of seen) t.notMatch(text, API_KEY);
  t.match(document?.secrets['apiKey'], /^v1\.[\w-]+$/);
  t.same(others, []);
  t.match(record, {
    event: 'settings.custom-changed',
    subject: undefined,
    by: SECRETS.adminUsername,
    ip: '127.0.0.1',
  });
  t.same(JSON.parse(record?.detail ?? ''), {
    before: { maxSeats: null, apiKey: null },
    after: { maxSeats: 7, apiKey: 'new secret' },
  });
  await patch(app, 1, { maxSeats: 7 });
  t.equal((await auditOf(store)).length, 1, 'a write that changes nothing is not recorded');
});

t.test(
  'the operator edits the settings in a form, where an empty field removes a value but keeps a secret',
  async (t) => {
    const app = await saasApp(t, withSettings);
    const send = (fields: Record<string, string>) => submit(app, '/admin/settings', fields, 'custom');
    t.match((await app.admin('GET', '/admin/settings')).text, /Support address[\s\S]*Where users get help/);
    const all = { 'value-supportEmail': 'a@b.test', 'value-maxSeats': '9', 'value-beta': 'false' };
    t.equal((await send({ ...all, 'value-apiKey': API_KEY, 'value-tone': 'friendly' })).status, 303);
    const stored = { supportEmail: 'a@b.test', maxSeats: 9, beta: false, tone: 'friendly', apiKey: API_KEY };
    t.same(await valuesOf(app), stored);
    t.equal((await send({ 'value-maxSeats': '' })).status, 303);
    t.strictSame(await valuesOf(app), {
      supportEmail: 'help@example.test',
      maxSeats: 5,
      beta: undefined,
      tone: 'formal',
      apiKey: API_KEY,
    });
    const wrong = await send({ 'value-maxSeats': 'many', 'value-tone': 'friendly', 'value-apiKey': 'x' });
    t.equal(wrong.status, 400);
    t.match(wrong.text, /id="problem-value-maxSeats" role="alert"/);
    t.match(wrong.text, 'value="many"', 'the value is kept');
    t.notMatch(wrong.text, 'value="x"', 'a secret is not');
    const late = await send({ version: '0' });
    t.equal(late.status, 409);
    t.match(late.text, 'role="alert"');
    t.equal((await send({ 'remove-apiKey': 'on' })).status, 303);
    t.equal((await valuesOf(app)).apiKey, undefined);
    const forged = await send({ token: '', 'value-maxSeats': '9' });
    t.equal(forged.status, 403);
  },
);

t.test('processes share the settings, also with a new key', async (t) => {
  const databaseUri = `sqlite:${temporaryFolder(t)}/saas.db`;
  const start = (name: string, more: object = {}) =>
    saasApp(t, { databaseUri, clock: here.clock, random: countedRandom(name), ...withSettings, ...more });
  const here = await saasApp(t, { databaseUri, ...withSettings });
  const there = await start('there');

  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) => patch(index % 2 ? here : there, 0, { maxSeats: index + 1 })),
  );
  t.equal(
    answers.filter(({ status }) => status === 200).length,
    1,
    'of 20 writes of one version one succeeds',
  );
  t.equal(answers.filter(({ status }) => status === 409).length, 19);

  t.equal((await valuesOf(there)).apiKey, undefined);
  t.equal((await patch(here, 1, { apiKey: API_KEY, maxSeats: 30 })).status, 200);
  here.clock.advance(1999);
  t.match(await valuesOf(there), { apiKey: API_KEY, maxSeats: 30 }, 'within two seconds');

  // The job that encrypts again runs once a minute.
  await Promise.all([here.close(), there.close()]);
  here.clock.advance(61_000);
  const rotated = await start('rotated', {
    settingsEncryptionKey: NEXT_KEY,
    settingsEncryptionKeyPrevious: KEY,
  });
  t.match(await valuesOf(rotated), { apiKey: API_KEY }, 'the previous key decrypts');
  await waitUntil('the value is encrypted again', async () => (await read(rotated)).version === 3);
  const after = await start('after', { settingsEncryptionKey: NEXT_KEY });
  t.match(await valuesOf(after), { apiKey: API_KEY, maxSeats: 30 }, 'without the previous key');
  const lost = await start('lost');
  await t.rejects(valuesOf(lost), /The custom setting apiKey cannot be decrypted/);
  t.match(await read(lost), { secrets: { apiKey: true } }, 'the operator can still set it again');
  t.equal((await patch(lost, 3, { apiKey: 'another-key' })).status, 200);
  t.match(await valuesOf(lost), { apiKey: 'another-key' });
});

t.test('a stored value belongs to its name and its schema', async (t) => {
  const app = await saasApp(t, withSettings);
  await patch(app, 0, { apiKey: API_KEY, maxSeats: 400 });
  const folder = app.file.replace(/\/[^/]*$/, '');
  const renamed = { ...settings, maxSeats: { schema: Type.Integer({ maximum: 10 }), default: 3 } };
  const other = { schema: Type.String(), secret: true };
  await settingsCollection<CustomSettingsDocument>(await storeOf(t, app)).updateOne(
    { id: 'custom' },
    { set: { secrets: { other: (await storedSecret(t, app)) ?? '' } } },
  );
  const later = await saasApp(t, {
    ...withSettings,
    folder,
    clock: app.clock,
    random: countedRandom('later'),
    customSettings: { maxSeats: renamed.maxSeats },
  });
  t.same(await later.server.fastify.saas.settings.get(), { maxSeats: 3 }, 'it no longer fits');
  const swapped = await saasApp(t, {
    ...withSettings,
    folder,
    clock: app.clock,
    random: countedRandom('swapped'),
    customSettings: { other },
  });
  await t.rejects(swapped.server.fastify.saas.settings.get(), /other cannot be decrypted/);
});

const storedSecret = async (t: Test, app: SaasApp) =>
  (await settingsCollection<CustomSettingsDocument>(await storeOf(t, app)).findOne({ id: 'custom' }))
    ?.secrets['apiKey'];

t.test('a setting that becomes secret is encrypted', async (t) => {
  const app = await saasApp(t, withSettings);
  await patch(app, 0, { supportEmail: 'a@b.test' });
  await app.close();
  const store = await openStore(app.databaseUri);
  t.teardown(() => store.close());
  const custom = await openCustomSettings(
    {
      store,
      clock: app.clock,
      random: countedRandom('secret'),
      commit: createCommit(store),
      audit: SILENT_AUDIT as never,
      jobs: { add: (_: string, { run }: { run: unknown }) => Object.assign(jobs, { run }) } as never,
    },
    { definitions: { supportEmail: { schema: Type.String(), secret: true } }, keys: [KEY, undefined] },
  );
  await jobs.run();
  t.same(await custom.get(), { supportEmail: 'a@b.test' });
  t.notMatch(
    JSON.stringify(await settingsCollection<CustomSettingsDocument>(store).findOne({ id: 'custom' })),
    'a@b.test',
  );
});

const jobs = { run: async () => undefined as unknown };

t.test('wrong declarations stop the start, all in one message', async (t) => {
  const declared = {
    'a b': { schema: Type.String() },
    both: { schema: Type.String(), secret: true, public: true },
    list: { schema: Type.Array(Type.String()) },
    count: { schema: Type.Integer(), secret: true },
    key: { schema: Type.String(), secret: true, default: 'x' },
    seats: { schema: Type.Integer({ minimum: 1 }), default: 0 },
  };
  const error = await saasApp(t, { customSettings: declared }).then(
    () => t.fail('started'),
    (thrown: Error) => thrown,
  );
  t.ok(error instanceof ConfigurationError);
  for (const part of ['a b must', 'both cannot', 'list must', 'count is', 'key is', 'seats has'])
    t.match((error as Error).message, `customSettings.${part}`);
  t.match((error as Error).message, /SETTINGS_ENCRYPTION_KEY.*both, count, key/);
});
