import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { isSimilarHue, legibleOn, mix, textOn } from '../../../src/core/http/colours.js';
import { createServer } from '../../../src/index.js';
import { saasApp, testOptions } from '../../kit/app.js';
import { idpApp } from '../../kit/idp.js';
import { readMail } from '../../kit/mail.js';
import { sentence } from '../../kit/sentences.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { mailedApp } from '../../saas/auth/kit.js';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

/** As defined in WCAG 2.2. */
function contrast(one: string, other: string): number {
  const luminance = (hex: string) => {
    const [r = 0, g = 0, b = 0] = [1, 3, 5].map((at) => {
      const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
  return (light + 0.05) / (dark + 0.05);
}

t.test('text in and on any brand colour is legible', async (t) => {
  const digits = ['0', '3', '6', '8', 'a', 'c', 'f'];
  for (const red of digits) {
    for (const green of digits) {
      for (const blue of digits) {
        const [short, long] = [`#${red}${green}${blue}`, `#${red}${red}${green}${green}${blue}${blue}`];
        const worst = [contrast(long, textOn(short))];
        for (const ground of ['#ffffff', '#f4f5f7', '#1c212a', '#12151b']) {
          worst.push(contrast(legibleOn(ground, short), ground));
        }
        t.ok(Math.min(...worst) >= 4.5, `${short}: ${worst}`);
      }
    }
  }
  t.equal(legibleOn('#ffffff', '#1f4fd8'), '#1f4fd8', 'what is legible stays as it is');
});

t.test('pages show the brand, escaped, and a logo for dark mode', async (t) => {
  const folder = temporaryFolder(t);
  const [brandLogo, brandLogoDark] = [join(folder, 'light'), join(folder, 'dark')];
  writeFileSync(brandLogo, PNG);
  writeFileSync(brandLogoDark, '<svg xmlns="http://www.w3.org/2000/svg"/>');
  const named = await idpApp(t, { brandName: 'Ada & <Friends>', brandAccent: '#FD0' });
  for (const path of ['/logout', '/nothing', '/invite/x']) {
    const page = await named.request('GET', path, { headers: { accept: 'text/html' } });
    t.match(page.text, 'Ada &amp; &lt;Friends&gt;</p>', path);
    t.match(page.text, '--accent:#FD0;--on-accent:#000000');
  }
  t.match((await (await idpApp(t)).request('GET', '/logout')).text, 'id.example.test</p>', 'by default');

  const path = '/api/auth/reset-password?token=x';
  const app = await saasApp(t, { brandLogo, brandLogoDark });
  await app.admin('PATCH', '/admin/api/settings', { siteName: 'Northwind', version: 0 });
  const { text } = await app.request('GET', path);
  t.match(text, 'alt="Northwind"', 'by default, the name of the site');
  t.match(
    text,
    /srcset="data:image\/svg\+xml;[^"]+" media="\(prefers-color-scheme: dark\)"><img src="data:image\/png;/,
  );
  t.throws(
    () => createServer({ ...testOptions(folder), brandLogoDark }),
    /BRAND_LOGO_DARK requires BRAND_LOGO\./,
  );
});

t.test('a plot has no two series that look like the accent', async (t) => {
  t.ok(isSimilarHue('#1f4fd8', '#2563eb'));
  t.notOk(isSimilarHue('#1f4fd8', '#b45309'));
  t.notOk(isSimilarHue('#1f4fd8', '#5a6371'), 'a grey is like no colour');
  t.ok(isSimilarHue('#ff0010', '#ff1000'), 'around the end of the wheel, too');
});

t.test('mails show the name and the colours of the brand', async (t) => {
  const app = await mailedApp(t, { brandName: 'Ada & Co', brandAccent: '#FD0' });
  await app.signUp();
  const { headers, html } = readMail(await app.sink.next());
  const subject = sentence('mail.welcome.subject', { siteName: 'Ada & Co' });
  t.match(headers, { subject, from: /^"?Ada & Co"? </ });
  t.match(html, /background: #FD0; color: #000000;/);
  t.match(html, new RegExp(`color: ${legibleOn(mix('#f6f7f9', '#FD0', 0.1), '#FD0')};`));
  t.match(
    html,
    new RegExp(`\\.link \\{ color: ${legibleOn(mix('#161b23', '#FD0', 0.1), '#FD0')} !important`),
  );
});

t.test('a page contains a logo of any of the formats', async (t) => {
  const folder = temporaryFolder(t);
  const write = (name: string, content: string | Buffer) => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const fit = {
    'image/svg+xml':
      '\ufeff<?xml version="1.0"?>\n<!-- made by hand -->\n<!DOCTYPE svg>\n<svg xmlns="http://www.w3.org/2000/svg"/>',
    'image/webp': 'RIFF\x01\x02\x03\x04WEBPVP8 ',
    'image/jpeg': Buffer.from([0xff, 0xd8, 0xff, 0xe0]),
  };
  for (const [type, content] of Object.entries(fit)) {
    const idp = await idpApp(t, { brandLogo: write('fit', content) });
    t.match((await idp.request('GET', '/logout')).text, `src="data:${type};base64,`);
  }
});
