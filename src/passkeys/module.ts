import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createExpiryPurge } from '../ops/purge.js';
import type { ModuleContext } from '../server/module-context.js';
import { createPasskeyService, type PasskeyService } from './service.js';
import { passkeyCollection, usedChallengeCollection } from './store.js';

/** The passkeys of accounts. */
export interface PasskeyModule {
  service: PasskeyService;
  /** The script of the pages that use them. Without it, or in a browser without passkeys, they show none. */
  script: string;
}

export interface PasskeyModuleOptions {
  /** The address of the pages, to whose host passkeys are bound. */
  issuer(): string;
  /** What browsers and password managers show. */
  name(): string;
}

const SCRIPT = fileURLToPath(new URL('../../../templates/pages/passkeys.js', import.meta.url));

export function createPasskeyModule(
  context: Pick<ModuleContext, 'store' | 'audit' | 'clock' | 'throttle' | 'jobs'>,
  { issuer, name }: PasskeyModuleOptions,
): PasskeyModule {
  const usedChallenges = usedChallengeCollection(context.store);
  const service = createPasskeyService({
    ...context,
    passkeys: passkeyCollection(context.store),
    usedChallenges,
    relyingParty() {
      const { hostname, origin } = new URL(issuer());
      return { id: hostname, origin, name: name() };
    },
  });
  context.jobs.add('used-challenge-purge', createExpiryPurge(usedChallenges, context.clock));
  return { service, script: readFileSync(SCRIPT, 'utf8') };
}
