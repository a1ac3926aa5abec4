import { Type } from 'typebox';
import { openStore } from '../../../src/core/storage/open.js';
import { createServer } from '../../../src/saas/server.js';
import { type Mails, mailCollection } from '../../../src/shared/email/store.js';
import { MAIL_NAMES } from '../../../src/shared/email/templates.js';
import { basic, PASSWORD, SECRETS, testOptions } from '../app.js';
import { SoftwareAuthenticator } from '../authenticator.js';
import { fakeClock } from '../clock.js';
import { FACTOR_KEY } from '../factors.js';
import { storedValues } from '../mail.js';
import { checkAnswers, saasPaths } from '../openapi.js';
import { signWebhook } from '../sign-webhook.js';
import { stripeApi } from '../stripe.js';
import { PRICES } from '../stripe-objects.js';
import { type Dice, World } from '../stripe-simulator.js';
import { CollectedValues } from './collected-values.js';
import type { FuzzAnswer } from './connection.js';
import { collectRoutes, type FuzzTarget, type Route, type Visitor } from './engine.js';
import { type FuzzRequest, type Pair, pairsOf } from './request.js';
import { UNATTAINABLE_USER_PAGES, userPageDraft } from './user-pages.js';

/** The backend of a subscription product, and valid requests for its flows. */

const KINDS = {
  access: /"accessToken":"([\w.-]+)"/g,
  refresh: /"refreshToken":"([\w.-]+)"/g,
  challenge: /"challenge":"([\w.-]+)"/g,
  loginToken: /"loginToken":"([\w.-]+)"/g,
  user: /\busr_[0-9a-f]{32}/g,
  session: /"id":"(\w+)","createdAt"/g,
  checkout: /"sessionId":"(\w+)"/g,
  form: /name="token" value="(\d+\.[\w-]{43})"/g,
  pageForm: /name="form" value="(\d+\.[\w-]{43})"/g,
  event: /\bevt_\d+\b/g,
  mail: /\bmail_[0-9a-f]{32}/g,
  endpoint: /\bwhe_[0-9a-f]{32}/g,
  delivery: /\bdlv_[\w-]{43}/g,
  // Found only in e-mails.
  reset: null,
  verify: null,
  code: null,
};

/** E-mails with a link → the kind of its token. */
const LINKS = { 'password-reset': 'reset', 'verify-email': 'verify' } as const;

/** Requests that may have put such e-mails into the outbox. */
const MAILING = /^\/api\/(auth\/(register|forgot-password|resend-verification|email-login)|user\/email)$/;

type Recipe = (self: SaasVisitor) => Partial<FuzzRequest>;

const json = (value: object): Partial<FuzzRequest> => ({ body: { json: value } });
/** New ones each time: mutations change a request in place. */
const asAdmin = (): Pair[] => [
  ['authorization', basic()],
  ['x-requested-with', 'fuzz'],
];

/** Of the pages that use passkeys: the public address of `testOptions`. */
const ORIGIN = 'http://app.example.test';

const SETTINGS = '/admin/api/settings';

/** Where the pages of the admin area show and change what has a path of its own. */
const PAGES: Record<string, string> = { '/admin/settings': SETTINGS };

const CUSTOM_SETTINGS = `${SETTINGS}/custom`;

/** In JSON and in the form of the admin area. */
const VERSION = /\bversion"(?::| value=")(\d+)/;

