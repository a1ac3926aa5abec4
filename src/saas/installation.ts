import { createRequire } from 'node:module';
import type { Resolved } from '../core/config/options.js';
import { engineOf } from '../core/storage/engines.js';
import type { Installation } from './admin/schemas.js';
import type { SaasConfiguration } from './options.js';

const COMMANDS = {
  'saas-backend doctor': 'Checks the configuration, the store and the port.',
  'saas-backend user …': 'Creates, imports, shows, suspends and unsuspends accounts, and grants plans.',
  'saas-backend billing resync': 'Repairs what lost events of the payment provider would have changed.',
  'saas-backend audit': 'Lists the audit, follows it, and deletes old records.',
  'saas-backend backup <file>': 'Copies the store into a file while the server runs.',
  'saas-backend store copy': 'Moves the store to another database.',
};

/** Describes what runs and what is configured, without the values of secrets. */
export function describeInstallation({ values, production }: Resolved<SaasConfiguration>): Installation {
  return {
    version: createRequire(import.meta.url)('saas-backend/package.json').version,
    node: process.versions.node,
    environment: production ? 'production' : 'development',
    store: engineOf(values.databaseUri).name,
    parts: partsOf(values),
    commands: Object.entries(COMMANDS).map(([command, purpose]) => ({ command, purpose })),
  };
}

function partsOf(values: SaasConfiguration): Installation['parts'] {
  const isSet = (value: unknown) => value !== undefined;
  const part = (name: string, isConfigured: boolean, remedy: string, page: string) => ({
    name,
    isConfigured,
    remedy,
    documentation: `docs/${page}.md`,
  });
  return [
    part(
      'Password of the admin area',
      isSet(values.adminPassword),
      'Set ADMIN_PASSWORD to 12 characters or more.',
      'admin',
    ),
    part(
      'Sending of e-mails',
      isSet(values.emailApiKey) || isSet(values.emailSmtpUrl),
      'Set EMAIL_API_KEY, or EMAIL_SMTP_URL for your own mail server; then send a test e-mail.',
      'email',
    ),
    part(
      'Payment provider',
      isSet(values.paymentSecretKey),
      'Set PAYMENT_SECRET_KEY for checkout, the portal and resync.',
      'billing',
    ),
    part(
      'Payment events',
      isSet(values.paymentWebhookSecret),
      'Set PAYMENT_WEBHOOK_SECRET to the signing secret of the webhook endpoint.',
      'billing',
    ),
    part(
      'Plans',
      isSet(values.billing) || isSet(values.billingPrices),
      'Set BILLING_PLANS, or BILLING_PRICES if plans have neither features nor options.',
      'billing',
    ),
    part(
      'Second factors',
      isSet(values.factorEncryptionKey),
      'Set FACTOR_ENCRYPTION_KEY if users may protect their accounts with an authenticator app.',
      'factors',
    ),
    part('Metrics', values.metrics === true, 'Set METRICS=true; the endpoint is /metrics.', 'metrics'),
    part(
      'Origins of browser applications',
      isSet(values.corsOrigin),
      'Set CORS_ORIGIN if an application of another origin calls the API.',
      'configuration',
    ),
  ];
}
