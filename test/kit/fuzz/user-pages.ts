import { PASSWORD } from '../app.js';
import { type FuzzRequest, type Pair, pairsOf } from './request.js';

/** Requests of a browser for the pages for users of saas-backend. */

export interface PageVisitor {
  /** The headers of a browser with its cookies. */
  browser(): Pair[];
  /** Mostly that of the latest page, because a new sign-in ends the others. */
  pageForm(): string;
  one(kind: 'session' | 'code'): string;
  email(): string;
  newcomer(): string;
}

type Recipe = (self: PageVisitor) => Partial<FuzzRequest>;

type Fields = Record<string, string>;

const form = (self: PageVisitor, fields: Fields): Partial<FuzzRequest> => ({
  body: { form: pairsOf(fields) },
  headers: self.browser(),
});

/** A form of a page behind the sign-in. */
const own = (self: PageVisitor, fields: Fields = {}): Partial<FuzzRequest> =>
  form(self, { form: self.pageForm(), ...fields });

const CHALLENGE = { interaction: 'a.b.c', code: '000000' };

const CEREMONY = { ceremony: 'v1.x', credential: '{}' };

export const USER_PAGE_RECIPES: Record<string, Recipe> = {
  'GET /account/sign-in': () => ({
    query: pairsOf({ return_to: '/welcome' }),
    headers: [['accept', 'text/html']],
  }),
  'POST /account/sign-in': (self) => form(self, { email: self.email(), password: PASSWORD }),
  'POST /account/sign-in/second-factor': (self) => form(self, CHALLENGE),
  'POST /account/sign-in/second-factor/enrol': (self) => form(self, CHALLENGE),
  'POST /account/sign-in/code': (self) => form(self, { email: self.email() }),
  'GET /account/sign-in/code/enter': (self) => ({
    query: pairsOf({ code: 'AAAA-AAAA' }),
    headers: self.browser(),
  }),
  'POST /account/sign-in/code/enter': (self) => form(self, { code: self.one('code') }),
  'GET /account/sign-in/with/:provider': (self) => ({
    path: '/account/sign-in/with/github',
    headers: self.browser(),
  }),
  'GET /account/sign-in/return': (self) => ({ query: pairsOf({ ticket: 'v1.x' }), headers: self.browser() }),
  'POST /account/sign-up': (self) =>
    form(self, { email: self.newcomer(), name: 'Ada', password: PASSWORD, password_confirm: PASSWORD }),
  'POST /account/sign-up/passkey': (self) =>
    form(self, { email: self.newcomer(), name: 'Ada', password: '', password_confirm: '' }),
  'POST /account/sign-up/passkey/finish': (self) => form(self, CEREMONY),
  'POST /account/sign-in/passkey': (self) => form(self, CEREMONY),
  'POST /account/passkeys/add': (self) => own(self, { credential: '{}', name: 'Key' }),
  'POST /account/passkeys/rename': (self) => own(self, { id: 'x', name: 'Key' }),
  'POST /account/passkeys/remove': (self) => own(self, { id: 'x' }),
  'POST /account/forgot-password': (self) => form(self, { email: self.email() }),
  'POST /account/sign-out': (self) => own(self),
  'POST /account/name': (self) => own(self, { name: 'Ada' }),
  'POST /account/sessions/end': (self) => own(self, { sid: self.one('session') }),
  'POST /account/sessions/end-others': (self) => own(self),
  'POST /account/verification': (self) => own(self),
  'POST /account/password': (self) =>
    own(self, { current_password: PASSWORD, password: PASSWORD, password_confirm: PASSWORD }),
  'POST /account/delete': (self) => own(self, { confirm: self.newcomer(), password: PASSWORD }),
  'POST /account/address': (self) => own(self, { email: self.newcomer(), password: PASSWORD }),
  'POST /account/second-factor/begin': (self) => own(self),
  'POST /account/second-factor/confirm': (self) => own(self, { code: '000000' }),
  'POST /account/second-factor/recovery-codes': (self) => own(self, { code: '000000' }),
  'POST /account/second-factor/remove': (self) => own(self, { code: '000000', password: PASSWORD }),
  'POST /account/providers/connect': (self) => own(self, { provider: 'github' }),
  'GET /account/providers/return': (self) => ({
    query: pairsOf({ ticket: 'v1.x' }),
    headers: self.browser(),
  }),
  'GET /account/agents/return': (self) => ({ query: pairsOf({ ticket: 'v1.x' }), headers: self.browser() }),
  'POST /account/providers/disconnect': (self) => own(self, { id: 'x'.repeat(43) }),
  'POST /account/agents/connect': (self) => own(self),
  'POST /account/agents/disconnect': (self) => own(self),
  'GET /account/billing/change': (self) => ({
    query: pairsOf({ price: 'price_pro' }),
    headers: self.browser(),
  }),
  'POST /account/billing/checkout': (self) => own(self, { price: 'price_pro' }),
  'POST /account/billing/change': (self) => own(self, { price: 'price_pro' }),
  'POST /account/billing/portal': (self) => own(self),
  'POST /account/billing/cancel': (self) => own(self),
  'POST /account/billing/resume': (self) => own(self),
};

/** A request for a route of these pages; undefined for other routes. */
export function userPageDraft(
  self: PageVisitor,
  method: string,
  url: string,
): Partial<FuzzRequest> | undefined {
  if (!/^\/account(\/|$)/.test(url)) return undefined;
  return USER_PAGE_RECIPES[`${method} ${url}`]?.(self) ?? { headers: self.browser() };
}

/** Routes that cannot succeed in a fuzz, each with the reason. */
export const UNATTAINABLE_USER_PAGES: Record<string, string> = {
  ...Object.fromEntries(
    [
      ...['sign-in/second-factor', 'sign-in/second-factor/enrol'],
      ...['begin', 'confirm', 'recovery-codes', 'remove'].map((verb) => `second-factor/${verb}`),
    ].map((path) => [`POST /account/${path}`, 'few users have a verified address, and none a factor']),
  ),
  'POST /account/sign-in/code/enter': 'a code meets its login token only by chance',
  ...Object.fromEntries(
    ['sign-in/passkey', 'sign-up/passkey/finish', 'passkeys/add'].map((path) => [
      `POST /account/${path}`,
      'a passkey requires an authenticator',
    ]),
  ),
  'GET /account/sign-in/return': 'nobody signs in at the provider',
  'POST /account/delete': 'other requests depend on the users',
  ...Object.fromEntries(
    ['GET /account/billing/change', 'POST /account/billing/change', 'POST /account/billing/portal'].map(
      (route) => [route, 'the user of the browser has a subscription only by chance'],
    ),
  ),
  'POST /account/billing/cancel': 'the user of the browser has a subscription only by chance',
  'POST /account/billing/resume': 'the user of the browser has a subscription only by chance',
};
