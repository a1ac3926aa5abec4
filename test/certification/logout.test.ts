import t, { type Test } from 'tap';
import type { Page } from '../kit/agent.js';
import type { Parameters } from '../kit/idp.js';
import { LOGGED_OUT, type Suite, suite } from './suite.js';

/**
 * The modules of the plan `oidcc-rp-initiated-logout-certification-test-plan`, under their own names, and two that the
 * suite has had beside it (`bad-id-token-hint` and `query-added-to-post-logout-redirect-uri`).
 */

interface Situation extends Suite {
  hint: string;
  state: string;
}

type Module = (t: Test, situation: Situation) => Promise<void>;

/** Whether the person is still signed in, as the suite finds out. */
const isSignedIn = async ({ authorize }: Suite) => {
  const { answer } = await authorize({ prompt: 'none' });
  if ('code' in answer) return true;
  if (answer['error'] !== 'login_required') throw new Error(JSON.stringify(answer));
  return false;
};

/** The application is called back, and nobody is signed in any more. */
const redirects =
  (leaveOut: string[]): Module =>
  async (t, { hint, state, logout, ...rest }) => {
    const all = { id_token_hint: hint, post_logout_redirect_uri: LOGGED_OUT, state };
    const page = await logout({ ...all, ...without(leaveOut) });
    const query = leaveOut.includes('state') ? '' : `?state=${state}`;
    t.equal(page.location, LOGGED_OUT + query);
    t.notOk(await isSignedIn({ ...rest, logout }));
  };

/** There is a page, and the application is never called back. The person may confirm, and is signed out then. */
const shows =
  (change: (all: Parameters) => Parameters, expected: 'done' | 'error' | 'question'): Module =>
  async (t, situation) => {
    const { hint, state, logout, browser } = situation;
    const all = { id_token_hint: hint, post_logout_redirect_uri: LOGGED_OUT, state };
    const page = await logout({ ...all, ...change(all) });
    const isPage = ({ status, location, headers }: Page) =>
      t.match(
        { status, location, type: headers.get('content-type') },
        { status: expected === 'error' ? 400 : 200, location: undefined, type: /^text\/html/ },
      );
    isPage(page);
    if (expected === 'question') isPage(await browser.submit(page));
    t.equal(await isSignedIn(situation), expected === 'error', 'whoever is told of an error stays');
  };

const without = (names: string[]): Parameters => Object.fromEntries(names.map((name) => [name, undefined]));
const ONLY = (...names: string[]): Parameters =>
  without(['id_token_hint', 'post_logout_redirect_uri', 'state'].filter((name) => !names.includes(name)));

/** The claims of a token under another header, unsigned. */
function unsigned(idToken: string, change: object): string {
  const [, payload = ''] = idToken.split('.');
  const claims = { ...JSON.parse(Buffer.from(payload, 'base64url').toString()), ...change };
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${encode({ alg: 'none' })}.${encode(claims)}.`;
}

const hinted = (forge: (idToken: string) => string) => (all: Parameters) => ({
  id_token_hint: forge(all['id_token_hint'] ?? ''),
});

const MODULES: Record<string, Module> = {
  'oidcc-rp-initiated-logout-discovery-endpoint-verification': async (t, { metadata }) => {
    t.match(metadata['end_session_endpoint'], /^https:\/\//);
  },
  'oidcc-rp-initiated-logout': redirects([]),
  'oidcc-rp-initiated-logout-bad-post-logout-redirect-uri': shows(
    () => ({ post_logout_redirect_uri: 'https://suite.example.test/unregistered' }),
    'error',
  ),
  'oidcc-rp-initiated-logout-modified-id-token-hint': shows(
    hinted((token) => unsigned(token, { sub: 'u_0' })),
    'error',
  ),
  'oidcc-rp-initiated-logout-no-id-token-hint': shows(() => without(['id_token_hint']), 'question'),
  'oidcc-rp-initiated-logout-no-params': shows(() => ONLY(), 'question'),
  'oidcc-rp-initiated-logout-no-post-logout-redirect-uri': shows(
    () => without(['post_logout_redirect_uri']),
    'done',
  ),
  'oidcc-rp-initiated-logout-no-state': redirects(['state']),
  'oidcc-rp-initiated-logout-only-state': shows(() => ONLY('state'), 'question'),
  'oidcc-rp-initiated-logout-bad-id-token-hint': shows(
    hinted(() => 'an-invalid-id-token'),
    'error',
  ),
  'oidcc-rp-initiated-logout-query-added-to-post-logout-redirect-uri': shows(
    ({ post_logout_redirect_uri: uri }) => ({ post_logout_redirect_uri: `${uri}?foo=bar` }),
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
