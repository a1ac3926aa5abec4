/** Rejections of saas-backend for different reasons: on each row, requests that an attacker must not distinguish by time. */
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { Readable } from 'node:stream';
import { openStore } from '../../src/core/storage/open.js';
import { openUserAdministration } from '../../src/saas/administration.js';
import { loginCodeCollection } from '../../src/saas/auth/sign-in/login-codes.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { SoftwareAuthenticator } from '../kit/authenticator.js';
import { codeAt, FACTOR_KEY } from '../kit/factors.js';
import { waitUntil } from '../kit/wait.js';
import { basic } from './idp-rows.js';
import { type Lab, secret } from './lab.js';
import { ask, request } from './load.js';
import {
  ACCOUNTS,
  addressesOf,
  inTurn,
  JSON_BODY,
  PASSWORD,
  post,
  type TimingRow,
  type TimingRows,
  times,
  WRONG,
} from './timing-classes.js';

export const SAAS_TIMING_ROWS: TimingRows = { login, forgot, register, code, factors, passkeys };

/** Hashes without a password, in the default formats of bcrypt and argon2. */
const FOREIGN = {
  'imported bcrypt': `$2b$10$${'a'.repeat(53)}`,
  'imported argon2id': `$argon2id$v=19$m=65536,t=3,p=4$${'a'.repeat(22)}$${'a'.repeat(42)}Q`,
};

/** Registers accounts; returns their addresses. */
async function registerKnown(url: string, expected?: number): Promise<string[]> {
  const emails = addressesOf('known');
  for (const email of emails) await post(`${url}/api/auth/register`, { email, password: PASSWORD }, expected);
  return emails;
}

async function login(lab: Lab): Promise<TimingRow[]> {
  const name = 'POST /api/auth/login';
  return [await loginAt(lab, name, {}), await loginAt(lab, `${name}, imported accounts`, FOREIGN)];
}

/** @param foreign the hash of the imported accounts of each further class */
async function loginAt(lab: Lab, name: string, foreign: Record<string, string>): Promise<TimingRow> {
  const uri = lab.database('saas-backend');
  const imported = Object.keys(foreign).map((label) => [label, addressesOf(label.replace(' ', '-'))]) as [
    string,
    string[],
  ][];
  for (const [label, emails] of imported) await importAccounts(uri, emails, foreign[label] as string);
  const { url } = await lab.unbound('saas-backend', 'login', { uri });
  const known = await registerKnown(url);
  const unknown = addressesOf('other');
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
async function importAccounts(uri: string, emails: string[], passwordHash: string): Promise<void> {
  const lines = emails.map((email) => Buffer.from(`${JSON.stringify({ email, passwordHash })}\n`));
  process.env['DATABASE_URI'] = uri;
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
  const known = await registerKnown(url);
  const ask = (emails: string[]) =>
    inTurn(
      emails.map((email) =>
        request('POST', '/api/auth/forgot-password', JSON_BODY, JSON.stringify({ email })),
      ),
    );
  const unknown = addressesOf('other');
  const classes = { known: ask(known), unknown: ask(unknown) };
  return { name, url, expected: 200, classes };
}

async function register(lab: Lab): Promise<TimingRow[]> {
  const name = 'POST /api/auth/register, confirmed addresses';
  return [await registerAt(lab, name, {}), await registerAt(lab, `${name}, with a webhook`, WEBHOOKS)];
}

const ADMIN_PASSWORD = 'the password of the operator';
const WEBHOOKS = {
  WEBHOOKS: 'true',
  WEBHOOK_PRIVATE_NETWORKS: 'true',
  SETTINGS_ENCRYPTION_KEY: secret(),
  ADMIN_PASSWORD,
};

/** With required confirmation. A request makes its address known, so each request uses a new one. */
async function registerAt(lab: Lab, name: string, environment: Record<string, string>): Promise<TimingRow> {
  const more = { REQUIRE_EMAIL_VERIFICATION: 'true', ...environment };
  const { url } = await lab.unbound('saas-backend', 'register', { more });
  if ('WEBHOOKS' in environment) await receiveEvents(url);
  const apply = (email: string) =>
    request('POST', '/api/auth/register', JSON_BODY, JSON.stringify({ email, password: PASSWORD }));
  const known = await registerKnown(url, 202);
  let strangers = 0;
  const classes = {
    known: inTurn(known.map(apply)),
    unknown: () => apply(`other-${strangers++}@example.com`),
  };
  return { name, url, expected: 202, classes };
}

/** Adds an endpoint for all events, which accepts them. */
async function receiveEvents(url: string): Promise<void> {
  const server = createHttpServer((request, response) => {
    request.resume().once('end', () => response.writeHead(204).end());
  });
  await once(server.listen(0, '127.0.0.1').unref(), 'listening');
  const { port } = server.address() as AddressInfo;
  const answer = await ask(`${url}/admin/api/endpoints/create`, {
    method: 'POST',
    headers: { ...JSON_BODY, 'x-requested-with': 'bench', authorization: basic('admin', ADMIN_PASSWORD) },
    body: JSON.stringify({ url: `http://127.0.0.1:${port}/` }),
  });
  if (answer.status !== 200) throw new Error(`the endpoint was not added: ${await answer.text()}`);
}

/** Requests for a code to sign in, and wrong codes. */
async function code(lab: Lab): Promise<TimingRow[]> {
  const more = { EMAIL_LOGIN: 'true' };
  const uri = lab.database('saas-backend');
  const { url } = await lab.unbound('saas-backend', 'code', { uri, more });
  const [known, unknown] = [await registerKnown(url), addressesOf('other')];
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
  const store = await openStore(uri);
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

/** Codes of an account with a second factor: how much of a wrong one is right. */
async function factors(lab: Lab): Promise<TimingRow[]> {
  const uri = lab.database('saas-backend');
  const more = { FACTOR_ENCRYPTION_KEY: FACTOR_KEY };
  const { url } = await lab.unbound('saas-backend', 'factors', { uri, more });
  const account = { email: 'ada@example.com', password: PASSWORD };
  const { user, accessToken: token } = (await post(`${url}/api/auth/register`, account)).data;
  const store = await openStore(uri);
  await userCollection(store).updateOne({ id: user.id }, { set: { emailVerified: true } });
  await store.close();
  const own = `${url}/api/user/second-factor`;
  const { secret: factor } = (await post(`${own}/begin`, {}, 200, token)).data;
  const { recoveryCodes } = (await post(`${own}/confirm`, { code: codeAt(factor, Date.now()) }, 200, token))
    .data;
  const { challenge } = (await post(`${url}/api/auth/login`, account, 401)).error;
  const [path, [recovery = '']] = ['/api/auth/second-factor', recoveryCodes];
  const another = (character = '') => (character === 'a' ? 'b' : 'a');
  const typed = (code: () => string) => () =>
    request('POST', path, JSON_BODY, JSON.stringify({ challenge, code: code() }));
  // Of the valid codes, a wrong one differs in the last digit.
  const nearly = () => {
    const code = codeAt(factor, Date.now());
    return code.slice(0, -1) + ((Number(code.at(-1)) + 5) % 10);
  };
  const far = () => [...codeAt(factor, Date.now())].map((digit) => (Number(digit) + 5) % 10).join('');
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
