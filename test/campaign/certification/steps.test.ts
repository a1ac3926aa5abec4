import t from 'tap';
import { Agent, type Page } from '../../kit/agent.js';
import { authorizePath, idpApp, type Parameters } from '../../kit/idp.js';
import { walker } from './browser.js';

/** The steps of docs/explain/certification.md on the pages of the provider. What the modules check: test/idp/oidc. */

const REDIRECT_URI = 'https://www.certification.openid.net/test/a/idp/callback';
const LEFT = 'https://www.certification.openid.net/test/a/idp/post_logout_redirect';

t.test('the documented steps sign in, ask again, keep error pages and sign out', async (t) => {
  const idp = await idpApp(t, { limits: true });
  const [client, other] = [
    await idp.createClient({ redirect_uris: REDIRECT_URI, post_logout_redirect_uris: LEFT }),
    await idp.createClient({ redirect_uris: REDIRECT_URI }),
  ];
  const human = await idp.makeHuman({ handle: 'person@example.com', name: 'Person' });
  const origin = await idp.listen();
  const browser = new Agent({ origin });
  const visit = async (path: string, module = 'oidcc-server') => {
    const url = origin + path;
    return walker(module, browser, { origin, ...human })(url, await browser.open(url));
  };
  const authorize = (more: Parameters = {}, by = client) => visit(authorizePath(by, more));
  const hasReturned = ({ location }: Page) => location?.startsWith(`${REDIRECT_URI}?code=`);

  const first = await authorize();
  t.ok(hasReturned(first.page));
  t.equal(first.forms, 1);
  const silent = await authorize({ prompt: 'none' });
  t.same([silent.forms, hasReturned(silent.page)], [0, true]);
  for (const more of [{ prompt: 'login' }, { max_age: '0' }]) {
    const again = await authorize(more);
    t.ok(hasReturned(again.page));
    t.equal(again.forms, 1);
    t.match(again.screenshot, { status: 200, body: /<h1>Sign in</ });
  }
  const consent = await authorize({ scope: 'openid offline_access', prompt: 'consent' }, other);
  t.ok(hasReturned(consent.page));

  const refused = await authorize({ redirect_uri: `${REDIRECT_URI}/other` });
  t.match(refused.page, { status: 400, location: undefined, body: /<h1>/ });
  t.equal(refused.screenshot, refused.page);
  t.equal(refused.forms, 0);

  const question = await visit('/logout', 'oidcc-rp-initiated-logout-no-id-token-hint');
  t.match(question.screenshot?.body, /Sign out\?/);
  const out = await visit('/logout');
  t.equal(out.forms, 1);
  t.match(out.screenshot, { status: 200 });
  t.equal((await authorize()).forms, 1, 'the session has ended');
});
