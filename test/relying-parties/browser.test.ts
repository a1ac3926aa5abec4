import { readFileSync } from 'node:fs';
import t from 'tap';
import { onChromium } from '../kit/chromium.js';
import { compiled } from '../kit/process.js';
import { recipe, startProvider, startSite } from './kit.js';

/** An application without a server: the recipe of oidc-client-ts, in a real browser. */

/** Its build for pages without a bundler makes a global name; here it is a module, too. */
const FILE = '../node_modules/oidc-client-ts/dist/browser/oidc-client-ts.min.js';
const LIBRARY = `${readFileSync(compiled(FILE), 'utf8')}\nexport const { UserManager } = oidc;`;

const PAGE = `<!doctype html><body>
<script type="importmap">{ "imports": { "oidc-client-ts": "/oidc-client-ts.js" } }</script>
<script type="module" src="/recipe.js"></script>`;

await onChromium((browser) => {
  t.test('oidc-client-ts signs a person in and does not verify the signature', async (t) => {
    const provider = await startProvider(t);
    const { idp, issuer, human, middle } = provider;
    const site = await startSite(t);
    const client = await idp.createClient({ redirect_uris: `${site.url}/callback`, public: true });
    const files: Record<string, string> = {
      '/oidc-client-ts.js': LIBRARY,
      '/recipe.js': recipe('oidc-client-ts', { 'http://localhost:8080': issuer, 'cid_…': client.id }),
    };
    site.answer = ({ url = '/' }, response) => {
      const type = files[url] ? 'text/javascript' : 'text/html';
      response.writeHead(200, { 'content-type': type }).end(files[url] ?? PAGE);
    };

    for (const swapsKey of [false, true]) {
      middle.swapsKey = swapsKey;
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(site.url);
      await page.fill('[name=handle]', human.handle);
      await page.fill('[name=password]', human.password);
      await page.press('[name=password]', 'Enter');
      const text = await page.textContent('body:has-text("sub_profile")');
      const { sub, handle: email } = human;
      t.match(JSON.parse(text ?? ''), { sub, email, name: 'Ada', kind: 'human', sub_profile: 'user' });
      t.equal(new URL(page.url()).pathname, '/callback');
      await context.close();
    }
  });
});