/** Every route whose request needs more than its path and, if the route requires a user, a token. */
const RECIPES: Record<string, Recipe> = {
  'POST /api/auth/register': (self) => json({ email: self.newcomer(), password: PASSWORD, name: 'Person' }),
  'POST /api/auth/login': (self) => json({ email: self.email(), password: PASSWORD }),
  'POST /api/auth/refresh': (self) => json({ refreshToken: self.one('refresh') }),
  'POST /api/auth/logout': (self) =>
    self.asUser({ refreshToken: self.one('refresh'), scope: self.dice.one(['local', 'others', 'global']) }),
  'POST /api/auth/reauthenticate': (self) => self.asUser({ password: PASSWORD }),
  'POST /api/auth/second-factor': (self) => json({ challenge: self.one('challenge'), code: '000000' }),
  'POST /api/auth/second-factor/begin': (self) => json({ challenge: self.one('challenge') }),
  'POST /api/auth/second-factor/confirm': (self) =>
    json({ challenge: self.one('challenge'), code: '000000' }),
  'POST /api/user/second-factor/confirm': (self) => self.asUser({ code: '000000' }),
  'POST /api/user/second-factor/recovery-codes': (self) => self.asUser({ code: '000000' }),
  'POST /api/user/second-factor/remove': (self) => self.asUser({ password: PASSWORD, code: '000000' }),
  'GET /api/auth/login/:provider': (self) => ({
    path: '/api/auth/login/github',
    headers: self.browser(),
    query: pairsOf({ returnTo: '/welcome', codeChallenge: 'x'.repeat(43) }),
  }),
  'GET /api/auth/callback/:provider': () => ({
    path: '/api/auth/callback/github',
    query: pairsOf({ code: 'x', state: `${'0'.repeat(20)}.${'x'.repeat(43)}` }),
  }),
  'POST /api/auth/callback/:provider': () => ({
    path: '/api/auth/callback/github',
    body: {
      form: pairsOf({ code: 'x', state: `${'0'.repeat(20)}.${'x'.repeat(43)}` }),
    },
  }),
  'POST /api/auth/email-login': (self) => json({ email: self.email() }),
  'POST /api/auth/email-login/redeem': (self) =>
    json({ loginToken: self.one('loginToken'), code: self.one('code') }),
  'POST /api/auth/exchange': () => json({ ticket: 'v1.x', codeVerifier: 'x'.repeat(43) }),
  'GET /api/auth/agents/connect': () => ({
    query: pairsOf({ returnTo: '/welcome', codeChallenge: 'x'.repeat(43) }),
  }),
  'GET /api/auth/agents/callback': () => ({
    query: pairsOf({ code: 'x', state: `${'0'.repeat(20)}.${'x'.repeat(43)}` }),
  }),
  'POST /api/user/agent-account': (self) => self.asUser({ ticket: 'v1.x', codeVerifier: 'x'.repeat(43) }),
  'POST /api/user/identities': (self) => self.asUser({ ticket: 'v1.x', codeVerifier: 'x'.repeat(43) }),
  'DELETE /api/user/identities/:id': (self) => ({
    path: `/api/user/identities/${'x'.repeat(43)}`,
    headers: [self.bearer()],
  }),
  'POST /api/auth/register/passkey/begin': (self) => json({ email: self.newcomer(), name: 'Person' }),
  'POST /api/auth/register/passkey': (self) => json(self.response('/api/auth/register/passkey')),
  'POST /api/auth/passkey': (self) => json(self.response('/api/auth/passkey')),
  'POST /api/user/passkeys': (self) =>
    self.asUser({ ...self.response('/api/user/passkeys'), name: 'Laptop' }),
  'POST /api/user/passkeys/rename': (self) => self.ofPasskey({ name: 'Phone' }),
  'POST /api/user/passkeys/remove': (self) => self.ofPasskey({ password: PASSWORD }),
  'POST /api/auth/forgot-password': (self) => json({ email: self.email() }),
  'POST /api/auth/resend-verification': (self) => json({ email: self.email() }),
  'GET /api/auth/reset-password': (self) => ({ query: pairsOf({ token: self.link('reset') }) }),
  'POST /api/auth/reset-password': (self) => json({ token: self.link('reset'), password: PASSWORD }),
  'GET /api/auth/verify-email': (self) => ({ query: pairsOf({ token: self.link('verify') }) }),
  'POST /api/auth/verify-email': (self) => json({ token: self.link('verify'), password: PASSWORD }),
  'DELETE /api/auth/sessions/:id': (self) => ({
    path: `/api/auth/sessions/${self.one('session')}`,
    headers: [self.bearer()],
  }),
  'GET /api/auth/unlock': (self) => ({ query: pairsOf({ token: self.link('reset') }) }),
  'POST /api/user/password': (self) => self.asUser({ currentPassword: PASSWORD, newPassword: PASSWORD }),
  'POST /api/user/email': (self) => self.asUser({ email: self.newcomer(), password: PASSWORD }),
  'POST /api/user/delete': (self) => self.asUser({ password: PASSWORD }),
  'PATCH /api/user/profile': (self) => self.asUser({ name: 'Another' }),
  'POST /api/billing/create-checkout-session': (self) =>
    self.asUser({ priceId: self.dice.one(Object.keys(PRICES)), mode: 'subscription', quantity: 1 }),
  'POST /api/billing/create-portal-session': (self) => self.asUser({ returnPath: '/account' }),
  'POST /api/billing/sync': (self) =>
    self.asCustomer(self.dice.happens(0.5) ? {} : { sessionId: self.one('checkout') }),
  'POST /api/billing/subscription/change': (self) =>
    self.asCustomer({ priceId: self.dice.one(Object.keys(PRICES)), quantity: 1 + self.dice.whole(5) }),
  'GET /api/billing/subscription/change/preview': (self) => ({
    query: pairsOf({ priceId: self.dice.one(Object.keys(PRICES)), quantity: String(1 + self.dice.whole(5)) }),
    headers: [self.customer()],
  }),
  'POST /api/billing/subscription/change/undo': (self) => self.asCustomer({}),
  'POST /api/billing/subscription/add-ons': (self) =>
    self.asCustomer({ priceId: self.dice.one(Object.keys(PRICES)), quantity: 1 }),
  'GET /api/billing/subscription/add-ons/preview': (self) => ({
    query: pairsOf({ priceId: self.dice.one(Object.keys(PRICES)) }),
    headers: [self.customer()],
  }),
  'POST /api/billing/subscription/add-ons/remove': (self) =>
    self.asCustomer({ priceId: self.dice.one(Object.keys(PRICES)) }),
  'POST /api/billing/subscription/promotion-code': (self) => self.asCustomer({ code: 'LAUNCH20' }),
  'POST /api/billing/subscription/cancel': (self) =>
    self.asCustomer({ when: self.dice.happens(0.1) ? 'now' : 'period_end' }),
  'POST /api/billing/subscription/resume': (self) => self.asCustomer({}),
  'POST /api/billing/subscription/pause': (self) => self.asCustomer({}),
  'POST /api/billing/webhook': (self) => self.event(),
  'PATCH /admin/api/settings': (self) => ({
    ...json({ version: Number(self.version(SETTINGS)), siteName: 'A site' }),
    headers: asAdmin(),
  }),
  'POST /admin/settings': (self) =>
    self.adminForm({ version: self.version(SETTINGS), siteName: 'A site', allowRegistration: 'on' }),
  [`PATCH ${CUSTOM_SETTINGS}`]: (self) => ({
    ...json({
      version: Number(self.version(CUSTOM_SETTINGS)),
      values: { seats: self.dice.whole(9), key: 'a' },
    }),
    headers: asAdmin(),
  }),
  'POST /admin/settings/custom': (self) =>
    self.adminForm({ version: self.version(CUSTOM_SETTINGS), 'value-seats': '3' }),
};

