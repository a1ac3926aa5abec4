import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { decodeEntities } from '../../kit/agent.js';
import { saasApp } from '../../kit/app.js';
import { idpApp } from '../../kit/idp.js';
import { type Mail, mailSink, readMail } from '../../kit/mail.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';

/** The page Branding, which both products have. */

const LOGO = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path d="M0 0h9v9z"/></svg>';

/** The cells of the row with this label. */
const rowOf = (html: string, label: string): string =>
  html.match(new RegExp(`<tr role="row">(?:(?!</tr>)[\\s\\S])*>${label}<[\\s\\S]*?</tr>`))?.[0] ?? '';

t.test('the page shows the values in force, where each comes from, and where to change it', async (t) => {
  const folder = temporaryFolder(t);
  for (const [name, text] of [
    ['logo.svg', LOGO],
    ['welcome.subject', 'Ahoy'],
    ['_foot.html', '<hr>'],
  ] as const)
    writeFileSync(join(folder, name), text);
  const app = await saasApp(t, {
    env: { BRAND_ACCENT: '#a51d2d', FROM_NAME: 'The Post' },
    brandLogo: join(folder, 'logo.svg'),
    emailTemplateDir: folder,
  });
  const { status, text } = await app.admin('GET', '/admin/branding');
  t.equal(status, 200);
  const page = decodeEntities(text);
  const rows: [label: string, ...cells: string[]][] = [
    ['Product name', 'SaaS', 'default', 'href="./settings"', 'BRAND_NAME'],
    ['Accent', '#a51d2d', 'BRAND_ACCENT'],
    ['Logo', 'logo.svg', 'the option brandLogo', 'BRAND_LOGO'],
    ['Name of the sender', 'The Post', 'FROM_NAME'],
    ['Replies go to', 'the sender address', 'default', 'EMAIL_REPLY_TO'],
    ['Own e-mail templates', `${folder}: welcome.subject, _foot.html`, 'the option emailTemplateDir'],
  ];
  for (const [label, ...cells] of rows)
    for (const cell of cells) t.ok(rowOf(page, label).includes(cell), cell);
  t.match(page, 'data:image/svg+xml;base64,', 'the logo');
  t.match(page, 'fill="#a51d2d"', 'the colour');
  t.notMatch(page, '<form method="post"', 'nothing is edited there');
});

t.test('each e-mail is shown in a frame that runs nothing, in the chosen language', async (t) => {
  const app = await saasApp(t);
  const list = decodeEntities((await app.admin('GET', '/admin/branding?locale=de')).text);
  const subject = createMessages().catalogue('de').text('mail.welcome.subject', { siteName: 'SaaS' });
  t.match(rowOf(list, 'Welcome'), subject);
  t.match(list, 'href="./mails/templates/welcome?locale=de"');
  const { text, headers } = await app.admin('GET', '/admin/mails/templates/welcome?locale=de');
  const page = decodeEntities(text);
  t.match(page, subject);
  t.match(page, 'src="welcome/html?locale=de" title="The e-mail welcome" sandbox');
  t.match(headers['content-security-policy'], /^default-src 'none'.* frame-src 'self'; /);
  const frame = await app.admin('GET', '/admin/mails/templates/welcome/html?locale=de');
  t.match(frame.headers['content-security-policy'], /^default-src 'none'.* frame-ancestors 'self'; sandbox$/);
  t.match(frame.text, 'lang="de"');
  const other = await app.admin('GET', '/admin/help');
  t.notMatch(other.headers['content-security-policy'], 'frame-src', 'no other page has frames');
  t.equal((await app.admin('GET', '/admin/branding?locale=de%22')).status, 400);
  t.equal((await app.request('GET', '/admin/branding')).status, 401);
});

t.test('the pages of people are linked if they are served, in the chosen language', async (t) => {
  const without = await saasApp(t);
  t.notMatch((await without.admin('GET', '/admin/branding')).text, 'sign-in');
  const app = await saasApp(t, { accountPages: true });
  const page = decodeEntities((await app.admin('GET', '/admin/branding?locale=de')).text);
  for (const path of ['/sign-in', '/sign-up', '/forgot-password']) {
    t.match(page, `href="/account${path}?ui_locales=de"`);
    const opened = await app.request('GET', `/account${path}?ui_locales=de`);
    t.match(opened, { status: 200, text: 'lang="de"' });
  }
});

t.test('idp shows the e-mails that it sends, and its pages with the request of an example', async (t) => {
  const sink = await mailSink(t);
  const idp = await idpApp(t, { publicUrl: undefined, emailSmtpUrl: sink.url, brandName: 'Northwind' });
  const { get, act } = await enterConsole(idp, await makeOperator(t, idp), '/branding');
  const { body } = await get('/branding?locale=de');
  t.match(rowOf(body, 'Product name'), /Northwind[\s\S]*the option brandName[\s\S]*IDP_BRAND_NAME/);
  t.match(body, 'href="./mails/templates/invitation?locale=de"');
  t.notMatch(body, 'receipt', 'idp sends no receipts');
  t.equal((await get('/mails/templates/receipt')).status, 404);
  t.match((await get('/mails/templates/invitation?locale=de')).body, 'Northwind');
  for (const name of ['sign-in', 'sign-up', 'consent']) {
    const page = await get(`/branding/pages/${name}?locale=de`);
    t.match(page, { status: 200, body: 'Grafana' }, name);
    t.match(page.body, 'lang="de"');
    t.match(page.headers.get('content-security-policy'), / sandbox; /, 'its forms do nothing');
  }
  t.equal((await get('/branding/pages/nothing')).status, 404);
  const shown = (await get('/mails/templates/invitation?locale=de')).body;
  t.match(shown, 'href="invitation/test?locale=de"', 'the test e-mail has the language of the preview');
  const test = '/mails/templates/invitation/test?locale=de';
  t.equal((await act(test, { to: 'operator@example.test' })).status, 200);
  const mailTo = (address: string) => sink.mails.find(({ to }) => to.includes(address));
  await waitUntil('the test e-mail is there', async () => mailTo('operator@example.test') !== undefined);
  t.match(readMail(mailTo('operator@example.test') as Mail).text, 'Sie sind eingeladen');
});

t.test('without a mail server, idp shows no e-mails; without a console, it routes nothing', async (t) => {
  const idp = await idpApp(t, { publicUrl: undefined });
  const { get } = await enterConsole(idp, await makeOperator(t, idp), '/branding');
  t.match((await get('/branding')).body, 'No mail server is configured.');
  t.equal((await get('/mails/templates/invitation')).status, 404);
  const without = await idpApp(t, { publicUrl: undefined, console: false });
  t.equal((await without.request('GET', '/admin/branding')).status, 404);
});
