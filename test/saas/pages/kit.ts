import type { Test } from 'tap';
import { Agent, type Page } from '../../kit/agent.js';
import { PASSWORD, type SaasApp, saasApp } from '../../kit/app.js';

/** The pages for users of saas-backend, in a browser without scripts. */

export const EMAIL = 'ada@example.test';
export const MINUTE = 60_000;

type Options = Parameters<typeof saasApp>[1];

export interface Visit {
  app: SaasApp;
  browser: Agent;
  origin: string;
  /** Opens a page below `/account`. */
  get(path?: string): Promise<Page>;
  /** Opens a page and submits its first form, or the one with this action. */
  fill(path: string, fields: Record<string, string>, action?: string): Promise<Page>;
}

const origins = new WeakMap<SaasApp, Promise<string>>();

/** A new browser. */
export async function visit(app: SaasApp): Promise<Visit> {
  const listening = origins.get(app) ?? app.listen();
  origins.set(app, listening);
  // The name that the server assumes without a public URL.
  const origin = (await listening).replace('127.0.0.1', 'localhost');
  const browser = new Agent({ origin });
  const get = (path = '') => browser.open(`${origin}/account${path}`);
  return {
    ...{ app, browser, origin, get },
    fill: async (path, fields, action) => browser.submit(await get(path), fields, action),
  };
}

/** Without a public URL, the address is that of the test. */
export const HERE = { publicUrl: undefined, accountPages: true } as unknown as NonNullable<Options>;

export async function visitNew(t: Test, options: Options = {}): Promise<Visit> {
  return visit(await saasApp(t, { ...HERE, ...options }));
}

export const signUp = (visitor: Visit, email = EMAIL, more = {}) =>
  visitor.fill('/sign-up', { email, name: 'Ada', password: PASSWORD, password_confirm: PASSWORD, ...more });

export const signIn = (visitor: Visit, password = PASSWORD, path = '/sign-in') =>
  visitor.fill(path, { email: EMAIL, password });

export const titleOf = ({ body }: Page) => /<h1>([^<]*)<\/h1>/.exec(body)?.[1] ?? '';
export const isAt = (page: Page, path: string) => new URL(page.url).pathname === path;

/** The header of cookies. */
export const headerOf = (cookies: Record<string, string>) =>
  Object.entries(cookies)
    .map((pair) => pair.join('='))
    .join('; ');
