import { readFileSync } from 'node:fs';
import { packageFile } from '../../core/kernel/package-files.js';
import { createExpiryPurge } from '../../core/ops/purge.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { verifyAssertion, verifyCreation } from './ceremony.js';
import { createPasskeyService, type PasskeyDependencies } from './service.js';
import { passkeyCollection, usedChallengeCollection, viewOf } from './store.js';

export interface PasskeyModuleOptions extends Pick<PasskeyDependencies, 'readAccount'> {
  /** The public address, to whose host passkeys are bound. */
  address(): string;
  /** The origins of further pages; those of other hosts are ignored. Default: none. */
  origins?: readonly string[];
  /** What browsers and password managers show. */
  name(): string;
}

/** The script of the pages that use them. Without it, or in a browser without passkeys, they show none. */
export const readPasskeyScript = (): string => readFileSync(SCRIPT, 'utf8');

const SCRIPT = packageFile('templates/pages/passkeys.js');

export function createPasskeyModule(
  context: ModuleContext,
  { address, origins = [], name, readAccount }: PasskeyModuleOptions,
) {
  const usedChallenges = usedChallengeCollection(context.store);
  const service = createPasskeyService({
    ...context,
    passkeys: passkeyCollection(context.store),
    usedChallenges,
    verifyCreation,
    verifyAssertion,
    readAccount,
    hasOtherLogin: (account) => context.signInMethods.hasOther('passkey', account),
    relyingParty() {
      const { hostname, origin } = new URL(address());
      const others = origins.filter((other) => belongsTo(other, hostname));
      return { id: hostname, origins: [origin, ...others], name: name() };
    },
  });
  context.accountData.add({
    section: { name: 'passkeys', read: async (account) => (await service.list(account)).map(viewOf) },
  });
  context.signInMethods.add('passkey', { isHeld: service.has });
  context.jobs.add('used-challenge-purge', createExpiryPurge(usedChallenges, context.clock));
  return { service };
}

/** Whether browsers let pages of this origin use the passkeys of a host: at the host and below it, and not without https. */
export function belongsTo(origin: string, host: string): boolean {
  if (!URL.canParse(origin)) return false;
  const { protocol, hostname } = new URL(origin);
  const isSecure = protocol === 'https:' || /^(.+\.)?localhost$/.test(hostname);
  return isSecure && (hostname === host || hostname.endsWith(`.${host}`));
}