/** The kind of the ID in the path of a page of the admin area. */
const ADMIN_IDS: Record<string, keyof typeof KINDS> = {
  users: 'user',
  webhooks: 'event',
  mails: 'mail',
  endpoints: 'endpoint',
  deliveries: 'delivery',
};

/** What the actions of the admin area need, as JSON and in forms. */
const ADMIN_FIELDS: Record<string, (self: SaasVisitor, id: string) => Record<string, string>> = {
  'endpoints/create': () => ({ url: 'http://127.0.0.1:9/hook', events: 'user.registered' }),
  'endpoints/:id/update': () => ({ url: 'http://127.0.0.1:9/hook' }),
  'endpoints/:id/rotate': () => ({ atOnce: 'no' }),
  'users/:id/rename': () => ({ name: 'Another' }),
  'users/:id/grant': () => ({ plan: 'pro' }),
  'users/:id/delete': (self, id) => ({ confirm: self.emailOf(id) }),
  'mails/templates/:name/test': (self) => ({ to: self.email() }),
  'webhooks/:id/assign': (self) => ({ user: self.dice.happens(0.5) ? self.email() : self.one('user') }),
};

/** A request to a route of the admin area: lists and pages need credentials only, actions their fields and, in forms, a token. */
function adminDraft(self: SaasVisitor, { method, url }: Pick<Route, 'method' | 'url'>): Partial<FuzzRequest> {
  const [, section = ''] = /^\/admin(?:\/api)?\/(\w+)/.exec(url) ?? [];
  const kind = ADMIN_IDS[section];
  const [id, session] = url.endsWith('/resync')
    ? [self.customerId(), '']
    : url.includes(':session')
      ? self.ownSession()
      : [kind ? self.one(kind) : '', ''];
  const path = url
    .replace(':id', id)
    .replace(':session', session)
    .replace(':name', self.dice.one(MAIL_NAMES));
  if (method !== 'POST') return { path, headers: asAdmin() };
  const isApi = url.startsWith('/admin/api/');
  const fields = ADMIN_FIELDS[url.replace(/^\/admin\/(api\/)?/, '')]?.(self, id) ?? {};
  if (isApi) return { path, headers: asAdmin(), ...json(fields) };
  return { path, ...self.adminForm(fields) };
}

