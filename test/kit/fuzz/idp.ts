import { DAY } from '../../../src/core/kernel/clock.js';
import { sha256, systemRandom } from '../../../src/core/kernel/secrets.js';
import { openStore } from '../../../src/core/storage/open.js';
import { ASSERTION_TOKEN, JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';
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
import { ID_TOKEN } from '../identity-assertions.js';
import { ADMIN_TOKEN, CALLBACK, idpOptions, SEED, VERIFIER } from '../idp.js';
import { storedValues } from '../mail.js';
import { checkAnswers, idpPaths } from '../openapi.js';
import { COMMAND_SOURCE } from '../operator.js';
import { FILES, FILES_INPUT, resourcesIn } from '../resources.js';
import type { Dice } from '../stripe-simulator.js';
import { CollectedValues } from './collected-values.js';
import type { FuzzAnswer } from './connection.js';
import { schemaDraft } from './drafts.js';
import { collectRoutes, type FuzzTarget, type Route, type Visitor } from './engine.js';
import { EVIL } from './mutations.js';
import { type FuzzRequest, type Pair, pairsOf } from './request.js';

/** The identity provider, and the values of its requests. */

const LEFT = 'https://app.example.test/left';
const SCOPES = ['openid', 'email', 'profile', 'groups', 'offline_access'];

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
  group: /\bgroup-\d+\b/g,
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
  /** The first of the people. */
  operatorSub: string;
  resourceServer: Required<Client>;
}

type Recipe = (self: IdpVisitor) => Partial<FuzzRequest>;

const bearer = (token: string): Pair => ['authorization', `Bearer ${token}`];
/** A new one each time: mutations change a request in place. */
const asAdmin = (): Pair => bearer(ADMIN_TOKEN);

/** Routes whose parameters have no schema, because they answer errors as RFC 6749 says. */
const RECIPES: Record<string, Recipe> = {
  'GET /authorize': (self) => ({ query: self.authorization(), headers: [self.authorizationHeader()] }),
  'POST /authorize': (self) => ({ body: { form: self.authorization() }, headers: self.browser() }),
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
  'POST /v1/agents/self/rotate': (self) => {
    const { handle, password } = self.agent();
    return { headers: [['authorization', basic(handle, password)]] };
  },
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
};

const CREATES = /(sign-up(\/passkey)?|accounts|agents|invites|create)$/;

