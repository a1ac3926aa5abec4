import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Type } from 'typebox';
import {
  ConfigurationError,
  type NewRegistration,
  type SaasHooks,
  type UserFields,
  type UserFieldsOf,
} from '../../../src/index.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { createServer } from '../../../src/saas/server.js';
import {
  type Answer,
  auditOf,
  PASSWORD,
  type SaasApp,
  saasApp,
  storeOf,
  testOptions,
} from '../../kit/app.js';
import { SoftwareAuthenticator } from '../../kit/authenticator.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { submit } from '../admin/kit.js';
import { mailedApp } from './kit.js';

/** The option `userFields`: fields of users that the host declares. */

const userFields = {
  company: Type.String({ maxLength: 20, title: 'Company' }),
  size: Type.Union([Type.Literal('small'), Type.Literal('large')]),
  seats: Type.Optional(Type.Integer({ minimum: 1, maximum: 500 })),
  newsletter: Type.Optional(Type.Boolean()),
  tier: Type.Optional(Type.Enum(['bronze', 'gold'], { readOnly: true })),
};
// Inferred from the declaration.
const typed: UserFieldsOf<typeof userFields> = { company: 'Acme', size: 'small', seats: 5, tier: 'gold' };
// @ts-expect-error a required field
const incomplete: UserFieldsOf<typeof userFields> = { company: typed.company };
// @ts-expect-error no choice
incomplete.size = 'huge';

const COMPANY = { company: 'Acme', size: 'small' };

const EMAIL = 'ada@example.test';

const withFields = (t: Test, more: Parameters<typeof saasApp>[1] = {}) => saasApp(t, { userFields, ...more });

const register = (app: SaasApp, fields?: unknown, email = EMAIL) =>
  app.post('/auth/register', { email, password: PASSWORD, ...(fields !== undefined && { fields }) });

const patch = (app: SaasApp, token: string, body: object) =>
  app.request('PATCH', '/api/user/profile', { token, body });

/** The paths and messages of an error, as `fields.company is required…`. */
const problemsIn = ({ body }: Answer): string[] =>
  (body.error?.details ?? []).map(({ path, message }: Record<string, string>) => `${path} ${message}`);

async function registered(t: Test, more: Parameters<typeof saasApp>[1] = {}, fields: object = COMPANY) {
  const app = await withFields(t, more);
  const answer = await register(app, fields);
  t.equal(answer.status, 201, answer.text);
  const { user, accessToken: token } = answer.body.data;
  return { app, id: user.id as string, token: token as string, user };
}

const storedOf = async (t: Test, app: SaasApp, id: string) =>
  (await userCollection(await storeOf(t, app)).findOne({ id }))?.fields;

/** What no door accepts, and what it says. */
const WRONG: [fields: unknown, problem: RegExp][] = [
  [{ ...COMPANY, company: 5 }, /^fields\.company must be text of at most 20 characters; given: 5$/],
  [{ ...COMPANY, company: 'x'.repeat(21) }, /^fields\.company must be text of at most 20 characters/],
  [{ ...COMPANY, company: 'a\nb' }, /^fields\.company must be one line/],
  [{ ...COMPANY, company: '\ud800' }, /^fields\.company must be text without invalid characters/],
  [{ ...COMPANY, company: ['Acme'] }, /^fields\.company must be text/],
  [{ ...COMPANY, size: 'huge' }, /^fields\.size must be small or large/],
  [{ ...COMPANY, seats: 0 }, /^fields\.seats must be a whole number from 1 to 500; given: 0$/],
  [{ ...COMPANY, seats: '5' }, /^fields\.seats must be a whole number/],
  [{ ...COMPANY, newsletter: 'yes' }, /^fields\.newsletter must be true or false/],
  [{ ...COMPANY, shoeSize: 43 }, /^fields\.shoeSize is not a field of users; the fields are: company, size/],
  [['Acme'], /^fields must be a JSON object/],
  [null, /^fields must be a JSON object/],
  // A name that objects have without it.
  [{ ...COMPANY, constructor: 'Acme' }, /^fields\.constructor is not a field/],
];

/** Beyond that, what only the operator writes. */
const WRITTEN_BY_OPERATORS: [fields: object, problem: RegExp] = [
  { ...COMPANY, tier: 'gold' },
  /^fields\.tier can be changed by the operator only$/,
];