const resourceOf = (path: string): string => {
  const plain = path.replace(/\/?(\?.*)?$/, '');
  return PAGES[plain] ?? plain;
};

const NOT_FAILED = 'no e-mail fails within the time of the fuzz';
const NOT_ENDED = 'a delivery ends only if its endpoint is disabled, and is sent again only if it is enabled';
const NO_MAIL_SERVER = 'no mail server listens';

let names = 0;

interface Surroundings {
  now: () => number;
  mails: Mails;
  /** Pays on the checkout page of the provider. */
  pay(sessionId: string): void;
}

class SaasVisitor implements Visitor {
  readonly dice: Dice;
  readonly #collected = new CollectedValues(KINDS);
  readonly #emails = ['person@example.test'];
  readonly #versions = new Map<string, string>();
  readonly #emailOf = new Map<string, string>();
  /** The last session of each user that is known. */
  readonly #sessionOf = new Map<string, string>();
  readonly #now: () => number;
  readonly #mails: Mails;
  readonly #pay: (sessionId: string) => void;
  #customer: Pair | undefined;
  /** The ceremonies of passkeys that were begun last, by the path where they end. */
  readonly #begun = new Map<string, { ceremony: string; options: object }>();
  /** The newest one of this visitor, and the one that has signed up last with the user. */
  #created = new SoftwareAuthenticator(ORIGIN);
  #owned: { authenticator: SoftwareAuthenticator; bearer: Pair } | undefined;

  constructor(dice: Dice, { now, mails, pay }: Surroundings) {
    this.dice = dice;
    this.#now = now;
    this.#mails = mails;
    this.#pay = pay;
  }

  draft({ method, url }: Route): FuzzRequest {
    const recipe =
      RECIPES[`${method} ${url}`]?.(this) ??
      userPageDraft(this, method, url) ??
      (/^\/admin\b/.test(url) ? adminDraft(this, { method, url }) : { headers: [this.bearer()] });
    return { method, path: url, query: [], headers: [], ...recipe };
  }

