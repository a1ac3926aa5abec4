/** Requests that an attacker must not distinguish by time: on each row, rejections for different reasons. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { loginCodeCollection } from '../src/auth/login-codes.js';
import { userCollection } from '../src/auth/store.js';
import { principalCollection } from '../src/provisioning/store.js';
import { openUserAdministration } from '../src/saas/administration.js';
import { openStore } from '../src/storage/open.js';
import { SoftwareAuthenticator } from '../test/kit/authenticator.js';
import { codeAt, FACTOR_KEY } from '../test/kit/factors.js';
import { waitUntil } from '../test/kit/wait.js';
import { basic, CALLBACK, create } from './idp-rows.js';
import type { Lab } from './lab.js';
import { request } from './load.js';

/** Each request is generated anew; `expected` is the common status of all classes, or a list of allowed ones. */
export interface TimingRow {
  name: string;
  url: string;
  expected: number | readonly number[];
  classes: Record<string, () => string>;
}

const JSON_BODY = { 'content-type': 'application/json' };
const PASSWORD = 'a sentence is fine';
const WRONG = 'a sentence is wrong';
/** A password in the format of generated ones. */
const FORGED = `agp_${'x'.repeat(43)}`;

/** Accounts of each kind, used in turn, so that the result does not depend on a single document. */
const ACCOUNTS = 16;

export const TIMING_ROWS: Record<string, (lab: Lab) => Promise<TimingRow[]>> = {
  login,
  forgot,
  register,
  code,
  basic: basicLogin,
  links,
  factors,
  passkeys,
};

/** Hashes without a password, in the default formats of bcrypt and argon2. */
const FOREIGN = {
  'imported bcrypt': `$2b$10$${'a'.repeat(53)}`,
  'imported argon2id': `$argon2id$v=19$m=65536,t=3,p=4$${'a'.repeat(22)}$${'a'.repeat(42)}Q`,
};

async function login(lab: Lab): Promise<TimingRow[]> {
  const name = 'POST /api/auth/login';
  return [await loginAt(lab, name, {}), await loginAt(lab, `${name}, imported accounts`, FOREIGN)];
}

/** @param foreign the hash of the imported accounts of each further class */
async function loginAt(lab: Lab, name: string, foreign: Record<string, string>): Promise<TimingRow> {
  const file = join(lab.folder(), 'saas.db');
  const imported = Object.keys(foreign).map((label) => [
    label,
    Array.from({ length: ACCOUNTS }, (_, number) => `${label.replace(' ', '-')}-${number}@example.com`),
  ]) as [string, string[]][];
  for (const [label, emails] of imported) await importAccounts(file, emails, foreign[label] as string);
  const { url } = await lab.unbound('saas-backend', 'login', { uri: `sqlite:${file}` });
  const known = await times(ACCOUNTS, async (number) => {
    const email = `known-${number}@example.com`;
    await post(`${url}/api/auth/register`, { email, password: PASSWORD });
    return email;
  });
  const unknown = known.map((email) => email.replace('known', 'other'));
  const wrong = (emails: string[]) =>
    inTurn(
      emails.map((email) =>
        request('POST', '/api/auth/login', JSON_BODY, JSON.stringify({ email, password: WRONG })),
      ),
    );
  const classes = {
    known: wrong(known),
    unknown: wrong(unknown),
    ...Object.fromEntries(imported.map(([label, emails]) => [label, wrong(emails)])),
  };
  return { name, url, expected: 401, classes };
}

/** The same function as `saas-backend user import`. */
async function importAccounts(file: string, emails: string[], passwordHash: string): Promise<void> {
  const lines = emails.map((email) => Buffer.from(`${JSON.stringify({ email, passwordHash })}\n`));
  process.env['DATABASE_URI'] = `sqlite:${file}`;
  const administration = await openUserAdministration(() => undefined, { dryRun: false });
  await administration.import(Readable.from(lines), {});
  await administration.close();
  delete process.env['DATABASE_URI'];
}

async function forgot(lab: Lab): Promise<TimingRow[]> {
  const name = 'POST /api/auth/forgot-password';
  const stalled = { EMAIL_SMTP_URL: await silentMailServer() };
  return [await forgotAt(lab, name, {}), await forgotAt(lab, `${name}, mail server stalled`, stalled)];
}

