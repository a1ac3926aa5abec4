import { mountPath } from '../core/config/public-url.js';
import { createBranding } from '../shared/branding/page.js';
import type { EmailModule } from '../shared/email/module.js';
import type { IdpContext } from './context.js';
import type { OidcModule } from './oidc/module.js';
import { idpSchema } from './options.js';

/** The page of the console about what people see. */
export function openBranding(
  { brand, messages, values, origins, issuer, hasAccountPages }: IdpContext,
  { oidc, email }: { oidc: OidcModule; email: EmailModule | undefined },
) {
  const at = (path: string) => mountPath(issuer()) + path;
  return createBranding({
    ...{ brand, messages, schema: idpSchema, config: { values, origins }, mails: email?.administration },
    pages: () => [
      ...oidc.examplePages().map(({ label, ...example }) => ({ label, example })),
      { label: 'Forgotten password', href: at('/account/forgot-password') },
      ...(hasAccountPages ? [{ label: 'Account', href: at('/account') }] : []),
    ],
  });
}
