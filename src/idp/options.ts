import type { Static } from 'typebox';
import type { ConfigurationWarning, Report } from '../core/config/configuration-error.js';
import { defineOptions, type Resolved, readVariable, resolveOptions } from '../core/config/options.js';
import { mountProblem, publicUrlOption } from '../core/config/public-url.js';
import { brandOptions, refuseLoneDarkLogo } from '../core/http/brand.js';
import { messagesOptions, refuseUnknownLocale } from '../core/http/messages.js';
import { systemClock } from '../core/kernel/clock.js';
import { equalSecrets, systemRandom } from '../core/kernel/secrets.js';
import { auditRetentionOption } from '../core/ops/audit.js';
import { cronOption } from '../core/ops/cron.js';
import { metricsOption } from '../core/ops/metrics.js';
import { telemetryOption } from '../core/ops/telemetry.js';
import { idpServerSchema, storeOptions } from '../core/server/options.js';
import type { RuntimeOptions } from '../core/server/runtime-options.js';
import { hostDatabaseProblem, hostDatabaseUri } from '../core/storage/host-database.js';
import { rateLimitOptions } from '../core/throttle/options.js';
import { emailOptions } from '../shared/email/schemas.js';
import { factorOptions, refusePolicyWithoutKey } from '../shared/factors/schemas.js';
import { passkeyOptions, refuseUnusablePasskeys } from '../shared/passkeys/schemas.js';
import { oidcOptions } from './oidc/schemas.js';
import type { UriRules } from './provisioning/client-uris.js';
import type { IdTokenAlgorithm } from './provisioning/clients.js';
import { DEFAULT_RATES } from './provisioning/limits.js';
import { provisioningOptions } from './provisioning/schemas.js';
import { registrationOptions } from './registration/schemas.js';

/** The options of the identity provider, in code and as environment variables. */

export const idpSchema = defineOptions({
  databaseUri: storeOptions.idp,
  publicUrl: publicUrlOption({
    env: 'IDP_PUBLIC_URL',
    doc: 'Public base URL of the service; https in production. It is the issuer, byte for byte except for one trailing slash.',
  }),
  ...oidcOptions,
  ...provisioningOptions,
  ...registrationOptions,
  ...factorOptions('IDP_', ['optional', 'operators', 'required']),
  ...passkeyOptions('IDP_'),
  ...emailOptions('IDP_', '`IDP_BRAND_NAME`'),
  ...brandOptions('IDP_', 'the host of IDP_PUBLIC_URL'),
  ...messagesOptions('IDP_'),
  ...rateLimitOptions('IDP_', DEFAULT_RATES),
  auditRetentionDays: auditRetentionOption('IDP_AUDIT_RETENTION_DAYS'),
  cronSecret: cronOption('IDP_CRON_SECRET'),
  metrics: metricsOption('IDP_METRICS', '`IDP_ADMIN_TOKEN` as the bearer token'),
  telemetry: telemetryOption('IDP_TELEMETRY'),
});
export type IdpConfiguration = Static<typeof idpSchema>;

/** The options that are not part of the configuration. */
export interface IdpRuntimeOptions extends RuntimeOptions {
  /** Where the provider is mounted. Default: the root. It is then the path of the issuer. */
  prefix?: string;
  /** Whether operators have a console at `/admin` below the prefix. Default: true, except for a plugin at the root of a host. */
  console?: boolean;
  /**
   * Whether people have pages for their accounts at `/account` below the prefix, to which `/` leads. Default: true, except
   * for a plugin at the root of a host, which has only the page for the password.
   */
  accountPages?: boolean;
}

/** The options of the identity provider. They take precedence over the environment. */
// The build adds their documentation to the declarations.
export interface IdentityProviderOptions extends Partial<IdpConfiguration>, IdpRuntimeOptions {}

export type ResolvedIdp = ReturnType<typeof resolveIdp>;

/** Rejects equal secrets: one was copied, or a step of a rotation is missing. */
function refuseEqualSecrets(values: IdpConfiguration, report: Report): void {
  const secrets = {
    IDP_ED25519_SEED: values.ed25519Seed,
    IDP_ED25519_SEED_NEXT: values.ed25519SeedNext,
    IDP_ED25519_SEED_PREVIOUS: values.ed25519SeedPrevious,
    IDP_ES256_KEY: values.es256Key,
    IDP_ES256_KEY_NEXT: values.es256KeyNext,
    IDP_ES256_KEY_PREVIOUS: values.es256KeyPrevious,
    IDP_ADMIN_TOKEN: values.adminToken,
    IDP_INVITE_TOKEN: values.inviteToken,
    IDP_CALLER_SECRET: values.callerSecret,
    IDP_CRON_SECRET: values.cronSecret,
    IDP_EMAIL_API_KEY: values.emailApiKey,
    IDP_FACTOR_ENCRYPTION_KEY: values.factorEncryptionKey,
    IDP_FACTOR_ENCRYPTION_KEY_PREVIOUS: values.factorEncryptionKeyPrevious,
  };
  for (const [name, twin] of equalSecrets(secrets)) {
    report.refuse(
      `${twin} is the same as ${name}.`,
      EQUAL_SECRETS[twin]?.[name] ?? 'Use a different secret for each.',
    );
  }
}

/** Where a step of the rotation of a key is missing. */
const rotationRemedies = (key: string): Record<string, Record<string, string>> => ({
  [`${key}_NEXT`]: { [key]: `Unset ${key}_NEXT: its key signs already.` },
  [`${key}_PREVIOUS`]: {
    [key]: `Unset ${key}_PREVIOUS: its key still signs.`,
    [`${key}_NEXT`]: `Set ${key}_NEXT to a new key: openssl rand -hex 32`,
  },
});