t.test('without the option, there are no fields', async (t) => {
  const app = await saasApp(t, { emailLogin: true, passkeys: true });
  t.match(await register(app, COMPANY), { status: 400, body: { error: { code: 'VALIDATION_ERROR' } } });
  const { accessToken: token, id } = await app.signUp();
  t.match(problemsIn(await patch(app, token, { fields: COMPANY })), [/^fields is not a profile field/]);
  t.match(problemsIn(await patch(app, token, {})), [/^name is required/]);
  const begun = await app.post('/auth/register/passkey/begin', { email: EMAIL, fields: COMPANY });
  t.match(problemsIn(begun), [/^fields is not a field of a registration/]);
  t.notMatch((await app.request('GET', '/api/auth/me', { token })).body.data.user, { fields: {} });
  const { users } = app.server.fastify.saas;
  const { details } = await users.update({ id }, { fields: COMPANY }).catch((error) => error);
  t.match(details, [{ path: 'fields', message: /needs the option 'userFields'/ }]);
  await t.rejects(users.create({ email: EMAIL, fields: COMPANY }), { code: 'VALIDATION_ERROR' });
  t.notMatch((await app.request('GET', '/api/openapi.json')).text, /UserFields|UserFieldValues|"fields"/);
});

t.test('a registration gives fields, which the user, events and the export then have', async (t) => {
  const app = await withFields(t);
  const events: object[] = [];
  app.server.fastify.saas.events.on('user.registered', ({ user }) => void events.push(user.fields ?? {}));
  const given = { company: '  Acme ', size: 'large', seats: 5, newsletter: false };
  const fields = { ...given, company: 'Acme' };
  const answer = await register(app, given);
  t.equal(answer.status, 201, answer.text);
  const { user, accessToken: token } = answer.body.data;
  t.strictSame(user.fields, fields);
  for (const path of ['/api/auth/me', '/api/user/profile']) {
    const { body } = await app.request('GET', path, { token });
    t.strictSame((body.data.user ?? body.data).fields, fields, path);
  }
  t.strictSame((await app.request('GET', '/api/user/export', { token })).body.data.user.fields, fields);
  t.strictSame((await app.server.fastify.saas.users.get({ id: user.id })).fields, fields);
  await waitUntil('the event', () => events.length === 1);
  t.strictSame(events, [fields]);
});

t.test('a registration without a required field, or with a wrong one, is refused and named', async (t) => {
  const app = await withFields(t);
  for (const [fields, problem] of [...WRONG, WRITTEN_BY_OPERATORS]) {
    const answer = await register(app, fields);
    t.equal(answer.status, 400, JSON.stringify(fields));
    t.match(problemsIn(answer), [problem]);
  }
  for (const fields of [undefined, {}, { company: ' ', size: null }])
    t.match(problemsIn(await register(app, fields)), [
      /^fields\.company is required: text of at most 20 characters$/,
      /^fields\.size is required: small or large$/,
    ]);
  t.equal(await userCollection(await storeOf(t, app)).count(), 0);
});

t.test('the hook of registrations sees valid fields, and can refuse them', async (t) => {
  const seen: NewRegistration[] = [];
  const hooks: SaasHooks = {
    beforeRegister(registration) {
      seen.push(registration);
      return registration.fields?.['company'] === 'Evil'
        ? { reason: 'COMPANY_UNKNOWN', message: 'We do not know your company.' }
        : undefined;
    },
  };
  const app = await withFields(t, { hooks });
  await register(app, { company: 'x'.repeat(21), size: 'small' });
  const refused = await register(app, { ...COMPANY, company: 'Evil' });
  t.match(refused, { status: 403, body: { error: { reason: 'COMPANY_UNKNOWN' } } });
  t.equal((await register(app, COMPANY)).status, 201);
  t.strictSame(
    seen.map(({ fields }) => fields),
    [{ ...COMPANY, company: 'Evil' }, COMPANY],
  );
});

t.test('the user changes fields in the profile', async (t) => {
  const { app, token, id } = await registered(t);
  const changed = await patch(app, token, { name: 'Ada', fields: { seats: 7, newsletter: true } });
  t.match(changed, { status: 200, body: { data: { name: 'Ada', fields: { ...COMPANY, seats: 7 } } } });
  t.strictSame(
    (await patch(app, token, { fields: { seats: null, newsletter: '' } })).body.data.fields,
    COMPANY,
  );
  t.match((await patch(app, token, { name: '' })).body.data, { name: '', fields: COMPANY });
  t.equal((await patch(app, token, {})).status, 200);
  for (const [fields, problem] of [...WRONG, WRITTEN_BY_OPERATORS]) {
    const answer = await patch(app, token, { fields });
    t.equal(answer.status, 400, JSON.stringify(fields));
    t.match(problemsIn(answer), [problem]);
  }
  t.match(problemsIn(await patch(app, token, { fields: { company: null } })), [
    /^fields\.company is required/,
  ]);
  t.equal(await storedOf(t, app, id), JSON.stringify(COMPANY));
});

