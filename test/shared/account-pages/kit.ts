import type { Test } from 'tap';
import { Agent, type Page } from '../../kit/agent.js';
import { optionsIn, type SoftwareAuthenticator } from '../../kit/authenticator.js';
import { codeAt } from '../../kit/factors.js';
import {
  type Credentials,
  codeIn,
  type IdpApp,
  type IdpAppOptions,
  idpApp,
  type Parameters,
  type RegisteredClient,
} from '../../kit/idp.js';

/** The account pages in a browser. */

/** Without a public URL, the issuer is the address of the test. */
export const HERE = { publicUrl: undefined } satisfies IdpAppOptions;

export const FIREFOX = 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0';

export interface AccountBrowser {
  browser: Agent;
  origin: string;
  /** Opens a page below `/account`. */
  get(path?: string): Promise<Page>;
  /** Opens the account page and submits the form with this action. */
  act(action: string, fields?: Record<string, string>): Promise<Page>;
}

export async function browse(idp: IdpApp, headers?: Record<string, string>): Promise<AccountBrowser> {
  const origin = await idp.listen();
  const browser = new Agent({ origin, ...(headers && { headers }) });
  const get = (path = '') => browser.open(`${origin}/account${path}`);
  return {
    browser,
    origin,
    get,
    act: async (action, fields) => browser.submit(await get(), fields, action),
  };
}

/** The account page of a person who has signed in. */
export async function enterAccount(
  idp: IdpApp,
  { handle, password }: Pick<Credentials, 'handle' | 'password'>,
  headers?: Record<string, string>,
): Promise<AccountBrowser & { page: Page }> {
  const opened = await browse(idp, headers);
  const page = await opened.browser.submit(await opened.get(), { handle, password });
  return { ...opened, page };
}

/** A person with an account page, and an application with a refresh token. */
export async function connected(t: Test, options: IdpAppOptions = {}, more: Parameters = {}) {
  const idp = await idpApp(t, { ...HERE, ...options });
  const [client, human] = [await idp.createClient({ name: 'Shop' }), await idp.makeHuman()];
  const tokens = await connect(idp, client, human, more);
  return { idp, client, human, tokens, ...(await enterAccount(idp, human)) };
}

/** Signs in to an application in a browser of its own, and redeems the code. */
export async function connect(
  idp: IdpApp,
  client: RegisteredClient,
  { handle, password }: Credentials,
  more: Parameters = {},
): Promise<{ access_token: string; refresh_token: string }> {
  const { browser, page } = await idp.visit(client, { scope: 'openid profile offline_access', ...more });
  const end = await browser.submit(page, { handle, password });
  return (await idp.redeem(client, codeIn(end.location))).body;
}

/** Sets up an authenticator app on the account page. Returns its secret and the page with the recovery codes. */
export async function addFactor({ browser, get }: AccountBrowser, { clock }: Pick<IdpApp, 'clock'>) {
  const begun = await browser.submit(await get('/second-factor'), {}, '/begin');
  const secret = secretIn(begun.body);
  const shown = await browser.submit(begun, { code: codeAt(secret, clock.now()) }, '/confirm');
  return { secret, shown };
}

/** Adds a passkey on the account page. */
export async function addPasskey(
  { browser, get }: Pick<AccountBrowser, 'browser' | 'get'>,
  authenticator: SoftwareAuthenticator,
  fields: Record<string, string> = {},
): Promise<Page> {
  const page = await get('/passkeys');
  return browser.submit(page, { credential: authenticator.create(optionsIn(page.body)), ...fields }, '/add');
}

/** The secret on the page that sets up an authenticator app. */
export const secretIn = (html: string): string =>
  (/<code class="wrap" dir="ltr">([A-Z2-7 ]+)<\/code>/.exec(html)?.[1] ?? '').replaceAll(' ', '');