/** Remedies for two equal secrets other than generating one of them. */
const EQUAL_SECRETS: Record<string, Record<string, string>> = {
  ...rotationRemedies('IDP_ED25519_SEED'),
  ...rotationRemedies('IDP_ES256_KEY'),
  IDP_INVITE_TOKEN: {
    IDP_ADMIN_TOKEN:
      'Set IDP_INVITE_TOKEN to a different secret, or unset it: with the same value it has no effect.',
  },
};

/** The algorithms for which the provider has a key that signs. */
export const idTokenAlgorithmsOf = ({ es256Key }: Pick<IdpConfiguration, 'es256Key'>): IdTokenAlgorithm[] =>
  es256Key === undefined ? ['EdDSA'] : ['EdDSA', 'ES256'];

/** How clients become known without the operator. */
export const clientRegistrationOf = ({
  mcp,
  clientIdMetadata,
  clientRegistration,
}: Pick<IdpConfiguration, 'mcp' | 'clientIdMetadata' | 'clientRegistration'>) => ({
  acceptsMetadata: clientIdMetadata || mcp,
  acceptsRegistration: clientRegistration || mcp,
});

/** What the operator may register; self-registered applications follow stricter rules. */
export const uriRulesOf = ({
  values: { nativeSchemes = [] },
  production,
}: {
  values: Pick<IdpConfiguration, 'nativeSchemes'>;
  production: boolean;
}): UriRules => ({ allowHttp: !production, nativeSchemes });

/** Whether the provider can send e-mails. Without a mail server it sends none, also in development. */
export const hasMailServer = ({
  emailApiKey,
  emailSmtpUrl,
}: Pick<IdpConfiguration, 'emailApiKey' | 'emailSmtpUrl'>): boolean =>
  emailApiKey !== undefined || emailSmtpUrl !== undefined;

/** The options without an effect if there is no mail server. */
const MAIL_OPTIONS = [
  'emailApiUrl',
  'fromEmail',
  'fromName',
  'emailReplyTo',
  'emailUser',
  'emailTemplateDir',
  'operatorEmails',
] as const;

/** Advice about a valid configuration, for the start log and `doctor`. */
export function idpWarnings({
  values,
  production,
}: Pick<Resolved<IdpConfiguration>, 'values' | 'production'>): ConfigurationWarning[] {
  return [
    [
      production && !values.disableSignup,
      'IDP_DISABLE_SIGNUP',
      'is not 1: anyone who can reach the service can create an account',
      'Set IDP_DISABLE_SIGNUP=1 unless sign-up is meant to be open. APIs give no token to who signs up, unless they were added with --self-registered yes.',
    ],
    [
      !clientRegistrationOf(values).acceptsMetadata &&
        (values.clientIdMetadataHosts ?? values.clientIdMetadataDeniedHosts) !== undefined,
      'IDP_CLIENT_ID_METADATA',
      'is not true, so the lists of hosts have no effect',
      'Set it, or unset the lists.',
    ],
    [
      !hasMailServer(values) && MAIL_OPTIONS.some((name) => values[name] !== undefined),
      'IDP_EMAIL_SMTP_URL',
      'is not set, so the other options of e-mail have no effect: no e-mail is sent',
      'Set it, or IDP_EMAIL_API_KEY.',
    ],
  ];
}

/**
 * @param generate whether development may generate and keep secrets
 * @throws ConfigurationError naming every problem
 */
export function resolveIdp(options: IdentityProviderOptions, generate = true) {
  const {
    prefix = '',
    console,
    accountPages,
    env,
    clock = systemClock,
    random = systemRandom,
    hashing,
    limits,
    mongo,
    pg,
    metricsPeers,
    openapi,
    ...given
  } = options;
  const lent = hostDatabaseUri(options);
  const asked = lent ? { ...given, databaseUri: given.databaseUri ?? lent } : given;
  const source = { program: 'idp', given: asked, env, random, generate };
  const config = resolveOptions(
    idpSchema,
    { ...source, serverSchema: idpServerSchema, prefix: 'IDP_' },
    (values, report) => applyRules(values, report, options),
  );
  const runtime = {
    ...{ prefix, console, accountPages, clock, random, hashing, limits, mongo, pg, metricsPeers, openapi },
    /** The value of IDP_TRUST_PROXY, which a plugin does not use. */
    proxyVariable: readVariable('IDP_TRUST_PROXY', env),
  };
  return { config, runtime };
}

function applyRules(values: IdpConfiguration, report: Report, options: IdentityProviderOptions): void {
  const { prefix = '' } = options;
  const problem = prefix === '' ? null : mountProblem(prefix);
  if (problem) report.refuse(`'prefix' ${problem}`);
  const lending = hostDatabaseProblem(options);
  if (lending) report.refuse(lending);
  // Only the path is compared: https://idp ends with /idp as well.
  const path = values.publicUrl?.replace(/^\w+:\/\/[^/]*|\/$/g, '');
  if (path !== undefined && !path.endsWith(prefix)) {
    report.refuse(
      `IDP_PUBLIC_URL must end with the prefix ${prefix}: the issuer is the address of the provider.`,
    );
  }
  refuseEqualSecrets(values, report);
  refusePolicyWithoutKey(values, 'IDP_', report);
  refuseUnusablePasskeys(values, 'IDP_', report);
  refuseLoneDarkLogo(values, 'IDP_', report);
  refuseUnknownLocale(values, 'IDP_', report);
  // Outside production, it is generated.
  if (report.production && values.metrics && values.adminToken === undefined) {
    report.refuse('IDP_METRICS requires IDP_ADMIN_TOKEN.', 'Set IDP_ADMIN_TOKEN, or unset IDP_METRICS.');
  }
}
