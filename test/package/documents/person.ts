import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Agent, type Page } from '../../kit/agent.js';
import { waitUntil } from '../../kit/wait.js';

/** What the pages tell a person to do between the commands, in a browser without a screen. */

const PASSWORD = 'a sentence is fine';
const chosen = { password: PASSWORD, password_confirm: PASSWORD };

/** The address of the first link that contains `text`. */
function linkIn(page: Page, text: string): string {
  const links = [...page.body.matchAll(/href="([^"]*)"/g)].map(([, href = '']) =>
    href.replace(/&#x([0-9A-F]+);/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
  );
  const found = links.map((href) => href.replaceAll('&amp;', '&')).find((href) => href.includes(text));
  if (found === undefined) throw new Error(`no link with ${text} at ${page.url}`);
  return new URL(found, page.url).href;
}

/** The address in the newest mail of a kind, in `./data/mail`. */
async function mailedLink(folder: string, kind: string): Promise<string> {
  const mailbox = join(folder, 'data/mail');
  // It exists with the first mail.
  const mails = () =>
    (existsSync(mailbox) ? readdirSync(mailbox) : []).filter((name) => name.endsWith('.txt'));
  const linkInNewest = () => {
    const newest = mails().findLast((name) => name.includes(kind));
    const text = newest && readFileSync(join(mailbox, newest), 'utf8');
    return /^http:\S+token=\S+$/m.exec(text ?? '')?.[0];
  };
  // The file exists before it is written.
  await waitUntil('the mail', () => linkInNewest() !== undefined);
  return linkInNewest() ?? '';
}

/** "In the browser", of docs/saas/agents-own-provider.md. Returns the browser. */
export async function connectAccounts(origin: string, folder: string): Promise<Agent> {
  const browser = new Agent({ origin });
  const email = 'grace@example.com';
  const account = await browser.submit(await browser.open(`${origin}/account/sign-up`), { email, ...chosen });
  await browser.submit(account, {}, '/verification');
  const confirming = await browser.open(await mailedLink(folder, 'verify-email'));
  await browser.submit(confirming, { password: PASSWORD });
  const agents = await browser.open(linkIn(await browser.open(`${origin}/account`), '/agents'));
  const signIn = await browser.submit(agents, {}, '/connect');
  const signUp = await browser.open(linkIn(signIn, 'prompt=create'));
  const connected = await browser.submit(signUp, { handle: email, ...chosen });
  if (!connected.body.includes('The account is connected')) throw new Error(connected.body);
  return browser;
}

/** "In the browser", of docs/saas/agents-in-your-api.md. The browser of a person who has accepted the invitation, at the page of the address. */
export async function acceptInvitation(printed: string, address: string): Promise<Agent> {
  const browser = new Agent({ origin: address });
  const [, invitation = ''] = /^invite_url +(\S+)$/m.exec(printed) ?? [];
  await browser.submit(await browser.open(invitation), chosen);
  await browser.submit(await browser.open(address), { handle: 'you@example.com', password: PASSWORD });
  return browser;
}

/** Allows what the page asks for; the code with which the browser returns to the application. */
export async function allow(browser: Agent, address: string): Promise<string> {
  const { location = '' } = await browser.submit(await browser.open(address));
  return new URL(location).searchParams.get('code') ?? '';
}

/** Signs up at an identity provider and enters the code that a device shows. Returns the last page. */
export async function enterCode(origin: string, code: string): Promise<Page> {
  const browser = new Agent({ origin });
  const handle = 'tv@example.com';
  await browser.submit(await browser.open(`${origin}/account/sign-up`), { handle, ...chosen });
  const asked = await browser.submit(await browser.open(`${origin}/device`), { user_code: code });
  return browser.submit(asked);
}

/** Follows "Look and decide" of the latest request on the account page and allows it. Returns the page that asks. */
export async function decideFirst(browser: Agent, origin: string): Promise<Page> {
  const account = () => browser.open(`${origin}/account`);
  await waitUntil('the request', async () => (await account()).body.includes('Look and decide'));
  const asked = await browser.open(linkIn(await account(), '/approve/'));
  await browser.submit(asked, { decision: 'allow' });
  return asked;
}