t.test('of concurrent changes by the user and the operator, none is lost', async (t) => {
  const { app, token, id } = await registered(t);
  const { users } = app.server.fastify.saas;
  const answers = await Promise.all([
    patch(app, token, { fields: { seats: 3 } }),
    patch(app, token, { fields: { newsletter: true } }),
    users.update({ id }, { fields: { tier: 'gold' } }),
    users.update({ id }, { fields: { company: 'Globex' } }),
    patch(app, token, { name: 'Ada' }),
  ]);
  t.same(
    answers.filter((answer) => 'status' in answer && answer.status !== 200),
    [],
  );
  const all = { company: 'Globex', size: 'small', seats: 3, newsletter: true, tier: 'gold' };
  t.match(await users.get({ id }), { name: 'Ada', fields: all });
});

t.test('code of the host writes every field, and no invalid value', async (t) => {
  const app = await withFields(t);
  const { users } = app.server.fastify.saas;
  const events: object[] = [];
  app.server.fastify.saas.events.on('user.updated', ({ user }) => void events.push(user.fields ?? {}));
  const { id, fields } = await users.create({ email: EMAIL });
  t.strictSame(fields, {}, 'no form has asked for the required ones');
  const updated = await users.update({ id }, { fields: { company: 'Acme', tier: 'gold' } });
  t.strictSame(updated.fields, { company: 'Acme', tier: 'gold' });
  const audit = await auditOf(await storeOf(t, app));
  t.match(audit.at(-1), { event: 'user.updated', subject: id, detail: /"fields":"changed"/ });
  t.strictSame((await users.update({ id }, { fields: { company: null } })).fields, { tier: 'gold' });
  const inherited = JSON.parse('{"__proto__":"Acme"}');
  for (const [wrong, problem] of [...WRONG, [inherited, /__proto__/] as const]) {
    const refused = { code: 'VALIDATION_ERROR', details: [{ path: String }] };
    await t.rejects(users.update({ id }, { fields: wrong } as never), refused, String(problem));
    await t.rejects(users.create({ email: 'b@example.test', fields: wrong } as never), refused);
  }
  t.match(await users.create({ email: 'c@example.test', fields: { tier: 'bronze' } as never }), {
    fields: { tier: 'bronze' },
  });
  await waitUntil('the events', () => events.length === 2);
  t.strictSame(events, [{ company: 'Acme', tier: 'gold' }, { tier: 'gold' }]);
});

t.test('the values of a user are limited in all', async (t) => {
  const many = Object.fromEntries([1, 2, 3, 4, 5].map((n) => [`text${n}`, Type.Optional(Type.String())]));
  const app = await saasApp(t, { userFields: many });
  const valuesOf = (character: string) =>
    Object.fromEntries(Object.keys(many).map((name) => [name, character.repeat(900)]));
  t.match(problemsIn(await register(app, valuesOf('x'))), [/^fields must have at most 4096 bytes/]);
  t.match(problemsIn(await register(app, { text1: 'x'.repeat(1001) })), [
    /^fields\.text1 must be at most 1000/,
  ]);
  t.equal((await register(app, { text1: 'x'.repeat(1000), text2: 'é'.repeat(1000) })).status, 201);
});

t.test('an account by a mailed code has the fields of the request that uses the code', async (t) => {
  const app = await mailedApp(t, { userFields, emailLogin: true });
  const ask = async () => {
    const { loginToken } = (await app.post('/auth/email-login', { email: EMAIL })).body.data;
    const { text } = await app.mail(sentence('mail.login-code.subject'));
    return { loginToken, code: /^[0-9A-Z]{4}-[0-9A-Z]{4}$/m.exec(text)?.[0] ?? '' };
  };
  const asked = await ask();
  const redeem = (body: object) => app.post('/auth/email-login/redeem', body);
  t.match(problemsIn(await redeem({ ...asked, fields: { seats: 0 } })), [/^fields\.seats must be/]);
  t.match(problemsIn(await redeem({ ...asked, fields: { tier: 'gold' } })), [
    /^fields\.tier can be changed by/,
  ]);
  const created = await redeem({ ...asked, fields: { company: 'Acme' } });
  t.equal(created.status, 200, 'a refused request does not use the code up');
  t.strictSame(created.body.data.user.fields, { company: 'Acme' });
  const again = await redeem({ ...(await ask()), fields: { company: 'Globex' } });
  t.strictSame(again.body.data.user.fields, { company: 'Acme' }, 'not those of an existing account');
});

