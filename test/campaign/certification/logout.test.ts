import { SignJWT } from 'jose';
import t, { type Test } from 'tap';
import type { Page } from '../../kit/agent.js';
import type { Parameters, RegisteredClient } from '../../kit/idp.js';
import { LOGGED_OUT, type Suite, suite } from './suite.js';

/**
 * The modules of the plan `oidcc-rp-initiated-logout-certification-test-plan`, with their original names and
 * order.
 */

interface Situation extends Suite {
  hint: string;
  state: string;
}

type Module = (t: Test, situation: Situation) => Promise<void>;

/** Whether the person is still signed in, checked as in the suite. */
const isSignedIn = async ({ authorize }: Suite) => {
  const { answer } = await authorize({ prompt: 'none' });
  if ('code' in answer) return true;
  if (answer['error'] !== 'login_required') throw new Error(JSON.stringify(answer));
  return false;
};

/** The provider redirects to the application, and the person is signed out. */
const redirects =
  (leaveOut: string[]): Module =>
  async (t, { hint, state, logout, ...rest }) => {
    const all = { id_token_hint: hint, post_logout_redirect_uri: LOGGED_OUT, state };
    const { page } = await logout({ ...all, ...without(leaveOut) });
    const query = leaveOut.includes('state') ? '' : `?state=${state}`;
    t.equal(page.location, LOGGED_OUT + query);
    t.notOk(await isSignedIn({ ...rest, logout }));
  };

/** The person sees a page, stored for manual review, and the provider does not redirect to the application. */
const shows =
  (
    change: (situation: Situation) => Parameters | Promise<Parameters>,
    expected: keyof typeof PAGES,
  ): Module =>
  async (t, situation) => {
    const { hint, state, logout, browser } = situation;
    const all = { id_token_hint: hint, post_logout_redirect_uri: LOGGED_OUT, state };
    const { page, screenshot, forms } = await logout({ ...all, ...(await change(situation)) });
    const seen = (page: Page) => ({ ...page, type: page.headers.get('content-type') });
    t.equal(screenshot, page);
    t.match({ ...seen(page), forms }, { ...PAGE, ...PAGES[expected] });
    const stays = expected === 'error' || expected === 'question';
    t.equal(await isSignedIn(situation), stays, 'an error or a question keeps the session');
    if (expected !== 'question') return;
    t.match(seen(await browser.submit(page)), { ...PAGE, status: 200, body: SIGNED_OUT });
    t.notOk(await isSignedIn(situation));
  };

const PAGE = { location: undefined, type: /^text\/html/ };
const SIGNED_OUT = /<h1>You are signed out</;
const PAGES = {
  done: { status: 200, body: SIGNED_OUT, forms: 0 },
  confirmed: { status: 200, body: SIGNED_OUT, forms: 1 },
  error: { status: 400, body: /<h1>/, forms: 0 },
  question: { status: 200, body: /<h1>Sign out\?</, forms: 0 },
};

const without = (names: string[]): Parameters => Object.fromEntries(names.map((name) => [name, undefined]));
const ONLY = (...names: string[]): Parameters =>
  without(['id_token_hint', 'post_logout_redirect_uri', 'state'].filter((name) => !names.includes(name)));

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** The same claims, unsigned. */
const unsigned = (idToken: string) => `${encode({ alg: 'none' })}.${idToken.split('.')[1]}.`;

/** A token for the provider, signed by the client with its secret. */
const bySuite = ({ id, secret }: RegisteredClient, issuer: string) =>
  new SignJWT({ iss: id, sub: 'SubjectID', aud: issuer, nonce: 'flibble' })
    .setProtectedHeader({ alg: 'HS256' })
    .setIssuedAt()
    .setExpirationTime('5m')
    .sign(Buffer.from(secret ?? ''));

const MODULES: Record<string, Module> = {
  'oidcc-rp-initiated-logout-discovery-endpoint-verification': async (t, { metadata }) => {
    t.match(metadata['end_session_endpoint'], /^https:\/\//);
  },
  'oidcc-rp-initiated-logout': redirects([]),
  'oidcc-rp-initiated-logout-bad-post-logout-redirect-uri': shows(
    () => ({
      post_logout_redirect_uri:
        'https://www.certification.openid.net/test/a/idp/bad_post_logout_redirect_uri',
    }),
    'error',
  ),
  'oidcc-rp-initiated-logout-modified-id-token-hint': shows(
    ({ hint }) => ({ id_token_hint: unsigned(hint) }),
    'error',
  ),
  'oidcc-rp-initiated-logout-no-id-token-hint': shows(() => without(['id_token_hint']), 'question'),
  'oidcc-rp-initiated-logout-no-params': shows(() => ONLY(), 'confirmed'),
  'oidcc-rp-initiated-logout-no-post-logout-redirect-uri': shows(
    () => without(['post_logout_redirect_uri']),
    'done',
  ),
  'oidcc-rp-initiated-logout-no-state': redirects(['state']),
  'oidcc-rp-initiated-logout-only-state': shows(() => ONLY('state'), 'confirmed'),
  'oidcc-rp-initiated-logout-query-added-to-post-logout-redirect-uri': shows(
    () => ({ post_logout_redirect_uri: `${LOGGED_OUT}?foo=bar` }),
    'error',
  ),
  'oidcc-rp-initiated-logout-bad-id-token-hint': shows(
    async ({ client, metadata }) => ({ id_token_hint: await bySuite(client, metadata['issuer'] as string) }),
    'error',
  ),
};

const visit = await suite(t);
for (const [name, module] of Object.entries(MODULES)) {
  t.test(name, async (t) => {
    const all = visit(t);
    const { tokens } = await all.flow();
    await module(t, { ...all, hint: tokens.id_token, state: 's'.repeat(128) });
  });
}