  async learn({ path, body, headers }: FuzzRequest, answer: FuzzAnswer): Promise<void> {
    this.#collected.learn(answer);
    const [, version] = VERSION.exec(answer.body) ?? [];
    if (version !== undefined) this.#versions.set(resourceOf(path), version);
    for (const [, id = '', email = ''] of answer.body.matchAll(/"id":"(usr_\w+)","email":"([^"]+)"/g))
      this.#emailOf.set(id, email);
    const [, user, session] =
      /"user":\{"id":"(usr_\w+)".*"session":\{"id":"(ses_\w+)"/.exec(answer.body) ?? [];
    if (user !== undefined && session !== undefined) this.#sessionOf.set(user, session);
    const [, end] = /^(\/api\/.*passkeys?)\/begin$/.exec(path) ?? [];
    if (end !== undefined && answer.status === 200) this.#begun.set(end, JSON.parse(answer.body).data);
    if (path === '/api/auth/register/passkey' && answer.status === 201) {
      const bearer: Pair = ['authorization', `Bearer ${JSON.parse(answer.body).data.accessToken}`];
      this.#owned = { authenticator: this.#created, bearer };
    }
    if (MAILING.test(path)) await this.#readMails();
    if (path === '/api/billing/webhook' && body && 'raw' in body) {
      const [id] = /\bevt_\d+\b/.exec(String(body.raw)) ?? [];
      if (id !== undefined) this.#collected.add('event', id);
    }
    if (path === '/api/billing/create-checkout-session') {
      this.#pay(JSON.parse(answer.body).data.sessionId);
      this.#customer = headers.find(([name]) => name === 'authorization');
    }
    if (path !== '/api/auth/register' || answer.status !== 201 || !body || !('json' in body)) return;
    const { email } = JSON.parse(answer.body).data.user;
    this.#emails.push(email);
    if (this.#emails.length > 6) this.#emails.shift();
  }

  known(): string {
    return this.dice.one([
      this.#collected.any(this.dice),
      this.#collected.any(this.dice),
      this.email(),
      SECRETS.adminPassword,
    ]);
  }

  one(kind: keyof typeof KINDS): string {
    return this.#collected.one(kind, this.dice);
  }

  /** The last one of the resource at this path, which every write of it needs. */
  version(path: string): string {
    return this.#versions.get(path) ?? '0';
  }

  emailOf = (id: string): string => this.#emailOf.get(id) ?? 'unknown';
  /** The ID of the user who bought last. */
  customerId(): string {
    const [, claims] = /^Bearer \w+[\w-]*\.([\w-]+)\./.exec(this.customer()[1]) ?? [];
    return claims === undefined ? 'none' : JSON.parse(Buffer.from(claims, 'base64url').toString()).sub;
  }

  ownSession = (): [user: string, session: string] => [...this.#sessionOf].at(-1) ?? ['none', 'none'];
  email = (): string => this.dice.one(this.#emails);
  newcomer = (): string => `f${names++}@example.test`;
  pageForm = (): string =>
    this.dice.happens(0.7) ? this.#collected.latest('pageForm') : this.one('pageForm');
  browser = (): Pair[] => [
    ['cookie', this.#collected.cookie],
    ['accept', 'text/html'],
    ['sec-fetch-site', 'same-origin'],
  ];
  bearer = (): Pair => ['authorization', `Bearer ${this.one('access')}`];

  /** A form of the admin area. */
  adminForm = (fields: Record<string, string>): Partial<FuzzRequest> => ({
    body: { form: pairsOf({ token: this.one('form'), ...fields }) },
    headers: [...asAdmin(), ['sec-fetch-site', 'same-origin']],
  });

  /** A request of a user with this JSON. */
  asUser = (value: object): Partial<FuzzRequest> => ({ ...json(value), headers: [this.bearer()] });
  asCustomer = (value: object): Partial<FuzzRequest> => ({ ...json(value), headers: [this.customer()] });

  /** The user who bought last. */
  customer = (): Pair => (this.#customer ? [...this.#customer] : this.bearer());

  /** What an authenticator responds to the ceremony that was begun last. */
  response(path: string): { ceremony: string; credential: unknown } {
    const { ceremony, options } = this.#begun.get(path) ?? { ceremony: 'none', options: { challenge: 'x' } };
    const text = JSON.stringify(options);
    if (path === '/api/auth/passkey') {
      const { authenticator } = this.#owned ?? { authenticator: this.#created };
      return { ceremony, credential: JSON.parse(authenticator.get(text)) };
    }
    this.#created = new SoftwareAuthenticator(ORIGIN);
    return { ceremony, credential: JSON.parse(this.#created.create(text)) };
  }

  /** A change of the passkey that has signed up last. */
  ofPasskey(change: object): Partial<FuzzRequest> {
    const id = (this.#owned?.authenticator ?? this.#created).name;
    const bearer = this.#owned?.bearer ?? this.bearer();
    return { ...json({ id, ...change }), headers: [[...bearer] as Pair] };
  }

  /** Mostly from an e-mail. */
  link(kind: 'reset' | 'verify'): string {
    return this.dice.happens(0.9) ? this.one(kind) : `${this.one('user')}.${'x'.repeat(43)}`;
  }

  /** Collects the links of all e-mails, with the credentials of an operator. */
  async #readMails(): Promise<void> {
    const { items } = await this.#mails.page({ sort: 'id', desc: true, limit: 4 });
    for (const mail of items) {
      const { code, link } = storedValues(mail, SECRETS.jwtRefreshSecret);
      if (code !== undefined) this.#collected.add('code', code);
      const kind = LINKS[mail.template as keyof typeof LINKS];
      if (kind && link !== undefined)
        this.#collected.add(kind, new URL(link).searchParams.get('token') ?? '');
    }
  }

  /** Signed as the provider signs it; a mutated body keeps the signature of the original. */
  event(): Partial<FuzzRequest> {
    const { dice } = this;
    const type = dice.one([
      'customer.subscription.updated',
      'customer.subscription.deleted',
      'invoice.paid',
      'x',
    ]);
    const object = {
      id: `sub_${dice.whole(20)}`,
      status: dice.one(['active', 'canceled', 'past_due', 1, null]),
    };
    const event = {
      id: `evt_${dice.whole(1e6)}`,
      type,
      created: Math.floor(this.#now() / 1000),
      data: { object },
    };
    const text = JSON.stringify(dice.happens(0.1) ? dice.one([null, [], 1, {}]) : event);
    const signature = signWebhook(text, SECRETS.paymentWebhookSecret, this.#now());
    return { body: { raw: text }, headers: [['payment-signature', signature]] };
  }
}

/** @param folder of the store */
export async function saasTarget(folder: string): Promise<FuzzTarget> {
  const clock = fakeClock();
  const world = new World(1, clock.now() / 1000);
  const provider = await stripeApi(world);
  const pay = (sessionId: string) => {
    const session = provider.sessions.get(sessionId);
    const { customer, client_reference_id: userId } = session ?? {};
    if (!session || !customer || !userId) return;
    session['status'] = 'complete';
    const terms = { status: 'active', price: 'price_basic', quantity: 1, trialEnd: null };
    Object.assign(world.subscribe(String(customer), String(userId), true), terms);
  };
  const options = testOptions(folder);
  const server = createServer({
    ...options,
    clock,
    limits: false,
    paymentSecretKey: 'sk_test_51Qm7vLd0mXw4RkT9cYb2NfHs6',
    paymentApiUrl: provider.url,
    billingAllowPause: true,
    factorEncryptionKey: FACTOR_KEY,
    passkeys: true,
    emailLogin: true,
    accountPages: true,
    // The browser is sent to GitHub without a request before.
    login: { github: { clientId: 'fuzz', clientSecret: 'fuzz-Wq8ZsT1mXe6YbN0cRj4HuPd9' } },
    // Nothing answers there.
    ...{ agentIssuer: 'http://127.0.0.1:9', agentResource: 'http://localhost/api', agentClientId: 'fuzz' },
    settingsEncryptionKey: 'settings-Kq8ZsT1mXe6YbN0cRj4HuPd9',
    webhooks: true,
    customSettings: {
      seats: { schema: Type.Integer({ minimum: 0, maximum: 9 }), public: true, default: 1 },
      key: { schema: Type.String(), secret: true },
    },
  } as never);
  const routes = collectRoutes(server.fastify);
  const undocumented: string[] = [];
  checkAnswers({ fail: (problem) => undocumented.push(problem) }, server.fastify, saasPaths({}));
  const { url } = await server.start();
  const store = await openStore(options.databaseUri);
  const mails = mailCollection(store);
  const register = (email: string) =>
    server.fastify.inject({
      method: 'POST',
      url: '/api/auth/register',
      payload: { email, password: PASSWORD },
    });
  await register('person@example.test');

  const openToUsers = async (): Promise<void> => {
    // Fuzzed settings may lock users out, as an operator may.
    const settings = { allowRegistration: true, maintenanceMode: false };
    const admin = Object.fromEntries(asAdmin());
    const { version } = (await server.fastify.inject({ url: SETTINGS, headers: admin })).json().data;
    const patched = await server.fastify.inject({
      method: 'PATCH',
      url: SETTINGS,
      headers: admin,
      payload: { ...settings, version },
    });
    if (patched.statusCode !== 200) throw new Error(`the settings cannot be changed: ${patched.body}`);
  };

  return {
    url,
    routes,
    busiest: routes.filter(({ url: path }) =>
      /^\/api\/auth\/(login|refresh|register)(\/:provider)?$/.test(path),
    ),
    clock,
    visitor: (dice) => new SaasVisitor(dice, { now: clock.now, mails, pay }),
    undocumented,
    unattainable: {
      ...Object.fromEntries(
        [
          ...['/api/auth/second-factor', '/api/auth/second-factor/begin', '/api/auth/second-factor/confirm'],
          ...['confirm', 'recovery-codes', 'remove'].map((verb) => `/api/user/second-factor/${verb}`),
          ...['/admin', '/admin/api'].map((root) => `${root}/users/:id/remove-second-factor`),
        ].map((path) => [`POST ${path}`, 'users without a factor sign in']),
      ),
      'POST /api/user/second-factor/begin': 'few addresses are verified',
      'POST /api/user/passkeys/begin': 'few addresses are verified',
      'POST /api/user/passkeys': 'few addresses are verified',
      'POST /api/user/passkeys/remove': 'the only passkey of an account without a password stays',
      'POST /admin/users/:id/remove-passkeys': 'few users have one',
      'POST /admin/api/users/:id/remove-passkeys': 'few users have one',
      ...Object.fromEntries(
        [
          ...['GET /api/auth/callback/:provider', 'POST /api/auth/exchange'],
          ...['POST /api/user/identities', 'DELETE /api/user/identities/:id'],
        ].map((route) => [route, 'nobody signs in at the provider']),
      ),
      ...Object.fromEntries(
        [...['GET /api/auth/agents/callback'], 'POST /api/user/agent-account'].map((route) => [
          route,
          'there is no identity provider',
        ]),
      ),
      'POST /api/auth/email-login/redeem': 'a code meets its login token only by chance',
      ...UNATTAINABLE_USER_PAGES,
      'POST /api/auth/unlock': 'without limits no account is locked, and no mail has such a link',
      'POST /admin/deliveries/:id/resend': NOT_ENDED,
      'POST /admin/api/deliveries/:id/resend': NOT_ENDED,
      'POST /admin/mails/:id/retry': NOT_FAILED,
      'POST /admin/api/mails/:id/retry': NOT_FAILED,
      'POST /admin/mails/templates/:name/test': NO_MAIL_SERVER,
      'POST /admin/api/mails/templates/:name/test': NO_MAIL_SERVER,
    },
    // The provider of the fuzz is up, and what nobody configured says so.
    unavailable: ['NOT_READY', 'OVERLOADED', 'MAINTENANCE', 'IDENTITY_PROVIDER_UNAVAILABLE'],
    codeOf: (body) => {
      const { success, message, error } = (body ?? {}) as Record<string, unknown>;
      const { code } = (error ?? {}) as { code?: unknown };
      return success === false && typeof message === 'string' && typeof code === 'string' ? code : undefined;
    },
    renew: openToUsers,
    async prove() {
      await openToUsers();
      const { statusCode, body } = await register('last@example.test');
      if (statusCode !== 201) throw new Error(`sign-up fails after the fuzzing: ${body}`);
    },
    async stop() {
      await store.close();
      await server.stop();
      await provider.close();
    },
  };
}