t.test('an account with a passkey has the fields with which its creation began', async (t) => {
  const app = await withFields(t, { passkeys: true });
  const begin = (fields?: object) =>
    app.post('/auth/register/passkey/begin', { email: EMAIL, ...(fields && { fields }) });
  t.match(problemsIn(await begin()), [/^fields\.company is required/, /^fields\.size is required/]);
  t.match(problemsIn(await begin(WRITTEN_BY_OPERATORS[0])), [WRITTEN_BY_OPERATORS[1]]);
  const { ceremony, options } = (await begin(COMPANY)).body.data;
  const authenticator = new SoftwareAuthenticator('http://app.example.test', { counter: 0 });
  const credential = JSON.parse(authenticator.create(JSON.stringify(options)));
  const answer = await app.post('/auth/register/passkey', { ceremony, credential });
  t.match(answer, { status: 201, body: { data: { user: { fields: COMPANY } } } });
});

t.test('the largest values fit into the registration with a passkey', async (t) => {
  const texts = Object.fromEntries([1, 2, 3, 4].map((n) => [`text${n}`, Type.String({ maxLength: 1000 })]));
  const app = await saasApp(t, { userFields: texts, passkeys: true });
  const fields = Object.fromEntries(Object.keys(texts).map((name) => [name, 'x'.repeat(1000)]));
  const person = { email: `${'a'.repeat(60)}@${'b.'.repeat(90)}example.test`, name: '€'.repeat(200), fields };
  const { ceremony, options } = (await app.post('/auth/register/passkey/begin', person)).body.data;
  const authenticator = new SoftwareAuthenticator('http://app.example.test', { counter: 0 });
  const credential = JSON.parse(authenticator.create(JSON.stringify(options)));
  const answer = await app.post('/auth/register/passkey', { ceremony, credential });
  t.match(answer, { status: 201, body: { data: { user: { fields } } } });
});

t.test('a declaration that changes hides values, breaks nothing and loses nothing', async (t) => {
  const folder = temporaryFolder(t);
  const first = await registered(t, { folder }, { ...COMPANY, seats: 5 });
  const { id } = first;
  await first.app.close();

  const company = Type.String({ maxLength: 2, title: 'Company' });
  const later = { company, size: userFields.size, city: Type.String() };
  const app = await saasApp(t, { folder, userFields: later });
  const signedIn = await app.post('/auth/login', { email: EMAIL, password: PASSWORD });
  t.equal(signedIn.status, 200);
  const { accessToken: token, user } = signedIn.body.data;
  t.strictSame(user.fields, { size: 'small' }, 'one is too long now, one is not declared');
  t.equal((await app.admin('GET', '/admin/api/users')).status, 200);
  t.strictSame((await app.request('GET', '/api/user/export', { token })).body.data.user.fields, {
    ...COMPANY,
    seats: 5,
  });
  const renamed = await patch(app, token, { name: 'Ada', fields: { city: 'London' } });
  t.match(renamed, {
    status: 200,
    body: { data: { name: 'Ada', fields: { size: 'small', city: 'London' } } },
  });
  await app.close();

  const third = await withFields(t, { folder });
  t.strictSame((await third.server.fastify.saas.users.get({ id })).fields, { ...COMPANY, seats: 5 });
  await third.close();
  const none = await saasApp(t, { folder });
  t.match(await none.server.fastify.saas.users.update({ id }, { name: 'Eve' }), {
    name: 'Eve',
    fields: undefined,
  });
  t.equal(await storedOf(t, none, id), JSON.stringify({ ...COMPANY, seats: 5, city: 'London' }));
});

t.test('the document of the server has the schemas of the fields', async (t) => {
  const app = await withFields(t, { passkeys: true });
  const { paths, components } = (await app.request('GET', '/api/openapi.json')).body;
  const bodyOf = (method: string, path: string) =>
    paths[`/api${path}`][method].requestBody.content['application/json'].schema.properties.fields;
  const { company, size, seats, newsletter } = userFields;
  const asJson = (value: unknown) => JSON.parse(JSON.stringify(value));
  for (const path of ['/auth/register', '/auth/register/passkey/begin'])
    t.match(bodyOf('post', path), {
      required: ['company', 'size'],
      properties: asJson({ company, size, seats, newsletter }),
      additionalProperties: false,
    });
  t.notOk('tier' in bodyOf('post', '/auth/register').properties, 'what users cannot write');
  t.match(bodyOf('patch', '/user/profile').properties, {
    company: asJson(company),
    seats: { anyOf: [asJson(seats), { type: 'null' }] },
  });
  t.match(components.schemas.User.properties.fields.properties, asJson(userFields));
});

