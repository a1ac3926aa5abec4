import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { legibleOn, textOn } from '../../../src/core/http/colours.js';
import { createIdentityServer, createServer } from '../../../src/index.js';
import { saasApp, testOptions } from '../../kit/app.js';
import { idpApp, idpOptions } from '../../kit/idp.js';
import { readMail } from '../../kit/mail.js';
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

t.test('pages show the brand, or the host name without one', async (t) => {
  const plain = await idpApp(t);
  const { text } = await plain.authorize(await plain.createClient());
  t.match(text, /<title>Sign in – id\.example\.test<\/title>/);
  t.match(text, '<p class="brand">id.example.test</p>');

  const named = await idpApp(t, { brandName: 'Ada & <Friends>' });
  for (const path of ['/logout', '/nothing', '/invite/x']) {
    const page = await named.request('GET', path, { headers: { accept: 'text/html' } });
    t.match(page.text, '<p class="brand">Ada &amp; &lt;Friends&gt;</p>', path);
  }

  const file = join(temporaryFolder(t), 'logo');
  writeFileSync(file, PNG);
  const shown = await idpApp(t, { brandName: 'Ada', brandLogo: file, brandAccent: '#FD0' });
  const page = await shown.request('GET', '/logout');
  t.match(page.text, /<img src="data:image\/png;base64,[^"]+" alt="Ada">/);
  t.match(page.text, /--accent:#FD0;--on-accent:#000000/);
});

t.test(
  'pages of the SaaS backend show the brand, by default the site name, and a logo for dark mode',
  async (t) => {
    const plain = await saasApp(t);
    const path = '/api/auth/reset-password?token=x';
    t.match((await plain.request('GET', path)).text, '<p class="brand">SaaS</p>');
    await plain.admin('PATCH', '/admin/api/settings', { siteName: 'Northwind', version: 0 });
    t.match((await plain.request('GET', path)).text, '<title>Choose a new password – Northwind</title>');

    const folder = temporaryFolder(t);
    const [brandLogo, brandLogoDark] = [join(folder, 'light'), join(folder, 'dark')];
    writeFileSync(brandLogo, PNG);
    writeFileSync(brandLogoDark, '<svg xmlns="http://www.w3.org/2000/svg"/>');
    const branded = await saasApp(t, { brandName: 'Ada', brandLogo, brandLogoDark, brandAccent: '#FD0' });
    const { text } = await branded.request('GET', path);
    t.match(
      text,
      /<source srcset="data:image\/svg\+xml;[^"]+" media="\(prefers-color-scheme: dark\)"><img src="data:image\/png;/,
    );
    t.match(text, /--accent:#FD0;--on-accent:#000000/);
    t.throws(() => createServer({ ...testOptions(folder), brandLogoDark }), {
      message: /BRAND_LOGO_DARK requires BRAND_LOGO\./,
    });
  },
);

t.test('mails show the name and the colours of the brand', async (t) => {
  const app = await mailedApp(t, { brandName: 'Ada & Co', brandAccent: '#FD0' });
  await app.signUp();
  const { headers, html } = readMail(await app.sink.next());
  t.match(headers, { subject: 'Welcome to Ada & Co', from: /^"?Ada & Co"? </ });
  t.match(html, /background: #FD0; color: #000000;/);
  t.match(html, new RegExp(`color: ${legibleOn('#f4f5f7', '#FD0')};`));
  t.match(html, new RegExp(`\\.link \\{ color: ${legibleOn('#1c212a', '#FD0')} !important`));
});

t.test('an invalid brand prevents the start, with all problems reported', async (t) => {
  const folder = temporaryFolder(t);
  const write = (name: string, content: string | Buffer) => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const start = (options: object) => () => createIdentityServer({ ...idpOptions(folder), ...options });
  t.throws(start({ brandName: ' ', brandLogo: join(folder, 'none'), brandAccent: 'blue' }), {
    message:
      /IDP_BRAND_NAME must be a name of 1 to 60 characters that is not blank[\s\S]*IDP_BRAND_LOGO names a file that cannot be read \(ENOENT\)[\s\S]*IDP_BRAND_ACCENT must be a colour/,
  });
  for (const name of ['x'.repeat(61), 'a\nb', '\u0000'])
    t.throws(start({ brandName: name }), /IDP_BRAND_NAME/);
  for (const colour of ['#12', '#12345', '#12345678', 'red;}', '#ggg', '#fff}']) {
    t.throws(start({ brandAccent: colour }), /IDP_BRAND_ACCENT/, colour);
  }
  const unfit = {
    page: '<!doctype html><html><svg></svg></html>',
    gif: 'GIF89a',
    empty: '',
    'renamed.svg': 'not an image',
  };
  for (const [name, content] of Object.entries(unfit)) {
    t.throws(start({ brandLogo: write(name, content) }), /must name an SVG, PNG, JPEG or WebP image/, name);
  }
  t.throws(start({ brandLogo: folder }), /cannot be read \(EISDIR\)/);
  const large = Buffer.concat([PNG, Buffer.alloc(64 * 1024)]);
  t.throws(start({ brandLogo: write('large', large) }), /more than 64 KiB/);

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
