import type { Test } from 'tap';
import { createCommit } from '../../src/core/ops/commit.js';
import { createOperatorRoles } from '../../src/idp/provisioning/operators.js';
import { principalCollection } from '../../src/idp/provisioning/store.js';
import { Agent, decodeEntities, type Page } from './agent.js';
import { SILENT_AUDIT } from './effects.js';
import { type Credentials, type IdpApp, idpStore } from './idp.js';

/** Operators of an identity provider, and their console in a browser. */

/** As commands on the host name their origin. */
export const COMMAND_SOURCE = { ip: 'cli', isDisconnected: () => false };

/** The role, through a connection of its own, as `idp operator` uses it. */
export async function rolesOf(t: Test, idp: IdpApp) {
  const store = await idpStore(t, idp);
  const deps = { commit: createCommit(store), audit: SILENT_AUDIT, clock: idp.clock };
  return createOperatorRoles(principalCollection(store), deps);
}

/** A person with the role. */
export async function makeOperator(t: Test, idp: IdpApp, handle?: string): Promise<Credentials> {
  const person = await idp.makeHuman(handle === undefined ? {} : { handle });
  await (await rolesOf(t, idp)).grant(person.sub, COMMAND_SOURCE);
  return person;
}

/** The console in a browser of its own. */
export interface ConsoleBrowser {
  browser: Agent;
  origin: string;
  get(path: string): Promise<Page>;
  /** Opens the page of an action, fills in its form and submits it. */
  act(path: string, fields?: Record<string, string>): Promise<Page>;
}

export async function browse(idp: IdpApp, prefix = ''): Promise<ConsoleBrowser> {
  const origin = await idp.listen();
  const browser = new Agent({ origin });
  const get = async (path: string) => readable(await browser.open(`${origin}${prefix}/admin${path}`));
  const act: ConsoleBrowser['act'] = async (path, fields) =>
    readable(await browser.submit(await get(path), fields));
  return { browser, origin, get, act };
}

/** The page with its texts and links as a person sees them. */
const readable = (page: Page): Page => ({ ...page, body: decodeEntities(page.body) });

/** The console of a person who has signed in. */
export async function enterConsole(
  idp: IdpApp,
  { handle, password }: Pick<Credentials, 'handle' | 'password'>,
  path = '/',
  prefix = '',
): Promise<ConsoleBrowser & { page: Page }> {
  const opened = await browse(idp, prefix);
  const page = await opened.browser.submit(await opened.get(path), { handle, password });
  return { ...opened, page };
}
