import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import axe from 'axe-core';
import t from 'tap';
import { onChromium } from '../kit/chromium.js';
import { temporaryFolder } from '../kit/tmp.js';
import { authorizeUrl, fillSignIn, reachableIdp, refusalsOf, serveElsewhere } from './kit.js';

/** What an operator adds to the pages does them no harm. */

await onChromium((browser) => {
  t.test('a logo from another origin is displayed as an image and cannot run scripts', async (t) => {
    const requests: string[] = [];
    const stranger = await serveElsewhere(t, (request, response) => {
      requests.push(request.url ?? '');
      response.end();
    });
    const file = join(temporaryFolder(t), 'logo.svg');
    writeFileSync(
      file,
      `<svg xmlns="http://www.w3.org/2000/svg" width="120" height="40" onload="parent.document.title='taken'; fetch('${stranger.url}/onload')">
        <script>parent.document.title = 'taken'; fetch('${stranger.url}/script')</script>
        <style>@import url(${stranger.url}/style);</style>
        <image href="${stranger.url}/image" width="9" height="9"/>
        <foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="${stranger.url}/frame"/></foreignObject>
        <rect width="120" height="40" fill="#c30"/>
      </svg>`,
    );
    const { idp, origin } = await reachableIdp(t, { brandLogo: file, brandName: 'Ada’s' });
    const client = await idp.createClient();
    const context = await browser.newContext();
    t.teardown(() => context.close());
    const refusals = refusalsOf(context);
    const page = await context.newPage();
    await page.goto(authorizeUrl(origin, client));
    const logo = page.getByRole('img', { name: 'Ada’s' });
    t.equal(await page.evaluate("document.querySelector('.brand img').naturalWidth"), 120, 'it is shown');
    t.equal((await logo.boundingBox())?.height, 40);
    t.equal(await page.title(), 'Sign in – Ada’s');
    t.same(requests, []);
    t.same(refusals, [], 'and needs nothing that the policy does not allow');
  });

  t.test('a brand colour of low contrast is adjusted in light and dark mode', async (t) => {
    for (const brandAccent of ['#fd0', '#0b1f4b']) {
      const { idp, origin } = await reachableIdp(t, { brandAccent });
      const client = await idp.createClient({ redirect_uris: `${origin}/health` });
      const { handle } = await idp.makeHuman();
      const context = await browser.newContext({ bypassCSP: true });
      t.teardown(() => context.close());
      const page = await context.newPage();
      await page.goto(authorizeUrl(origin, client));
      await fillSignIn(page, handle);
      await Promise.all([page.waitForURL(/\/health/), page.keyboard.press('Enter')]);
      await page.goto(authorizeUrl(origin, client, { prompt: 'consent' }));
      await page.evaluate(axe.source);
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme });
        const ids = await page.evaluate('axe.run().then(({ violations }) => violations.map(({ id }) => id))');
        t.same(ids, [], `${brandAccent}, ${colorScheme}`);
      }
    }
  });
});