t.test('mails to a verified address have the fields, others have not', async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(
    join(folder, 'password-reset.text'),
    '{{#fields.company}}At {{fields.company}}.{{/fields.company}}{{> _foot}}',
  );
  const app = await mailedApp(t, { userFields, emailTemplateDir: folder });
  const { users } = app.server.fastify.saas;
  const { id } = await users.create({ email: EMAIL, fields: COMPANY as never });
  await users.sendPasswordReset({ id });
  t.notMatch((await app.mail(sentence('mail.password-reset.subject'))).text, 'Acme');
  await users.update({ id }, { emailVerified: true });
  await users.sendPasswordReset({ id });
  t.match((await app.mail(sentence('mail.password-reset.subject'))).text, 'At Acme.');
  for (const template of ['{{fields}}', '{{shoeSize}}']) {
    writeFileSync(join(folder, 'welcome.text'), template);
    const options = { ...testOptions(temporaryFolder(t)), emailTemplateDir: folder };
    t.throws(() => createServer(options), /which this e-mail does not provide/, template);
  }
  writeFileSync(join(folder, 'welcome.text'), '{{fields.company}}');
  writeFileSync(join(folder, 'receipt.text'), '{{fields.company}}');
  const options = { ...testOptions(temporaryFolder(t)), emailTemplateDir: folder };
  t.throws(() => createServer(options), /receipt\.text uses 'fields\.company'/);
});

t.test('operators change fields in the admin area', async (t) => {
  const { app, id } = await registered(t);
  const path = `/admin/users/${id}/fields`;
  const body = { fields: { tier: 'gold', company: null, newsletter: true } };
  t.equal((await app.admin('POST', `/admin/api/users/${id}/fields`, body)).status, 200);
  const stored = { size: 'small', tier: 'gold', newsletter: true };
  t.strictSame((await app.admin('GET', `/admin/api/users/${id}`)).body.data.fields, stored);
  for (const [fields, problem] of WRONG.filter(([fields]) => fields !== null && !Array.isArray(fields))) {
    const refused = await app.admin('POST', `/admin/api/users/${id}/fields`, { fields });
    t.match(problemsIn(refused), [problem]);
  }
  const { text } = await app.admin('GET', path);
  t.match(text, '<label for="field-fields.company">Company</label>');
  t.match(text, '<option value="gold" selected>gold</option>');
  t.match((await app.admin('GET', `/admin/users/${id}`)).text, /tier<\/dt>\s*<dd>gold/);
  const submitForm = (fields: Record<string, string>) => submit(app, path, fields);
  const wrong = await submitForm({ 'fields.company': 'x'.repeat(21), 'fields.seats': 'many' });
  t.match(wrong.text, 'Company must be text of at most 20 characters');
  t.match(wrong.text, 'seats must be a whole number');
  await submitForm({ 'fields.company': 'Globex', 'fields.seats': '9', 'fields.newsletter': 'false' });
  const changed = { company: 'Globex', seats: 9, newsletter: false };
  t.strictSame((await app.admin('GET', `/admin/api/users/${id}`)).body.data.fields, changed);
  const none = await saasApp(t);
  const other = await none.signUp();
  t.equal((await none.admin('GET', `/admin/users/${other.id}/fields`)).status, 404);
  t.notMatch((await none.admin('GET', `/admin/users/${other.id}`)).text, 'Change fields');
});

t.test('a declaration that could not work is refused at the start', async (t) => {
  const wrong: [fields: unknown, problem: RegExp][] = [
    [5, /'userFields' must be an object/],
    [{ 'a b': Type.String() }, /'userFields\.a b' must have a name/],
    [{ tags: Type.Array(Type.String()) }, /'userFields\.tags' must have a schema of a text/],
    [{ born: Type.String({ format: 'date' }) }, /'userFields\.born' has a 'format', which is not validated/],
    [{ plan: Type.String({ default: 'x' }) }, /'userFields\.plan' has 'default'/],
    [{ plan: Type.String({ readOnly: true }) }, /'userFields\.plan' is readOnly, so .* Type\.Optional/],
    [{ plan: Type.String({ pattern: '(' }) }, /'userFields\.plan' has a schema that cannot be used/],
    [{ plan: null }, /'userFields\.plan' must have a schema/],
  ];
  for (const [given, problem] of wrong) {
    const options = { ...testOptions(temporaryFolder(t)), userFields: given as UserFields };
    t.throws(() => createServer(options), problem);
    t.throws(() => createServer(options), ConfigurationError);
  }
});