/** Values by the names of fields and parameters. */
const FIELDS: Record<string, (self: IdpVisitor, url: string) => unknown> = {
  handle: (self, url) => (CREATES.test(url) ? self.newcomer() : self.handle(url)),
  name: (_, url) => {
    if (/groups(\/create)?$/.test(url)) return `group-${names++}`;
    return url === '/v1/clients' ? undefined : 'Robot';
  },
  ':name': (self) => self.newestOr('group'),
  ':group': (self) => self.newestOr('group'),
  member: (self) => self.own.sub,
  ':member': (self) => self.own.sub,
  metadata: (_, url) => (url.startsWith('/admin') ? 'department=Sales' : { department: 'Sales' }),
  claims: () => 'department',
  kind: (self, url) =>
    url === '/v1/agents' || url === '/v1/invites' ? undefined : self.dice.one(['human', 'agent']),
  password: (_, url) => (url === '/v1/agents' || url === '/v1/invites' ? undefined : PASSWORD),
  current_password: () => PASSWORD,
  password_confirm: () => PASSWORD,
  days: (self) => 1 + self.dice.whole(30),
  client_name: () => 'An application',
  redirect_uris: () => CALLBACK,
  post_logout_redirect_uris: () => LEFT,
  public: (self, url) => (url === '/v1/clients' ? self.dice.happens(0.3) : undefined),
  principal_kinds: () => ['agent', 'human'],
  kinds: () => 'both',
  interaction: (self) => self.one('interaction'),
  code: () => '000000',
  credential: () => '{}',
  decision: (self) => self.dice.one(['allow', 'deny']),
  form: (self) => self.newestOr('form'),
  user_code: (self) => self.newestOr('userCode'),
  sid: (self) => self.one('sid'),
  ':sid': (self) => self.one('sid'),
  client_id: (self) => self.client().id,
  delegation: (self) => self.one('delegation'),
  confirm: (self, url) => {
    if (url.startsWith('/admin/groups/')) return self.newestOr('group');
    return /clients/.test(url) ? self.one('client') : self.own.handle;
  },
  id: () => 'x',
  // A client that was created in the console: other clients of the fuzz depend on theirs.
  ':id': (self, url) => self.one(/delegations/.test(url) ? 'delegation' : 'client'),
  ':sub': (self, url) =>
    /\/(sessions|delegations)\//.test(url) || url === '/admin/principals/:sub'
      ? self.operatorSub
      : self.own.sub,
  token: (self) => self.newestOr('token'),
  ':token': (self, url) => self.one(/invite/.test(url) ? 'link' : 'verify'),
  at_once: (self) => self.dice.one(['no', 'yes']),
  after: (self) => (self.dice.happens(0.3) ? self.one('next') : undefined),
  prefix: () => 'f',
};

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
  /** A person with a session, and the operator of the console. */
  readonly operatorSub: string;
  readonly #resourceServer: Required<Client>;
  /** The latest principal that this client created; no other client depends on it. */
  own = { sub: 'none', handle: 'none' };

  constructor(dice: Dice, { clients, agents, people, operatorSub, resourceServer }: Common, mails: Mails) {
    this.#resourceServer = resourceServer;
    this.#mails = mails;
    this.operatorSub = operatorSub;
    this.dice = dice;
    this.#clients = [...clients];
    this.#agents = [...agents];
    this.#people = [...people];
  }

  draft(route: Route): FuzzRequest {
    const { method, url } = route;
    const recipe = RECIPES[`${method} ${url}`]?.(this);
    if (recipe) return { method, path: url, query: [], headers: [], ...recipe };
    const headers = url.startsWith('/v1/') ? [asAdmin()] : this.browser();
    const fieldOf = (name: string) => FIELDS[name]?.(this, url);
    return schemaDraft(route, { fieldOf, headers, dice: this.dice });
  }

  async learn({ method, path, body }: FuzzRequest, answer: FuzzAnswer): Promise<void> {
    // A mutated administrator request may have registered this address, which is then a valid redirect.
    if (answer.body.includes(EVIL)) return;
    this.#collected.learn(answer);
    if (MAILING.test(path)) await this.#readMails();
    if (answer.status !== 201 || method !== 'POST') return;
    const made = JSON.parse(answer.body);
    if (made.sub) this.own = { sub: made.sub, handle: made.handle };
    if (path === '/v1/clients') {
      // Half of them are changed and deleted in the console, so that the others still work.
      if (this.dice.happens(0.5)) this.#collected.add('client', made.client_id);
      else this.#clients.push({ id: made.client_id, secret: made.client_secret });
    }
    const sent = body && 'json' in body ? (body.json as { password?: string }) : {};
    const person = { handle: made.handle, password: made.password ?? sent.password ?? PASSWORD };
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
  /** For a link someone else than the operator, whose session would end with a new password. */
  handle = (url: string): string =>
    (/forgot/.test(url) ? this.#people.slice(1).at(-1) : this.dice.one(this.#people))?.handle ?? 'nobody';
  token = (): string => this.one(this.dice.one(['access', 'refresh', 'resourceToken']));
  newcomer = (): string => `f${names++}@example.test`;

  browser(): Pair[] {
    return [
      ['cookie', this.#collected.cookie],
      ['accept', 'text/html'],
      ['sec-fetch-site', 'same-origin'],
    ];
  }

  authorizationHeader(): Pair {
    const { handle, password } = this.dice.one(this.dice.happens(0.7) ? this.#agents : this.#people);
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
      login_hint: this.handle(''),
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

/** Another authorization server. */
const AUDIENCE = 'https://chat.example.test';

/** Of what the operator would renew in time. */
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
  const uses = 1_000_000_000;
  await registrationTokenCollection(store).insert({
    ...{ id: 'rtk_1', tokenHash: sha256(REGISTRATION_TOKEN), uses, usesLeft: uses },
    ...{ createdAt: clock.now(), expiresAt: clock.now() + FIXTURE_LIFETIME_MS },
  });

  const make = async (path: string, body: object) => {
    const response = await server.fastify.inject({
      method: 'POST',
      url: path,
      headers: { authorization: asAdmin()[1] },
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
  const { resource, secret } = await resourcesIn(store, { clock, random: systemRandom }).add(
    FILES,
    FILES_INPUT,
    COMMAND_SOURCE,
  );
  const makeAgent = (handle: string): Promise<Person> => make('/v1/agents', { handle });
  const person = { handle: 'person@example.test', password: PASSWORD };
  const { sub: operatorSub } = await make('/v1/accounts', { ...person, kind: 'human' });
  // As `idp operator grant` does.
  await principalCollection(store).updateOne({ id: operatorSub }, { set: { operatorSince: 1 } });
  const common: Common = {
    clients: [await makeClient(false), await makeClient(true), await makeClient(false)],
    agents: [await makeAgent('agent@example.test')],
    people: [person],
    operatorSub,
    resourceServer: { id: resource.id, secret },
  };

  return {
    url,
    routes,
    // A sign-up ends the session of the operator.
    busiest: routes.filter(({ url }) => /^\/(authorize(?!\/sign-up)|token)/.test(url)),
    clock,
    visitor: (dice) => new IdpVisitor(dice, common, mails),
    undocumented,
    unavailable: ['temporarily_unavailable'],
    codeOf: (body) => {
      const { error, error_description: sentence } = (body ?? {}) as Record<string, unknown>;
      return typeof error === 'string' && typeof sentence === 'string' ? error : undefined;
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
