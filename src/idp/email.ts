import type { EmailModule } from '../shared/email/module.js';
import type { MailName } from '../shared/email/templates.js';
import type { IdpContext } from './context.js';
import { hasMailServer } from './options.js';

/** The mails about people. */
const NAMES: readonly MailName[] = [
  'invitation',
  'verify-email',
  'email-changed',
  'password-reset',
  'password-changed',
  'second-factor-added',
  'second-factor-removed',
  'passkey-added',
  'passkey-removed',
  'approval-requested',
  'attention-began',
  'attention-ended',
];

/** Loads the e-mail module, if a mail server is configured. */
export async function openEmail(context: IdpContext): Promise<EmailModule | undefined> {
  const { values, issuer, brand, messages } = context;
  if (!hasMailServer(values)) return undefined;
  const { ed25519Seed, ed25519SeedNext, ed25519SeedPrevious } = values;
  const { createEmailModule } = await import('../shared/email/module.js');
  return createEmailModule(context, {
    config: context,
    names: NAMES,
    // Another process may have begun the next step of a rotation.
    secrets: [ed25519Seed, ed25519SeedNext, ed25519SeedPrevious].filter((seed) => seed !== undefined),
    previousVariable: 'IDP_ED25519_SEED_PREVIOUS',
    messages,
    colours: brand.colours,
    publicUrl: issuer,
    settings: async () => ({ siteName: brand.name(), emailNotifications: true }),
  });
}
