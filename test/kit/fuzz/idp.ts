import { DAY } from '../../../src/core/kernel/clock.js';
import { newId, sha256, systemRandom } from '../../../src/core/kernel/secrets.js';
import { documentCollection } from '../../../src/core/outbound/documents.js';
import { openStore } from '../../../src/core/storage/open.js';
import { logoutNoticeCollection } from '../../../src/idp/oidc/backchannel/store.js';
import { DELEGATION, delegationCollection } from '../../../src/idp/oidc/delegations/store.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';
import { SESSION, sessionCollection } from '../../../src/idp/oidc/store.js';
import { TOKEN_EXCHANGE } from '../../../src/idp/oidc/tokens/request.js';
import { clientCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { registrationTokenCollection } from '../../../src/idp/registration/store.js';
import { createIdentityServer } from '../../../src/idp/server.js';
import { type Mails, mailCollection } from '../../../src/shared/email/store.js';
import { basic, PASSWORD } from '../app.js';
import { fakeClock } from '../clock.js';
import { TYPES } from '../delegations.js';
import { DEVICE_GRANT } from '../device.js';
import { FACTOR_KEY } from '../factors.js';
import { ID_TOKEN, trustIn } from '../identity-assertions.js';
import { ADMIN_TOKEN, CALLBACK, idpOptions, SEED, VERIFIER } from '../idp.js';
import { storedValues } from '../mail.js';
import { checkAnswers, idpPaths } from '../openapi.js';
import { COMMAND_SOURCE } from '../operator.js';
import { countedRandom } from '../random.js';
import { FILES, FILES_INPUT, resourcesIn } from '../resources.js';
import type { Dice } from '../stripe-simulator.js';
import { CollectedValues } from './collected-values.js';
import type { FuzzAnswer } from './connection.js';
import { collectRoutes, type FuzzTarget, type Route, type Visitor } from './engine.js';
import { EVIL } from './mutations.js';
import { type FuzzRequest, type Pair, pairsOf } from './request.js';

/** The identity provider, and valid requests for its flows. */

const LEFT = 'https://app.example.test/left';
const SCOPES = ['openid', 'email', 'profile', 'offline_access'];

const KINDS = {
  code: /\bac_[\w-]{75}/g,
  access: /\bat_[0-9a-f]{32}[\w-]{43}/g,
  refresh: /\brt_[0-9a-f]{32}[\w-]{43}/g,
  delegationToken: /\bdt_[0-9a-f]{32}[\w-]{43}/g,
  delegation: /delegations(?:\/|&#x2F;)(dlg_[0-9a-f]{32})(?:\/|&#x2F;)end/g,
  // Their header names the type at+jwt.
  resourceToken: /\beyJhbGciOiJFZERTQSIsInR5cCI6ImF0K2p3dCI[\w-]+\.[\w-]+\.[\w-]+/g,
  idToken: /\beyJ[\w-]+\.[\w-]+\.[\w-]+/g,
  deviceCode: /\bdc_[0-9a-f]{32}[\w-]{43}/g,
  userCode: /\b[BCDFGHJKLMNPQRSTVWXZ]{4}-[BCDFGHJKLMNPQRSTVWXZ]{4}\b/g,
  interaction: /name="interaction" value="([\w.-]+)"/g,
  form: /name="form" value="([\w.-]+)"/g,
  confirm: /name="confirm" value="([\w-]+)"/g,
  link: /\/invite\/([\w-]{70,})/g,
  // Found only in e-mails.
  verify: null,
  sub: /\bu_[0-9a-f]{32}/g,
  client: /class="secret" value="(cid_[\w-]+)"/g,
  invited: /invitations&#x2F;(u_[0-9a-f]{32})&#x2F;withdraw/g,
  notice: /logout-failures(?:\/|&#x2F;)([\w.-]+)(?:\/|&#x2F;)retry/g,
  document: /metadata-clients(?:\/|&#x2F;)([\w-]{43})(?:\/|&#x2F;)(?:block|admit)/g,
  sid: /sessions(?:\/|&#x2F;)(sid_[0-9a-f]{32})(?:\/|&#x2F;)end/g,
  requestUri: /"request_uri":"(urn:[^"]+)"/g,
  token: /name="token" value="(\d+\.[\w-]{43})"/g,
  next: /"next":"([^"]+)"/g,
};

interface Client {
  id: string;
  secret?: string;
}

interface Person {
  handle: string;
  password: string;
}

/** What all clients know from the beginning. */
interface Common {
  clients: Client[];
  agents: Person[];
  people: Person[];
  /** Sessions of the operator in other browsers. */
  operatorSids: string[];
  /** The first of the people. */
  operatorSub: string;
  resourceServer: Required<Client>;
  /** An agent that nothing else depends on. */
  spareAgent: Person & { sub: string };
  /** Whether the client signs in as no other person, so that it always reaches the console. */
  isOperator: boolean;
}

type Recipe = (self: IdpVisitor) => Partial<FuzzRequest>;

const bearer = (token: string): Pair => ['authorization', `Bearer ${token}`];
const asAdmin: Pair = bearer(ADMIN_TOKEN);

/** Every route whose request needs more than its path. */
const RECIPES: Record<string, Recipe> = {
  'GET /authorize': (self) => ({ query: self.authorization(), headers: [self.authorizationHeader()] }),
  'POST /authorize': (self) => ({ body: { form: self.authorization() }, headers: self.browser() }),
  'POST /authorize/login': (self) => {
    const { handle, password } = self.person();
    return self.interaction({ handle, password });
  },
  'POST /authorize/consent': (self) => self.interaction({ decision: self.dice.one(['allow', 'deny']) }),
  'POST /token': (self) => {
    const request = self.asClient(self.exchange());
    if (self.dice.happens(0.9)) return request;
    return { ...request, headers: [...(request.headers ?? []), ['dpop', self.one('idToken')]] };
  },
  'POST /par': (self) => self.asClient(self.authorization().filter(([name]) => name !== 'client_id')),
  'POST /device_authorization': (self) => {
    const scope: Pair = ['scope', 'openid offline_access'];
    return self.asClient(self.dice.happens(0.2) ? [scope, ['resource', FILES]] : [scope]);
  },
  'GET /device': (self) => ({ query: [['user_code', self.one('userCode')]], headers: self.browser() }),
  'POST /device': (self) => self.accountForm({ user_code: self.newestOr('userCode') }),
  'POST /device/confirm': (self) =>
    self.accountForm(
      { user_code: self.newestOr('userCode'), decision: self.dice.one(['allow', 'deny']) },
      self.newestOr('form'),
    ),
  'POST /revoke': (self) => self.asClient([['token', self.token()]]),
  'POST /introspect': (self) =>
    self.dice.happens(0.3)
      ? self.asResourceServer([['token', self.one('resourceToken')]])
      : self.asClient(pairsOf({ token: self.token(), token_type_hint: 'access_token' })),
  'GET /userinfo': (self) => ({ headers: [bearer(self.one('access'))] }),
  'POST /userinfo': (self) =>
    self.dice.happens(0.5)
      ? { headers: [bearer(self.one('access'))] }
      : { body: { form: pairsOf({ access_token: self.one('access') }) } },
  'GET /logout': (self) => ({ query: self.logout(), headers: self.browser() }),
  'POST /logout': (self) => ({
    body: { form: self.dice.happens(0.5) ? [['confirm', self.one('confirm')]] : self.logout() },
    headers: self.browser(),
  }),
  'POST /authorize/sign-up': (self) => {
    const chosen = { password: PASSWORD, password_confirm: PASSWORD };
    return self.interaction({ ...self.newcomer(), ...chosen });
  },
  'POST /authorize/sign-up/passkey': (self) => self.interaction({ ...self.newcomer(), credential: '{}' }),
  'GET /account/sign-up': (self) => ({ headers: self.browser() }),
  'GET /account': (self) => ({ query: [['done', 'renamed']], headers: self.browser() }),
  'POST /account/name': (self) => self.accountForm({ name: 'Ada' }),
  'POST /account/sessions/end': (self) => self.accountForm({ sid: self.one('sid') }),
  'POST /account/sessions/end-others': (self) => self.accountForm({}),
  'POST /account/verification': (self) => self.accountForm({}),
  'GET /account/second-factor': (self) => ({ headers: self.browser() }),
  'POST /account/second-factor/begin': (self) => self.accountForm({}),
  'POST /account/second-factor/confirm': (self) => self.accountForm({ code: '000000' }),
  'POST /account/second-factor/recovery-codes': (self) => self.accountForm({ code: '000000' }),
  'POST /account/second-factor/remove': (self) =>
    self.accountForm({ code: '000000', password: self.person().password }),
  'GET /account/passkeys': (self) => ({ query: [['done', 'passkey-added']], headers: self.browser() }),
  'POST /account/passkeys/add': (self) => self.accountForm({ credential: '{}', name: 'Laptop' }),
  'POST /account/passkeys/rename': (self) => self.accountForm({ id: 'x', name: 'Laptop' }),
  'POST /account/passkeys/remove': (self) => self.accountForm({ id: 'x' }),
  'POST /authorize/passkey': (self) => self.interaction({ credential: '{}' }),
  'POST /authorize/second-factor': (self) => self.interaction({ code: '000000' }),
  'POST /authorize/second-factor/enrol': (self) => self.interaction({ code: '000000' }),
  'POST /account/applications/disconnect': (self) => self.accountForm({ client_id: self.client().id }),
  'POST /account/delegations/end': (self) => self.accountForm({ delegation: self.one('delegation') }),
  'GET /account/delete': (self) => ({ headers: self.browser() }),
  'POST /account/delete': (self) =>
    self.accountForm({ confirm: self.person().handle, password: 'not the password' }),
  'GET /account/password': (self) => ({ headers: self.browser() }),
  'POST /account/password': (self) => {
    const { password } = self.person();
    return self.accountForm({ current_password: password, password, password_confirm: password });
  },
  'POST /v1/accounts': (self) => ({
    body: { json: { ...self.newcomer(), kind: self.dice.one(['human', 'agent']), password: PASSWORD } },
  }),
  'POST /v1/agents': (self) => ({ body: { json: self.newcomer() }, headers: [asAdmin] }),
  'POST /v1/agents/self/rotate': (self) => {
    const { handle, password } = self.agent();
    return { headers: [['authorization', basic(handle, password)]] };
  },
  'DELETE /v1/agents/:sub': (self) => ({ path: `/v1/agents/${self.ownSub}`, headers: [asAdmin] }),
  'POST /v1/invites': (self) => ({
    body: { json: { ...self.newcomer(), days: 1 + self.dice.whole(30) } },
    headers: [asAdmin],
  }),
  'GET /invite/:token': (self) => ({ path: `/invite/${self.one('link')}`, headers: self.browser() }),
  'POST /invite/:token': (self) => ({
    path: `/invite/${self.one('link')}`,
    body: { form: pairsOf({ password: PASSWORD, password_confirm: PASSWORD }) },
  }),
  'POST /account/forgot-password': (self) => self.browserForm({ handle: self.newest().handle }),
  'GET /verify/:token': (self) => ({ path: `/verify/${self.one('verify')}`, headers: self.browser() }),
  'POST /verify/:token': (self) => ({
    path: `/verify/${self.one('verify')}`,
    body: { form: pairsOf({ password: PASSWORD }) },
  }),
  'POST /v1/clients': (self) => ({
    body: {
      json: {
        client_name: 'An application',
        redirect_uris: [CALLBACK],
        post_logout_redirect_uris: LEFT,
        public: self.dice.happens(0.3),
        principal_kinds: ['agent', 'human'],
      },
    },
    headers: [asAdmin],
  }),
  'GET /revocations': () => ({}),
  'POST /register': (self) => ({
    body: {
      json: {
        client_name: 'An application',
        redirect_uris: [CALLBACK],
        token_endpoint_auth_method: self.dice.happens(0.5) ? 'none' : 'client_secret_basic',
      },
    },
    headers: [bearer(REGISTRATION_TOKEN)],
  }),
  'GET /v1/resources': (self) => ({ query: self.page(), headers: [asAdmin] }),
  'GET /v1/clients': (self) => ({ query: self.page(), headers: [asAdmin] }),
  'GET /v1/principals': (self) => ({
    query: [...self.page(), ...(self.dice.happens(0.5) ? [['prefix', 'f'] as Pair] : [])],
    headers: [asAdmin],
  }),
  'GET /v1/principals/:sub': (self) => ({ path: `/v1/principals/${self.one('sub')}`, headers: [asAdmin] }),
  ...Object.fromEntries(
    ['disable', 'enable'].map((verb): [string, Recipe] => [
      `POST /v1/principals/:sub/${verb}`,
      (self) => ({ path: `/v1/principals/${self.ownSub}/${verb}`, headers: [asAdmin] }),
    ]),
  ),
};

/** What the actions of the console need beside a token. */
const CONSOLE_FIELDS: Record<string, (self: IdpVisitor) => Record<string, string>> = {
  'agents/create': (self) => self.newcomer(),
  'invitations/create': (self) => ({ ...self.newcomer(), days: '2' }),
  'clients/create': () => ({ name: 'Shop', redirect_uris: CALLBACK, kinds: 'both' }),
  'clients/:id/update': () => ({ name: 'Shop', redirect_uris: `${CALLBACK}\n${LEFT}`, kinds: 'both' }),
  'clients/:id/rotate': (self) => ({ at_once: self.dice.one(['no', 'yes']) }),
  'principals/:sub/delete': (self) => ({ confirm: self.own.agent.handle }),
  'clients/:id/delete': (self) => ({ confirm: self.one('client') }),
};

/** A request to a route of the console, by an operator. */
function consoleDraft(
  self: IdpVisitor,
  { method, url }: Pick<Route, 'method' | 'url'>,
): Partial<FuzzRequest> {
  const path = url
    .replace('logout-failures/:id', `logout-failures/${self.one('notice')}`)
    .replace('metadata-clients/:id', `metadata-clients/${self.one('document')}`)
    .replace('delegations/:id', `delegations/${self.one('delegation')}`)
    // A client that was created in the console: other clients of the fuzz depend on theirs.
    .replace(':id', self.one('client'))
    .replace(':sub', subFor(self, url))
    .replace(':sid', self.dice.one([self.one('sid'), ...self.operatorSids]));
  // The list begins with other invitations.
  const query: Pair[] =
    url === '/admin/invitations' && self.dice.happens(0.5) ? [['q', self.invitedHandle]] : [];
  if (method !== 'POST') return { path, query, headers: self.browser() };
  const fields = CONSOLE_FIELDS[url.replace('/admin/', '')]?.(self) ?? {};
  const form: Pair[] = [['token', self.formToken()], ...Object.entries(fields)];
  return { path, headers: self.browser(), body: { form } };
}

function subFor(self: IdpVisitor, url: string): string {
  if (/\/(sessions|delegations)\//.test(url) || url === '/admin/principals/:sub') return self.operatorSub;
  if (url.endsWith('/withdraw')) return self.newestOr('invited');
  if (url.endsWith('/reset')) return self.own.human.sub;
  return /\/(rotate|delete)$/.test(url) ? self.own.agent.sub : self.ownSub;
}

/** Requests that put e-mails with links into the outbox. */
const MAILING = /^\/(v1\/accounts|account\/(forgot-password|verification))$/;

let names = 0;

class IdpVisitor implements Visitor {
  readonly dice: Dice;
  readonly #collected = new CollectedValues(KINDS);
  readonly #clients: Client[];
  readonly #agents: Person[];
  readonly #people: Person[];
  readonly #mails: Mails;
  readonly #isOperator: boolean;
  /** A person with a session, and the operator of the console. */
  readonly operatorSub: string;
  readonly #resourceServer: Required<Client>;
  readonly operatorSids: string[];
  /** The latest principal that this client created; no other client depends on it. */
  ownSub = 'none';
  /** The latest of each kind, except agents of the operator's API, which it deletes again. */
  readonly own = { agent: { sub: 'none', handle: '' }, human: { sub: 'none', handle: '' } };

  /** Of the person whom this client invited last. */
  invitedHandle = '';

  constructor(dice: Dice, common: Common, mails: Mails) {
    const { clients, agents, people, operatorSub, operatorSids, spareAgent, isOperator } = common;
    this.#resourceServer = common.resourceServer;
    Object.assign(this.own.agent, spareAgent);
    this.#mails = mails;
    this.operatorSids = operatorSids;
    this.operatorSub = operatorSub;
    this.dice = dice;
    this.#clients = [...clients];
    this.#agents = [...agents];
    this.#people = [...people];
    this.#isOperator = isOperator;
  }

  draft({ method, url }: Route): FuzzRequest {
    const recipe =
      RECIPES[`${method} ${url}`]?.(this) ??
      (/^\/admin\b/.test(url) ? consoleDraft(this, { method, url }) : {});
    return { method, path: url, query: [], headers: [], ...recipe };
  }

  async learn({ method, path, body }: FuzzRequest, answer: FuzzAnswer): Promise<void> {
    // A mutated administrator request may have registered this address, which is then a valid redirect.
    if (answer.body.includes(EVIL)) return;
    this.#collected.learn(answer);
    if (MAILING.test(path)) await this.#readMails();
    if (answer.status !== 201 || method !== 'POST') return;
    const made = JSON.parse(answer.body);
    this.ownSub = made.sub ?? this.ownSub;
    if (path === '/v1/invites') this.invitedHandle = made.handle;
    if (path === '/v1/clients') {
      // Half of them are changed and deleted in the console, so that the others still work.
      if (this.dice.happens(0.5)) this.#collected.add('client', made.client_id);
      else this.#clients.push({ id: made.client_id, secret: made.client_secret });
    }
    const sent = body && 'json' in body ? (body.json as { password?: string }) : {};
    const person = { handle: made.handle, password: made.password ?? sent.password ?? PASSWORD };
    if ((made.kind === 'agent' && path !== '/v1/agents') || made.kind === 'human')
      Object.assign(this.own[made.kind as 'agent' | 'human'], made);
    if (made.kind === 'agent') keep(this.#agents, person);
    if (made.kind === 'human') keep(this.#people, person);
  }

  /** Collects the links of the latest e-mails. */
  async #readMails(): Promise<void> {
    const { items } = await this.#mails.page({ sort: 'id', desc: true, limit: 4 });
    for (const mail of items) {
      const { link = '' } = storedValues(mail, SEED);
      const [, kind, token] = /\/(invite|verify)\/([\w-]+)$/.exec(link) ?? [];
      if (token !== undefined) this.#collected.add(kind === 'invite' ? 'link' : 'verify', token);
    }
    // The relay would try to send all of them whenever the clock advances.
    const oldest = items.at(-1)?.id;
    if (oldest !== undefined) await this.#mails.deleteMany({ id: { lt: oldest } });
  }

  known(): string {
    const { id, secret = id } = this.client();
    const { handle, password } = this.agent();
    return this.dice.one([
      this.#collected.any(this.dice),
      this.#collected.any(this.dice),
      id,
      secret,
      handle,
      password,
      ADMIN_TOKEN,
    ]);
  }

  one(kind: keyof typeof KINDS): string {
    return this.#collected.one(kind, this.dice);
  }

  /** Mostly the latest, because what belongs together comes together. */
  newestOr = (kind: keyof typeof KINDS): string =>
    this.dice.happens(0.7) ? this.#collected.latest(kind) : this.one(kind);

  client = (): Client => this.dice.one(this.#clients.slice(-4));
  agent = (): Person => this.dice.one(this.#agents);
  /** Mostly that of the latest page, because a new session ends the others. */
  formToken = (): string => this.newestOr('token');
  /** Someone else than the operator, whose session would end with a new password. */
  newest = (): Person => this.#people.slice(1).at(-1) ?? { handle: 'nobody', password: PASSWORD };
  person = (): Person => this.dice.one(this.#isOperator ? this.#people.slice(0, 1) : this.#people);
  token = (): string => this.one(this.dice.one(['access', 'refresh', 'resourceToken']));
  newcomer = () => ({ handle: `f${names++}@example.test`, name: 'Robot' });
  page = (): Pair[] => (this.dice.happens(0.3) ? [['after', this.one('next')]] : []);

  browser(): Pair[] {
    return [
      ['cookie', this.#collected.cookie],
      ['accept', 'text/html'],
      ['sec-fetch-site', 'same-origin'],
    ];
  }

  browserForm(fields: Record<string, string>): Partial<FuzzRequest> {
    return { body: { form: pairsOf(fields) }, headers: this.browser() };
  }

  /** A form of the pages for a sign-in. */
  interaction(fields: Record<string, string>): Partial<FuzzRequest> {
    return this.browserForm({ interaction: this.one('interaction'), ...fields });
  }

  accountForm(fields: Record<string, string>, form = this.one('form')): Partial<FuzzRequest> {
    return this.browserForm({ form, ...fields });
  }

  authorizationHeader(): Pair {
    const { handle, password } = this.dice.happens(0.7) ? this.agent() : this.person();
    return this.dice.happens(0.5)
      ? ['authorization', basic(handle, password)]
      : ['cookie', this.#collected.cookie];
  }

  authorization(): Pair[] {
    const { dice } = this;
    const { id, secret } = this.client();
    if (dice.happens(0.1)) return pairsOf({ client_id: id, request_uri: this.one('requestUri') });
    const more = pairsOf({
      scope: ['openid', ...SCOPES.filter(() => dice.happens(0.5))].join(' '),
      state: 'a b&c',
      nonce: 'n-0S6',
      prompt: dice.one(['none', 'login', 'consent', 'select_account', 'create']),
      max_age: String(dice.one([0, 1, 10_000])),
      id_token_hint: this.one('idToken'),
      login_hint: this.person().handle,
      ui_locales: 'de fr',
      acr_values: '1 2',
      display: 'page',
      resource: FILES,
      requested_actor: this.one('sub'),
      delegation_expires_in: '3600',
      delegation_max_depth: '2',
    });
    const challenge = { code_challenge: sha256(VERIFIER), code_challenge_method: 'S256' };
    return [
      ...pairsOf({ client_id: id, redirect_uri: CALLBACK, response_type: 'code' }),
      ...(secret === undefined || dice.happens(0.2) ? pairsOf(challenge) : []),
      ...more.filter(() => dice.happens(0.25)),
    ];
  }

  exchange(): Pair[] {
    const resource: Pair[] = this.dice.happens(0.1) ? [['resource', FILES]] : [];
    const verifier: Pair[] = this.dice.happens(0.3) ? [['code_verifier', VERIFIER]] : [];
    const grant = (grant_type: string, fields: Record<string, string>): Pair[] => [
      ...pairsOf({ grant_type, ...fields }),
      ...resource,
    ];
    if (this.dice.happens(0.1))
      return pairsOf({ grant_type: 'client_credentials', resource: FILES, scope: 'files:read' });
    if (this.dice.happens(0.1))
      return grant(TOKEN_EXCHANGE, {
        ...{ subject_token: this.one('delegationToken'), subject_token_type: TYPES.delegation },
        ...{ actor_token: this.one('resourceToken'), actor_token_type: TYPES.accessToken },
      });
    if (this.dice.happens(0.05)) return grant(JWT_BEARER, { assertion: this.one('idToken') });
    if (this.dice.happens(0.05))
      return grant(TOKEN_EXCHANGE, {
        ...{ requested_token_type: ASSERTION_TOKEN, audience: AUDIENCE },
        ...{ subject_token: this.one('idToken'), subject_token_type: ID_TOKEN },
      });
    if (this.dice.happens(0.2)) return grant(DEVICE_GRANT, { device_code: this.one('deviceCode') });
    if (this.dice.happens(0.3)) return grant('refresh_token', { refresh_token: this.one('refresh') });
    const redirected = { code: this.one('code'), redirect_uri: CALLBACK };
    return [...grant('authorization_code', redirected), ...verifier];
  }

  logout(): Pair[] {
    const all = pairsOf({
      ...{ id_token_hint: this.one('idToken'), post_logout_redirect_uri: LEFT },
      ...{ state: 'a b', client_id: this.client().id },
    });
    return all.filter(() => this.dice.happens(0.6));
  }

  asResourceServer(form: Pair[]): Partial<FuzzRequest> {
    const { id, secret } = this.#resourceServer;
    return { body: { form }, headers: [['authorization', basic(id, secret)]] };
  }

  asClient(form: Pair[]): Partial<FuzzRequest> {
    const { id, secret } = this.client();
    if (secret !== undefined && this.dice.happens(0.5)) {
      return { body: { form }, headers: [['authorization', basic(id, secret)]] };
    }
    const own = { client_id: id, ...(secret !== undefined && { client_secret: secret }) };
    return { body: { form: [...form, ...pairsOf(own)] } };
  }
}

function keep(people: Person[], person: Person): void {
  people.push(person);
  if (people.length > 6) people.splice(2, 1);
}

/** Makes a person an operator, as `idp operator grant` does. */
async function grantRole(sub: string, folder: string): Promise<void> {
  const store = await openStore(idpOptions(folder).databaseUri);
  const change = { set: { operatorSince: 1 } };
  await principalCollection(store).updateOne({ id: sub }, change);
  await store.close();
}

/** Another authorization server, for which the clients get assertions. */
const AUDIENCE = 'https://chat.example.test';

/** Of what the operator or other providers would renew in time. */
const FIXTURE_LIFETIME_MS = 80 * DAY;

/** An initial access token. */
const REGISTRATION_TOKEN = `irt_${'r'.repeat(43)}`;

/** @param folder of the store */
export async function idpTarget(folder: string): Promise<FuzzTarget> {
  const clock = fakeClock();
  const server = createIdentityServer({
    ...idpOptions(folder),
    ...{ clock, limits: false },
    // No server listens there, so that the links stay in the store.
    emailSmtpUrl: 'smtp://127.0.0.1:9',
    factorEncryptionKey: FACTOR_KEY,
    passkeys: true,
    deviceFlow: true,
    identityAssertions: 'both',
    clientRegistration: true,
    clientIdMetadata: true,
  } as never);
  const routes = collectRoutes(server.fastify);
  const undocumented: string[] = [];
  checkAnswers({ fail: (problem) => undocumented.push(problem) }, server.fastify, idpPaths());
  const { url } = await server.start();
  const store = await openStore(idpOptions(folder).databaseUri);
  const mails = mailCollection(store);
  const addMetadata = async (name: string): Promise<void> => {
    const uri = `https://${name}.example.test/client.json`;
    const now = clock.now();
    await documentCollection(store).insert({
      ...{ id: sha256(uri), uri, text: JSON.stringify({ client_id: uri, redirect_uris: [CALLBACK] }) },
      ...{ fetchedAt: now, freshUntil: now, usedAt: now, expiresAt: now + FIXTURE_LIFETIME_MS },
    });
  };
  for (const name of ['one', 'two', 'three', 'four']) await addMetadata(name);
  const registrationTokens = registrationTokenCollection(store);
  const allowRegistration = async (): Promise<void> => {
    const id = 'rtk_1';
    const uses = 1_000_000_000;
    await registrationTokens.deleteOne({ id });
    await registrationTokens.insert({
      ...{ id, tokenHash: sha256(REGISTRATION_TOKEN), uses, usesLeft: uses },
      ...{ createdAt: clock.now(), expiresAt: clock.now() + FIXTURE_LIFETIME_MS },
    });
  };
  await allowRegistration();

  const make = async (path: string, body: object) => {
    const response = await server.fastify.inject({
      method: 'POST',
      url: path,
      headers: { authorization: asAdmin[1] },
      payload: body,
    });
    if (response.statusCode !== 201)
      throw new Error(`${path} answered ${response.statusCode} ${response.body}`);
    return response.json();
  };
  const makeClient = async (isPublic: boolean): Promise<Client> => {
    const body = { name: 'x', redirect_uris: CALLBACK, post_logout_redirect_uris: LEFT, public: isPublic };
    const { client_id: id, client_secret: secret } = await make('/v1/clients', body);
    await clientCollection(store).updateOne({ id }, { set: { device: true } });
    return { id, ...(secret && { secret }) };
  };
  const newSid = () => newId(SESSION, clock, systemRandom);
  const sessions = sessionCollection(store);
  const startSession = (id: string, sub: string) => {
    const now = clock.now();
    const times = { authTime: now, createdAt: now, expiresAt: now + 3_600_000 };
    return sessions.insert({ id, sub, tokenHash: sha256(id), ...times });
  };
  const { resource, secret } = await resourcesIn(store, { clock, random: systemRandom }).add(
    FILES,
    FILES_INPUT,
    COMMAND_SOURCE,
  );
  const resourceServer = { id: resource.id, secret };
  const makeAgent = (handle: string): Promise<Person & { sub: string }> => make('/v1/agents', { handle });
  /** Agents act for the operator, so that the console has delegations to end. */
  const letAct = async (person: string, agent: string): Promise<void> => {
    const { epoch } = (await principalCollection(store).findOne({ id: person })) ?? {};
    for (const scope of ['files:read', 'files:write', 'files:delete']) {
      await delegationCollection(store).insert({
        ...{ id: newId(DELEGATION, clock, systemRandom), parties: `${person} ${agent} ${scope}` },
        ...{ person, agent, resource: FILES, scopes: [scope], clientId: 'cid_x', txn: 'gr_x' },
        maxDepth: 1,
        ...(epoch !== undefined && { personEpoch: epoch }),
        ...{ createdAt: clock.now(), expiresAt: clock.now() + FIXTURE_LIFETIME_MS },
      });
    }
  };
  const makeCommon = async (name: string, isOperator: boolean): Promise<Common> => {
    const person = { handle: `${name}@example.test`, password: PASSWORD };
    const { sub: operatorSub } = await make('/v1/accounts', { ...person, kind: 'human' });
    await grantRole(operatorSub, folder);
    const operatorSids = [newSid(), newSid(), newSid()];
    for (const id of operatorSids) await startSession(id, operatorSub);
    const agent = await makeAgent(`agent-${name}@example.test`);
    await letAct(operatorSub, agent.sub);
    const clients = [await makeClient(false), await makeClient(true), await makeClient(false)] as const;
    await trustIn(store, { clock, random: countedRandom() }).setAudience(
      AUDIENCE,
      {
        clients: clients.map(({ id }) => ({ id, idThere: id })),
        resources: [{ resource: FILES, scopes: ['files:read'] }],
      },
      COMMAND_SOURCE,
    );
    return {
      clients: [...clients],
      agents: [agent],
      people: [person],
      operatorSub,
      operatorSids,
      resourceServer,
      spareAgent: await makeAgent(`spare-${name}@example.test`),
      isOperator,
    };
  };
  let common = await makeCommon('person', false);
  let renewals = 0;
  // Nothing listens there, so that it remains.
  const refusing = await make('/v1/clients', {
    redirect_uris: CALLBACK,
    backchannel_logout_uri: 'http://127.0.0.1:9/',
  });
  const sid = newSid();
  await logoutNoticeCollection(store).insert({
    ...{ id: `${sid}.${refusing.client_id}`, clientId: refusing.client_id, sub: common.operatorSub },
    ...{ sid, session: sid, attempts: 1, failingSince: clock.now(), lastFailure: 'status 503' },
    expiresAt: clock.now() + 3_600_000,
  });

  return {
    url,
    routes,
    // A sign-up ends the session of the operator.
    busiest: routes.filter(({ url }) => /^\/(authorize(?!\/sign-up)|token)/.test(url)),
    clock,
    visitor: (dice) => new IdpVisitor(dice, common, mails),
    undocumented,
    unattainable: {
      'POST /account/delete': 'other requests depend on the people',
      ...Object.fromEntries(
        ['confirm', 'recovery-codes', 'remove'].map((verb) => [
          `POST /account/second-factor/${verb}`,
          'people without a factor sign in',
        ]),
      ),
      'POST /authorize/second-factor': 'people without a factor sign in',
      'POST /account/passkeys/add': 'a passkey requires an authenticator',
      'POST /authorize/sign-up/passkey': 'a passkey requires an authenticator',
      'POST /authorize/passkey': 'a passkey requires an authenticator',
      'POST /authorize/second-factor/enrol': 'no rule requires a factor',
    },
    unavailable: ['temporarily_unavailable'],
    codeOf: (body) => {
      const { error, error_description: sentence } = (body ?? {}) as Record<string, unknown>;
      return typeof error === 'string' && typeof sentence === 'string' ? error : undefined;
    },
    stepsTo: {
      ...Object.fromEntries(
        ['GET', 'POST'].map((method) => [
          `${method} /admin/invitations/:sub/withdraw`,
          ['POST /v1/invites', 'GET /admin/invitations', 'GET /admin/invitations/:sub/withdraw'],
        ]),
      ),
      'POST /device/confirm': ['POST /device_authorization', 'GET /device', 'POST /device'],
      ...Object.fromEntries(
        ['GET rotate', 'POST rotate', 'GET delete', 'POST delete', 'POST update'].map((action) => [
          action.replace(' ', ' /admin/clients/:id/'),
          ['GET /admin', 'POST /admin/clients/create'],
        ]),
      ),
    },
    async renew() {
      common = await makeCommon(`renewed${++renewals}`, true);
      // The time that has passed may have ended the others.
      await addMetadata(`renewed${renewals}`);
      await allowRegistration();
    },
    async prove() {
      const [client, agent] = [await makeClient(false), await makeAgent('last@example.test')];
      const { headers } = await server.fastify.inject({
        url: `/authorize?${new URLSearchParams({ client_id: client.id, redirect_uri: CALLBACK, response_type: 'code' })}`,
        headers: { authorization: basic(agent.handle, agent.password) },
      });
      const code = new URL(String(headers.location)).searchParams.get('code') ?? '';
      const token = await server.fastify.inject({
        method: 'POST',
        url: '/token',
        headers: { authorization: basic(client.id, client.secret) },
        payload: { grant_type: 'authorization_code', code, redirect_uri: CALLBACK },
      });
      if (token.statusCode !== 200) throw new Error(`sign-in fails after the fuzzing: ${token.body}`);
    },
    async stop() {
      await server.stop();
      await store.close();
    },
  };
}
