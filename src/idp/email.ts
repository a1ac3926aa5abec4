import type { EmailModule } from '../shared/email/module.js';
import type { IdpContext } from './context.js';
import { hasMailServer } from './options.js';

/** Loads the e-mail module, if a mail server is configured. */
export async function openEmail(context: IdpContext): Promise<EmailModule | undefined> {
  const { values, issuer, brand, messages } = context;
  if (!hasMailServer(values)) return undefined;
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
  });
}
