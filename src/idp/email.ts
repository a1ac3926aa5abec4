import type { EmailModule } from '../shared/email/module.js';
import type { IdpContext } from './context.js';
import { hasMailServer } from './options.js';
import { readMailVersion } from './provisioning/mails.js';
import { principalCollection } from './provisioning/store.js';

/** Loads the e-mail module, if a mail server is configured. */
export async function openEmail(context: IdpContext): Promise<EmailModule | undefined> {
  const { store, values, issuer, brand, messages } = context;
  if (!hasMailServer(values)) return undefined;
  const people = principalCollection(store);
  const { ed25519Seed, ed25519SeedNext, ed25519SeedPrevious } = values;
  const { createEmailModule } = await import('../shared/email/module.js');
  return createEmailModule(context, {
    config: context,
    // Another process may have begun the next step of a rotation.
    secrets: [ed25519Seed, ed25519SeedNext, ed25519SeedPrevious].filter((seed) => seed !== undefined),
    previousVariable: 'IDP_ED25519_SEED_PREVIOUS',
    messages,
    colours: brand.colours,
    publicUrl: issuer,
    settings: async () => ({ siteName: brand.name(), emailNotifications: true }),
    readUserVersion: (sub, field) => readMailVersion(people, sub, field),
  });
}
