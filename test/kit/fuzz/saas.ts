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
import { schemaDraft } from './drafts.js';
import { collectRoutes, type FuzzTarget, type Route, type Visitor } from './engine.js';
import type { FuzzRequest, Pair } from './request.js';

/** The backend of a subscription product, and the values of its requests. */

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
  organization: /\borg_[0-9a-f]{32}/g,
  invitation: /\binv_[\w-]{43}/g,
  // Found only in e-mails.
  reset: null,
  verify: null,
  code: null,
};

/** E-mails with a link → the kind of its token. */
const LINKS = { 'password-reset': 'reset', 'verify-email': 'verify' } as const;

/** Requests that may have put such e-mails into the outbox. */
const MAILING = /^\/api\/(auth\/(register|forgot-password|resend-verification|email-login)|user\/email)$/;

/** New ones each time: mutations change a request in place. */
const asAdmin = (): Pair[] => [
  ['authorization', basic()],
  ['x-requested-with', 'fuzz'],
];

/** As a browser sends a form of a page. */
const asPage = (): Pair[] => [
  ['accept', 'text/html'],
  ['sec-fetch-site', 'same-origin'],
];

/** Of the pages that use passkeys: the public address of `testOptions`. */
const ORIGIN = 'http://app.example.test';

const SETTINGS = '/admin/api/settings';

/** Where the pages of the admin area show and change what has a path of its own. */
const PAGES: Record<string, string> = { '/admin/settings': SETTINGS };

/** In JSON and in the form of the admin area. */
const VERSION = /\bversion"(?::| value=")(\d+)/;

const NEWCOMERS = /register|sign-up|user\/email|account\/address/;

/** Values by the names of fields and parameters. */
const FIELDS: Record<string, (self: SaasVisitor, url: string) => unknown> = {
  email: (self, url) => (NEWCOMERS.test(url) ? self.newcomer() : self.email()),
  ...Object.fromEntries(
    ['password', 'currentPassword', 'newPassword', 'current_password', 'password_confirm'].map((name) => [
      name,
      () => PASSWORD,
    ]),
  ),
  name: () => 'Person',
  refreshToken: (self) => self.one('refresh'),
  scope: (self) => self.dice.one(['local', 'others', 'global']),
  token: (self, url) =>
    /^\/admin/.test(url) ? self.one('form') : self.link(/verify/.test(url) ? 'verify' : 'reset'),
  challenge: (self) => self.one('challenge'),
  code: (self) => self.one('code'),
  loginToken: (self) => self.one('loginToken'),
  interaction: () => 'a.b.c',
  returnTo: () => '/welcome',
  return_to: () => '/welcome',
  codeChallenge: () => 'x'.repeat(43),
  codeVerifier: () => 'x'.repeat(43),
  ticket: () => 'v1.x',
  state: () => `${'0'.repeat(20)}.${'x'.repeat(43)}`,
  provider: () => 'github',
  ':provider': () => 'github',
  ceremony: (self) => self.begun.ceremony,
  credential: (self, url) => self.credential(url),
  id: (self, url) => (/invitations/.test(url) ? self.one('invitation') : 'x'),
  organization: (self) => self.one('organization'),
  ':organization': (self) => self.one('organization'),
  role: (self) => self.dice.one(['owner', 'admin', 'member']),
  slug: () => `slug-${names++}`,
  logoUrl: () => 'https://example.com/logo.svg',
  ':id': (self, url) => self.idIn(url),
  ':session': (self) => self.one('session'),
  ':name': (self) => self.dice.one(MAIL_NAMES),
  priceId: (self) => self.dice.one(Object.keys(PRICES)),
  price: (self) => self.dice.one(Object.keys(PRICES)),
  mode: () => 'subscription',
  quantity: (self) => 1 + self.dice.whole(5),
  returnPath: () => '/account',
  sessionId: (self) => self.one('checkout'),
  when: (self) => (self.dice.happens(0.1) ? 'now' : 'period_end'),
  form: (self) => self.pageForm(),
  sid: (self) => self.one('session'),
  confirm: (self) => self.emailOf(),
  version: (self, url) => Number(self.version(resourceOf(url))),
  siteName: () => 'A site',
  allowRegistration: (_, url) => (url === '/admin/settings' ? 'on' : true),
  values: (self) => ({ seats: self.dice.whole(9), key: 'a' }),
  'value-seats': () => '3',
  plan: () => 'pro',
  user: (self) => (self.dice.happens(0.5) ? self.email() : self.one('user')),
  url: () => 'http://127.0.0.1:9/hook',
  events: () => 'user.registered',
  atOnce: () => 'no',
  to: (self) => self.email(),
};

