import type { Test } from 'tap';
import type { Clock } from '../../../src/core/kernel/clock.js';
import type { Random } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createAccountData } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import type { Groups } from '../../../src/idp/groups/service.js';
import { addressCollection, createAddresses } from '../../../src/idp/provisioning/addresses.js';
import { createNewLinks } from '../../../src/idp/provisioning/new-links.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import type { Answer } from '../../kit/app.js';
import { SILENT_AUDIT } from '../../kit/effects.js';
import { groupsIn } from '../../kit/groups.js';
import { type IdpApp, type IdpAppOptions, ISSUER, idpApp, idpStore } from '../../kit/idp.js';
import { type MailSink, mailSink } from '../../kit/mail.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { countedRandom } from '../../kit/random.js';
import { readMails } from '../../saas/auth/kit.js';

/** A provider whose e-mails are delivered. */
export interface MailedIdp extends IdpApp {
  readonly sink: MailSink;
  /** The next e-mail with this subject; skips others. */
  mail: ReturnType<typeof readMails>['mail'];
  /** The path of the link in the next e-mail with this subject. */
  linkIn(subject: RegExp): Promise<string>;
  /** Submits the form for a forgotten password. */
  forget(handle: string, more?: { from?: string; headers?: Record<string, string> }): Promise<Answer>;
}

export async function mailedIdp(
  t: Test,
  { sink, ...options }: IdpAppOptions & { sink?: MailSink } = {},
): Promise<MailedIdp> {
  const server = sink ?? (await mailSink(t));
  const idp = await idpApp(t, { emailSmtpUrl: server.url, ...options });
  const { mail } = readMails(server, idp.clock);
  return {
    ...idp,
    sink: server,
    mail,
    linkIn: async (subject) => linkOf((await mail(subject)).text),
    forget: (handle, more = {}) =>
      idp.request('POST', '/account/forgot-password', { form: { handle }, ...more }),
  };
}

export const addressesIn = (store: Store) =>
  createAddresses(principalCollection(store), addressCollection(store));

/** New links on a store, as commands on the host create them. */
export const linksIn = (
  store: Store,
  { clock, random }: { clock: Clock; random: Random },
  groups: Pick<Groups, 'joining' | 'leaving' | 'refuseUnknown'>,
) =>
  createNewLinks(principalCollection(store), {
    ...{ commit: createCommit(store), audit: SILENT_AUDIT, clock, random, groups },
    ...{ addresses: addressesIn(store), accountData: createAccountData() },
    clients: { find: async () => null, findNamed: async () => null },
    throttle: { count: async () => undefined },
    issuer: () => ISSUER,
  });

/** The path of a link as `idp principal reset` prints it. */
export async function printReset(t: Test, idp: IdpApp, sub: string): Promise<string> {
  const store = await idpStore(t, idp);
  const random = countedRandom(sub);
  const links = linksIn(store, { clock: idp.clock, random }, groupsIn(store, { clock: idp.clock, random }));
  const person = await principalCollection(store).findOne({ id: sub });
  const link = person && (await links.reset(person, COMMAND_SOURCE));
  return new URL(link?.url ?? '').pathname;
}

/** The path of the link in the text of an e-mail. */
export function linkOf(text: string): string {
  const [link] = /https?:\/\/\S+\/(invite|verify)\/\S+/.exec(text) ?? [];
  if (link === undefined) throw new Error(`there is no link in:\n${text}`);
  return new URL(link).pathname;
}
