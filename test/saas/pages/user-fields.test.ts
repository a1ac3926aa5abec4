import t from 'tap';
import { Type } from 'typebox';
import { userCollection } from '../../../src/saas/auth/store.js';
import { PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { sentence } from '../../kit/sentences.js';
import { EMAIL, HERE, isAt, signUp, titleOf, visit, visitNew } from './kit.js';

/** The fields that the host declares, on the pages and in the admin area. */

const userFields = {
  company: Type.String({ maxLength: 20, title: 'Company', description: 'As on your invoices' }),
  size: Type.Union([Type.Literal('small'), Type.Literal('large')], { title: 'Team' }),
  seats: Type.Optional(Type.Integer({ minimum: 1, maximum: 500 })),
  newsletter: Type.Optional(Type.Boolean({ title: 'Newsletter' })),
  terms: Type.Literal(true, { title: 'I accept the terms' }),
  tier: Type.Optional(Type.Enum(['bronze', 'gold'], { title: 'Tier', readOnly: true })),
};
const TYPED = {
  'fields.company': ' Acme ',
  'fields.size': 'large',
  'fields.seats': '5',
  'fields.terms': 'true',
};
const STORED = { company: 'Acme', size: 'large', seats: 5, newsletter: false, terms: true };

/** The tag of an input or a select. */
const inputIn = (body: string, name: string) =>
  new RegExp(`<(?:input|select) id="field-${name}"[^>]*>`).exec(body)?.[0] ?? '';

t.test('without the option, the pages have no fields', async (t) => {
  const visitor = await visitNew(t);
  t.notMatch((await visitor.get('/sign-up')).body, 'name="fields.');
  await signUp(visitor);
  t.notMatch((await visitor.get()).body, /href="[^"]*details"/);
  t.equal((await visitor.get('/details')).status, 404);
});

t.test('the sign-up page asks for the fields, each with a label', async (t) => {
  const visitor = await visitNew(t, { userFields });
  const { body } = await visitor.get('/sign-up');
  for (const [name, label] of [
    ['company', 'Company'],
    ['size', 'Team'],
    ['seats', 'seats'],
  ])
    t.match(body, `<label for="field-${name}">${label}</label>`);
  t.match(body, /<label class="switch"><input id="field-newsletter"[^>]*> Newsletter<\/label>/);
  t.match(
    inputIn(body, 'company'),
    /type="text".* maxlength="20" required aria-describedby="field-company-hint"/,
  );
  t.match(body, '<p class="hint" id="field-company-hint">As on your invoices</p>');
  t.match(inputIn(body, 'seats'), /type="number".* min="1" max="500" step="1"/);
  t.notMatch(inputIn(body, 'seats'), 'required');
  t.match(inputIn(body, 'size'), 'required');
  t.match(inputIn(body, 'terms'), / value="true" required/);
  t.notMatch(body, 'fields.tier', 'what only the operator writes');

  const page = await signUp(visitor, EMAIL, TYPED);
  t.ok(isAt(page, '/account'), page.body);
  const store = await storeOf(t, visitor.app);
  t.strictSame(JSON.parse((await userCollection(store).findOne({ email: EMAIL }))?.fields ?? ''), STORED);
});

t.test('a sign-up with wrong fields shows them again, with what is wrong at each', async (t) => {
  const visitor = await visitNew(t, { userFields });
  const wrong = {
    'fields.company': 'x'.repeat(21),
    'fields.size': '',
    'fields.seats': 'many',
    'fields.newsletter': 'true',
  };
  const { status, body } = await signUp(visitor, EMAIL, wrong);
  t.equal(status, 400);
  t.match(body, sentence('user-details.too-long', { label: 'Company', maximum: '20' }));
  t.match(body, sentence('user-details.required', { label: 'Team' }));
  t.match(body, sentence('user-details.not-possible', { label: 'seats' }));
  t.match(body, sentence('user-details.required', { label: 'I accept the terms' }));
  t.match(
    inputIn(body, 'company'),
    /value="x{21}".*aria-describedby="field-company-hint field-company-problem" aria-invalid="true"/,
  );
  t.match(inputIn(body, 'newsletter'), ' checked');
  t.match(body, 'value="Ada"', 'the name is kept');
  t.notMatch(body, PASSWORD);
  t.equal(await userCollection(await storeOf(t, visitor.app)).count(), 0);
});

t.test('the registration with a passkey demands the fields before the passkey is created', async (t) => {
  const visitor = await visitNew(t, { userFields, passkeys: true });
  const page = await visitor.get('/sign-up');
  const to = (fields: object) =>
    visitor.browser.submit(
      // By its second button.
      { ...page, form: () => ({ ...page.form(), action: `${visitor.origin}/account/sign-up/passkey` }) },
      { email: EMAIL, name: 'Ada', password: '', password_confirm: '', ...fields },
    );
  const refused = await to({ ...TYPED, 'fields.company': '' });
  t.equal(refused.status, 400);
  t.match(refused.body, sentence('user-details.required', { label: 'Company' }));
  t.match(inputIn(refused.body, 'seats'), 'value="5"');
  const begun = await to(TYPED);
  t.match(titleOf(begun), sentence('user-sign-up-passkey.title'));
});

t.test('users change their fields on a page of the account', async (t) => {
  const visitor = await visitNew(t, { userFields });
  await signUp(visitor, EMAIL, TYPED);
  const { users } = visitor.app.server.fastify.saas;
  await users.update({ email: EMAIL }, { fields: { tier: 'gold' } });
  t.match((await visitor.get()).body, /href="[^"]*details"/);
  const { body } = await visitor.get('/details');
  t.match(inputIn(body, 'company'), 'value="Acme"');
  t.match(body, '<option value="large" selected>');
  t.match(inputIn(body, 'terms'), ' checked');

  const saved = await visitor.fill('/details', {
    'fields.company': 'Globex',
    'fields.size': 'large',
    'fields.seats': '',
  });
  t.match(saved.body, sentence('account.done.details-saved'));
  const { seats: _, ...others } = STORED;
  t.strictSame((await users.get({ email: EMAIL })).fields, { ...others, company: 'Globex', tier: 'gold' });
  const refused = await visitor.fill('/details', {
    'fields.company': '  ',
    'fields.size': 'small',
    'fields.tier': 'bronze',
  });
  t.equal(refused.status, 422);
  t.match(refused.body, sentence('user-details.required', { label: 'Company' }));
  t.match((await users.get({ email: EMAIL })).fields, { company: 'Globex', tier: 'gold' });
});

t.test('the account page works with values that no longer fit', async (t) => {
  const app = await saasApp(t, { ...HERE, userFields });
  const visitor = await visit(app);
  await signUp(visitor, EMAIL, TYPED);
  const users = userCollection(await storeOf(t, app));
  await users.updateOne({ email: EMAIL }, { set: { fields: '{"company":5,"gone":"x"}' } });
  t.equal((await visitor.get()).status, 200);
  const { status, body } = await visitor.get('/details');
  t.equal(status, 200);
  t.match(inputIn(body, 'company'), 'value=""');
});