/** Accepts connections and never responds. */
async function silentMailServer(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1').unref();
  await once(server, 'listening');
  return `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function forgotAt(lab: Lab, name: string, environment: Record<string, string>): Promise<TimingRow> {
  const { url } = await lab.unbound('saas-backend', 'forgot', { more: environment });
  const known = await times(ACCOUNTS, async (number) => {
    const email = `known-${number}@example.com`;
    await post(`${url}/api/auth/register`, { email, password: PASSWORD });
    return email;
  });
  const ask = (emails: string[]) =>
    inTurn(
      emails.map((email) =>
        request('POST', '/api/auth/forgot-password', JSON_BODY, JSON.stringify({ email })),
      ),
    );
  const unknown = known.map((email) => email.replace('known', 'other'));
  const classes = { known: ask(known), unknown: ask(unknown) };
  return { name, url, expected: 200, classes };
}

/** With required confirmation. A request makes its address known, so each request uses a new one. */
async function register(lab: Lab): Promise<TimingRow[]> {
  const { url } = await lab.unbound('saas-backend', 'register', {
    more: { REQUIRE_EMAIL_VERIFICATION: 'true' },
  });
  const apply = (email: string) =>
    request('POST', '/api/auth/register', JSON_BODY, JSON.stringify({ email, password: PASSWORD }));
  const known = Array.from({ length: ACCOUNTS }, (_, number) => `known-${number}@example.com`);
  for (const email of known) await post(`${url}/api/auth/register`, { email, password: PASSWORD }, 202);
  let strangers = 0;
  const classes = {
    known: inTurn(known.map(apply)),
    unknown: () => apply(`other-${strangers++}@example.com`),
  };
  return [{ name: 'POST /api/auth/register, confirmed addresses', url, expected: 202, classes }];
}

/** Requests for a code to sign in, and wrong codes. */
async function code(lab: Lab): Promise<TimingRow[]> {
  const more = { EMAIL_LOGIN: 'true' };
  const file = join(lab.folder(), 'saas.db');
  const { url } = await lab.unbound('saas-backend', 'code', { uri: `sqlite:${file}`, more });
  const [known, unknown] = ['known', 'other'].map((name) =>
    Array.from({ length: ACCOUNTS }, (_, number) => `${name}-${number}@example.com`),
  ) as [string[], string[]];
  for (const email of known) await post(`${url}/api/auth/register`, { email, password: PASSWORD });
  const asking = (emails: string[]) =>
    inTurn(
      emails.map((email) => request('POST', '/api/auth/email-login', JSON_BODY, JSON.stringify({ email }))),
    );
  const [path, name] = ['/api/auth/email-login/redeem', 'POST /api/auth/email-login'];
  const tokensOf = (emails: string[]) =>
    times(emails.length, async (index) => {
      const body = { email: emails[index] };
      return (await post(`${url}/api/auth/email-login`, body, 202)).data.loginToken;
    });
  const redeeming = (tokens: string[]) =>
    inTurn(
      tokens.map((loginToken) =>
        request('POST', path, JSON_BODY, JSON.stringify({ loginToken, code: 'ABCD-EFGH' })),
      ),
    );
  const tokens = { known: await tokensOf(known), unknown: await tokensOf(unknown) };
  const store = await openStore(`sqlite:${file}`);
  const stored = loginCodeCollection(store);
  await waitUntil('all requests are stored', async () => (await stored.count()) === 2 * ACCOUNTS);
  await stored.updateMany({ attemptsLeft: { gt: 0 } }, { set: { attemptsLeft: 1_000_000 } });
  await store.close();
  return [
    // First, because new requests end the tokens.
    {
      name: `${name}/redeem`,
      url,
      expected: 401,
      classes: { known: redeeming(tokens.known), unknown: redeeming(tokens.unknown) },
    },
    { name, url, expected: 202, classes: { known: asking(known), unknown: asking(unknown) } },
  ];
}

async function basicLogin(lab: Lab): Promise<TimingRow[]> {
  const { url } = await lab.unbound('idp', 'basic');
  const { client_id: clientId = '' } = await create(url, 'clients', {
    name: 'Bench',
    redirect_uris: [CALLBACK],
  });
  const query = new URLSearchParams({ response_type: 'code', client_id: clientId, redirect_uri: CALLBACK });
  const handles = (name: string) =>
    Array.from({ length: ACCOUNTS }, (_, number) => `${name}-${number}@example.com`);
  for (const handle of handles('minted')) await create(url, 'agents', { handle });
  for (const handle of handles('chosen')) await post(`${url}/v1/accounts`, { handle, password: PASSWORD });
  for (const handle of handles('person'))
    await post(`${url}/v1/accounts`, { handle, password: PASSWORD, kind: 'human' });
  const wrong = (name: string, password: string) =>
    inTurn(
      handles(name).map((handle) =>
        request('GET', `/authorize?${query}`, { authorization: basic(handle, password) }),
      ),
    );
  const row = (name: string, password: string): TimingRow => ({
    name,
    url,
    expected: 401,
    classes: {
      unknown: wrong('nobody', password),
      minted: wrong('minted', password),
      'self-chosen': wrong('chosen', password),
      human: wrong('person', password),
    },
  });
  return [row('Basic at /authorize, chosen shape', WRONG), row('Basic at /authorize, agp_ shape', FORGED)];
}

/**
 * The status already distinguishes used and expired links from unknown ones. Time could additionally reveal whether
 * there is a principal whose identifier, of 80 random bits, the link begins with.
 */
async function links(lab: Lab): Promise<TimingRow[]> {
  const file = join(lab.folder(), 'idp.db');
  const { url } = await lab.unbound('idp', 'links', { uri: `sqlite:${file}` });
  const invite = async (number: number): Promise<string> => {
    const { invite_url: link = '' } = await create(url, 'invites', {
      handle: `invited-${number}@example.com`,
    });
    return new URL(link).pathname;
  };
  const paths = await times(2 * ACCOUNTS, invite);
  const [used, expired] = [paths.slice(0, ACCOUNTS), paths.slice(ACCOUNTS)];
  for (const path of used) await post(url + path, { password: PASSWORD });
  const store = await openStore(`sqlite:${file}`);
  for (const path of expired) {
    const id = `u_${path.slice('/invite/'.length, -43)}`;
    await principalCollection(store).updateOne({ id }, { set: { linkExpiresAt: 1 } });
  }
  await store.close();
  const forged = expired.map((path) => `${path.slice(0, -43)}${'x'.repeat(43)}`);
  const unknown = forged.map((path) => path.replace(/.{8}x{43}$/, `00000000${'x'.repeat(43)}`));
  const classes = { unknown, 'of another secret': forged, used, expired };
  const body = JSON.stringify({ password: PASSWORD });
  const row = (method: 'GET' | 'POST'): TimingRow => ({
    name: `${method} /invite/:token`,
    url,
    expected: [404, 410],
    classes: Object.fromEntries(
      Object.entries(classes).map(([name, ofClass]) => [
        name,
        inTurn(
          ofClass.map((path) =>
            method === 'GET' ? request('GET', path) : request('POST', path, JSON_BODY, body),
          ),
        ),
      ]),
    ),
  });
  return [row('GET'), row('POST')];
}

function inTurn(requests: string[]): () => string {
  let next = 0;
  return () => requests[next++ % requests.length] as string;
}

async function times<T>(count: number, call: (number: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (let number = 0; number < count; number++) results.push(await call(number));
  return results;
}

async function post(url: string, body: object, expected = 201, token?: string): Promise<Answer> {
  const headers = { ...JSON_BODY, ...(token && { authorization: `Bearer ${token}` }) };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await answer.text();
  if (answer.status !== expected) throw new Error(`${url} answered ${answer.status}: ${text}`);
  return (text === '' ? {} : JSON.parse(text)) as Answer;
}

/** What the rows read of an answer. */
interface Answer {
  data: {
    user: { id: string };
    accessToken: string;
    secret: string;
    recoveryCodes: string[];
    ceremony: string;
    options: object;
    loginToken: string;
  };
  error: { challenge: string };
}

/** Codes of an account with a second factor: how much of a wrong one is right. */
async function factors(lab: Lab): Promise<TimingRow[]> {
  const file = join(lab.folder(), 'saas.db');
  const uri = `sqlite:${file}`;
  const more = { FACTOR_ENCRYPTION_KEY: FACTOR_KEY };
  const { url } = await lab.unbound('saas-backend', 'factors', { uri, more });
  const account = { email: 'ada@example.com', password: PASSWORD };
  const { user, accessToken: token } = (await post(`${url}/api/auth/register`, account)).data;
  const store = await openStore(uri);
  await userCollection(store).updateOne({ id: user.id }, { set: { emailVerified: true } });
  await store.close();
  const own = `${url}/api/user/second-factor`;
  const { secret } = (await post(`${own}/begin`, {}, 200, token)).data;
  const { recoveryCodes } = (await post(`${own}/confirm`, { code: codeAt(secret, Date.now()) }, 200, token))
    .data;
  const { challenge } = (await post(`${url}/api/auth/login`, account, 401)).error;
  const [path, [recovery = '']] = ['/api/auth/second-factor', recoveryCodes];
  const another = (character = '') => (character === 'a' ? 'b' : 'a');
  const typed = (code: () => string) => () =>
    request('POST', path, JSON_BODY, JSON.stringify({ challenge, code: code() }));
  // Of the valid codes, a wrong one differs in the last digit.
  const nearly = () => {
    const code = codeAt(secret, Date.now());
    return code.slice(0, -1) + ((Number(code.at(-1)) + 5) % 10);
  };
  const far = () => [...codeAt(secret, Date.now())].map((digit) => (Number(digit) + 5) % 10).join('');
  return [
    {
      name: `POST ${path}, codes of the app`,
      url,
      expected: 401,
      classes: { 'five digits right': typed(nearly), 'no digit right': typed(far) },
    },
    {
      name: `POST ${path}, recovery codes`,
      url,
      expected: 401,
      classes: {
        'eleven characters right': typed(() => recovery.slice(0, -1) + another(recovery.at(-1))),
        'no character right': typed(() => recovery.replaceAll(/[a-z2-7]/g, another)),
      },
    },
  ];
}

/** The origin of the public address in the lab. */
const PAGES = 'https://app.example';

/** Signatures that are refused: of passkeys that exist, and of others. Credential IDs are at least 16 random bytes. */
async function passkeys(lab: Lab): Promise<TimingRow[]> {
  const { url } = await lab.unbound('saas-backend', 'passkeys', { more: { PASSKEYS: 'true' } });
  const path = '/api/auth/passkey';
  const signUp = `${url}/api/auth/register/passkey`;
  const known = await times(ACCOUNTS, async (number) => {
    const authenticator = new SoftwareAuthenticator(PAGES);
    const begun = await post(`${signUp}/begin`, { email: `known-${number}@example.com` }, 200);
    const credential = JSON.parse(authenticator.create(JSON.stringify(begun.data.options)));
    await post(signUp, { ceremony: begun.data.ceremony, credential });
    return authenticator;
  });
  const unknown = known.map((authenticator) => {
    const stranger = new SoftwareAuthenticator(PAGES);
    stranger.create(JSON.stringify({ challenge: 'x', user: { id: authenticator.user } }));
    return stranger;
  });
  const { ceremony, options } = (await post(`${url}${path}/begin`, {}, 200)).data;
  const text = JSON.stringify(options);
  const ask = (credential: object) =>
    request('POST', path, JSON_BODY, JSON.stringify({ ceremony, credential }));
  const requests = (of: SoftwareAuthenticator[], change: (signed: Signed) => void) =>
    inTurn(
      of.map((authenticator) => {
        const signed = JSON.parse(authenticator.get(text)) as Signed;
        change(signed);
        return ask(signed);
      }),
    );
  const [other] = unknown as [SoftwareAuthenticator, ...SoftwareAuthenticator[]];
  const wrongKey = (signed: Signed) => {
    signed.response.signature = (JSON.parse(other.get(text)) as Signed).response.signature;
  };
  const wrongUser = (signed: Signed) => {
    signed.response.userHandle = Buffer.from(`usr_${'0'.repeat(32)}`).toString('base64url');
  };
  return [
    {
      name: `POST ${path}`,
      url,
      expected: 401,
      classes: {
        unknown: requests(unknown, () => undefined),
        'known, wrong signature': requests(known, wrongKey),
        'known, of another user': requests(known, wrongUser),
      },
    },
  ];
}

interface Signed {
  response: { signature: string; userHandle: string };
}
