import type { Test } from 'tap';
import { userCollection } from '../../../src/saas/auth/store.js';
import type { OperatorRole } from '../../../src/shared/console-kit/roles.js';
import { type Account, type Answer, PASSWORD, type SaasApp, storeOf } from '../../kit/app.js';
import { SoftwareAuthenticator } from '../../kit/authenticator.js';
import { FACTOR_KEY, setUpFactor } from '../../kit/factors.js';
import { type MailedApp, mailedApp } from '../auth/kit.js';
import { HERE, MINUTE, type Visit, visit } from '../pages/kit.js';

/** A backend whose users can become operators. */

export const OPTIONS = { ...HERE, factorEncryptionKey: FACTOR_KEY, passkeys: true, limits: false };

export interface Person extends Account {
  /** A new browser in which the person signs in, with a second factor if one is set up. */
  browse(): Promise<Visit>;
  /** Signs in once more in a browser, in the form of a page. */
  signIn(visitor: Visit, page: Awaited<ReturnType<Visit['get']>>): ReturnType<Visit['get']>;
  /** A code of the app. */
  code(): string;
}

export interface Place extends MailedApp {
  /** A user with a second factor. */
  person(name: string, more?: { role?: OperatorRole; hasFactor?: boolean }): Promise<Person>;
  /** Writes a role without its conditions. */
  setRole(id: string, role: OperatorRole | undefined): Promise<void>;
}

export async function place(t: Test, options: object = {}): Promise<Place> {
  const app = await mailedApp(t, { ...OPTIONS, ...options });
  const users = userCollection(await storeOf(t, app));
  const setRole: Place['setRole'] = async (id, role) => {
    await users.changeOne(
      { id },
      role === undefined ? { unset: ['operatorRole'] } : { set: { operatorRole: role } },
    );
  };
  const self: Place = {
    ...app,
    setRole,
    async person(name, { role, hasFactor = true } = {}) {
      const email = `${name}@example.test`;
      const account = await app.signUp({ email, name, emailVerified: true });
      const factor = hasFactor ? await setUpFactor(app, account.accessToken) : undefined;
      if (role) await setRole(account.id, role);
      const signIn: Person['signIn'] = async (visitor, page) => {
        const next = await visitor.browser.submit(page, { email, password: PASSWORD });
        if (!factor) return next;
        // A code is accepted once.
        app.clock.advance(MINUTE);
        return visitor.browser.submit(next, { code: factor.code() });
      };
      const browse = async () => {
        const visitor = await visit(self);
        await signIn(visitor, await visitor.get('/sign-in'));
        return visitor;
      };
      return { ...account, signIn, browse, code: () => factor?.code() ?? '' };
    },
  };
  return self;
}

/** Where passkeys are made without a browser. */
export const ORIGIN = 'http://app.example.test';
export const MODE = { 'session-mode': 'cookie' };

/** Adds a passkey to an account. */
export async function addPasskey(app: SaasApp, { accessToken: token }: Pick<Account, 'accessToken'>) {
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  const begun = await app.post('/user/passkeys/begin', undefined, { token });
  if (begun.status !== 200) return { added: begun };
  const { ceremony, options } = begun.body.data;
  const credential = JSON.parse(authenticator.create(JSON.stringify(options)));
  const added = await app.post('/user/passkeys', { ceremony, credential }, { token });
  return {
    added,
    async signIn(): Promise<Answer> {
      const asked = (await app.post('/auth/passkey/begin')).body.data;
      const signed = JSON.parse(authenticator.get(JSON.stringify(asked.options)));
      const body = { ceremony: asked.ceremony, credential: signed };
      return app.post('/auth/passkey', body, { headers: MODE });
    },
  };
}

/** The header with the cookies of an answer. */
export const cookieOf = ({ headers }: Answer): string =>
  [headers['set-cookie'] ?? '']
    .flat()
    .map((one) => String(one).split(';')[0])
    .join('; ');

/** A page of the admin area, with its redirects. */
export const open = ({ browser, origin }: Visit, path = '') => browser.open(`${origin}/admin${path}`);

/** Submits the first form of a page of the admin area. */
export const submit = async (visitor: Visit, path: string, fields: Record<string, string> = {}) =>
  visitor.browser.submit(await open(visitor, path), fields);

/** A request with the cookies of a browser, as its scripts send it. */
export const call = (
  app: SaasApp,
  { browser }: Visit,
  method: string,
  path: string,
  { body, headers = {} }: { body?: object; headers?: Record<string, string> } = {},
): Promise<Answer> =>
  app.request(method, `/admin${path}`, {
    headers: { cookie: browser.cookieHeader(), 'x-requested-with': 'test', ...headers },
    ...(body && { body }),
  });