/** The kind of the ID in the path of a page of the admin area. */
const ADMIN_IDS: Record<string, keyof typeof KINDS> = {
  users: 'user',
  webhooks: 'event',
  mails: 'mail',
  endpoints: 'endpoint',
  deliveries: 'delivery',
};

const resourceOf = (path: string): string => {
  const plain = path.replace(/\/?(\?.*)?$/, '');
  return PAGES[plain] ?? plain;
};

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
  /** In the path of the last request. */
  #id = '';
  readonly #now: () => number;
  readonly #mails: Mails;
  readonly #pay: (sessionId: string) => void;
  #customer: Pair | undefined;
  readonly #authenticator = new SoftwareAuthenticator(ORIGIN);
  /** The ceremony of a passkey that was begun last. */
  begun: { ceremony: string; options: object } = { ceremony: 'none', options: { challenge: 'x' } };

  constructor(dice: Dice, { now, mails, pay }: Surroundings) {
    this.dice = dice;
    this.#now = now;
    this.#mails = mails;
    this.#pay = pay;
  }

  draft(route: Route): FuzzRequest {
    const { url } = route;
    if (url === '/api/billing/webhook') return { method: 'POST', path: url, query: [], ...this.event() };
    const isPage = /^\/(account|admin(?!\/api))\b/.test(url);
    const headers = [
      ...(/^\/admin\b/.test(url)
        ? asAdmin()
        : [this.bearer(url), ['cookie', this.#collected.cookie] as Pair]),
      ...(isPage ? asPage() : []),
    ];
    const fieldOf = (name: string) => FIELDS[name]?.(this, url);
    const request = schemaDraft(route, { fieldOf, headers, dice: this.dice });
    // Their token is not in the schema.
    if (url.startsWith('/admin/settings') && request.body && 'form' in request.body)
      request.body.form.push(['token', this.one('form')]);
    return request;
  }

  async learn({ path, body, headers }: FuzzRequest, answer: FuzzAnswer): Promise<void> {
    this.#collected.learn(answer);
    const [, version] = VERSION.exec(answer.body) ?? [];
    if (version !== undefined) this.#versions.set(resourceOf(path), version);
    for (const [, id = '', email = ''] of answer.body.matchAll(/"id":"(usr_\w+)","email":"([^"]+)"/g))
      this.#emailOf.set(id, email);
    if (/passkeys?\/begin$/.test(path) && answer.status === 200) this.begun = JSON.parse(answer.body).data;
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

  idIn(url: string): string {
    if (/invitations/.test(url)) return this.one('invitation');
    const [, section = ''] = /^\/admin(?:\/api)?\/(\w+)/.exec(url) ?? [];
    const kind = ADMIN_IDS[section];
    this.#id = kind ? this.one(kind) : 'x'.repeat(43);
    return this.#id;
  }

  /** Of the user in the path. */
  emailOf = (): string => this.#emailOf.get(this.#id) ?? this.email();
  email = (): string => this.dice.one(this.#emails);
  newcomer = (): string => `f${names++}@example.test`;
  pageForm = (): string =>
    this.dice.happens(0.7) ? this.#collected.latest('pageForm') : this.one('pageForm');

  /** For billing mostly that of the user who bought last. */
  bearer(url: string): Pair {
    if (this.#customer && /billing/.test(url) && this.dice.happens(0.7)) return [...this.#customer];
    return ['authorization', `Bearer ${this.one('access')}`];
  }

  /** What an authenticator responds to the ceremony that was begun last. */
  credential(url: string): unknown {
    const { ceremony, options } = this.begun;
    if (ceremony === 'none') return '{}';
    const text = JSON.stringify(options);
    const isSignIn = url === '/api/auth/passkey';
    return JSON.parse(isSignIn ? this.#authenticator.get(text) : this.#authenticator.create(text));
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
  event(): Pick<FuzzRequest, 'body' | 'headers'> {
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
    organizations: true,
    apiKeys: true,
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
    // The provider of the fuzz is up, and what nobody configured says so.
    unavailable: ['NOT_READY', 'OVERLOADED', 'MAINTENANCE', 'IDENTITY_PROVIDER_UNAVAILABLE'],
    codeOf: (body) => {
      const { success, message, error } = (body ?? {}) as Record<string, unknown>;
      const { code } = (error ?? {}) as { code?: unknown };
      return success === false && typeof message === 'string' && typeof code === 'string' ? code : undefined;
    },
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
