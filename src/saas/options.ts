import { type Static, Type } from 'typebox';
import type { ConfigurationWarning, Report } from '../core/config/configuration-error.js';
import { defineOptions, option, readVariable, resolveOptions } from '../core/config/options.js';
import { mountProblem, publicUrlOption } from '../core/config/public-url.js';
import { formatValue } from '../core/config/validation-messages.js';
import { brandOptions, refuseLoneDarkLogo } from '../core/http/brand.js';
import { isOrganizationId } from '../core/http/identity.js';
import { messagesOptions, refuseUnknownLocale } from '../core/http/messages.js';
import { systemClock } from '../core/kernel/clock.js';
import { equalSecrets, systemRandom } from '../core/kernel/secrets.js';
import { auditRetentionOption } from '../core/ops/audit.js';
import { cronOption } from '../core/ops/cron.js';
import { metricsOption } from '../core/ops/metrics.js';
import { telemetryOption } from '../core/ops/telemetry.js';
import { saasServerSchema, storeOptions } from '../core/server/options.js';
import type { RuntimeOptions } from '../core/server/runtime-options.js';
import { hostDatabaseProblem, hostDatabaseUri } from '../core/storage/host-database.js';
import { rateLimitOptions } from '../core/throttle/options.js';
import { emailOptions } from '../shared/email/schemas.js';
import { factorOptions, refusePolicyWithoutKey } from '../shared/factors/schemas.js';
import { passkeyOptions, refuseUnusablePasskeys } from '../shared/passkeys/schemas.js';
import { adminOptions } from './admin/schemas.js';
import {
  type AgentsOption,
  agentOptions,
  refusePartialAgents,
  refuseUnusableDirectory,
} from './agents/schemas.js';
import { hooksProblems } from './auth/hook-option.js';
import type { SaasHooks } from './auth/hooks.js';
import { DEFAULT_RATES } from './auth/limits.js';
import { authOptions } from './auth/schemas.js';
import { type UserFields, userFieldsProblems } from './auth/users/fields.js';
import { refuseUnknownRoles } from './auth/users/roles.js';
import { apiUrlProblem, billingOptions, configuredPrices, plansConflict } from './billing/options.js';
import { keyOptions } from './keys/schemas.js';
import { federationOptions, insecureProviders } from './login-providers/schemas.js';
import { type OrganizationRoles, roleProblems } from './organizations/roles.js';
import { organizationOptions } from './organizations/schemas.js';
import { type CustomSettings, customSettingsProblems } from './settings/definitions.js';
import { settingsOptions } from './settings/schemas.js';
import { refuseWebhooksWithoutKey, webhookOptions } from './webhooks/schemas.js';

/** The options of the SaaS backend, which the environment can set, too. */
export const saasSchema = defineOptions({
  databaseUri: storeOptions['saas-backend'],
  publicUrl: publicUrlOption({
    env: 'PUBLIC_URL',
    doc: 'Public base URL of the application; https in production. Links in e-mails start with it.',
  }),
  corsOrigin: option(Type.Optional(Type.Array(Type.String())), {
    env: 'CORS_ORIGIN',
    doc: 'Origins that may call the API from a browser (CORS), separated by commas, or * for any origin.',
    check: (origins) => origins?.map(originProblem).find((problem) => problem !== undefined),
  }),
  accountPages: option(Type.Boolean({ default: false }), {
    env: 'ACCOUNT_PAGES',
    doc: 'Serve pages for users at /account: sign-in, sign-up, password, second factor, sessions and billing.',
  }),
  ...authOptions,
  ...federationOptions,
  ...agentOptions,
  ...organizationOptions,
  ...keyOptions,
  ...billingOptions,
  ...adminOptions,
  ...factorOptions('', ['optional', 'required']),
  ...passkeyOptions(''),
  ...emailOptions('', 'the site name'),
  ...settingsOptions,
  ...webhookOptions,
  ...brandOptions('', 'the site name'),
  ...messagesOptions(''),
  ...rateLimitOptions('', DEFAULT_RATES),
  auditRetentionDays: auditRetentionOption('AUDIT_RETENTION_DAYS'),
  cronSecret: cronOption('CRON_SECRET'),
  metrics: metricsOption('METRICS', 'the credentials of the admin area'),
  telemetry: telemetryOption('TELEMETRY'),
});
export type SaasConfiguration = Static<typeof saasSchema>;

/** Options that only code can pass. */
export interface SaasRuntimeOptions extends RuntimeOptions {
  /** Path of the API. Default `/api`. */
  prefix?: string;
  /** Path of the admin area; `false` disables it. Default `/admin`. */
  adminPath?: string | false;
  /** Path of the pages for users, if `accountPages` is set. Default `/account`. */
  accountPath?: string;
  /** Settings of the host that the operator changes in the admin area, by name. */
  customSettings?: CustomSettings;
  /** Functions of the host that take part in registrations and sign-ins. */
  hooks?: SaasHooks;
  /**
   * The permissions of each role in organizations, beside owners, who have all: `{ admin: ['projects:write'], auditor: ['projects:read'] }`.
   * Adds roles and permissions to `admin`, which may change the organization (`organization:update`), its members (`members:manage`)
   * and its API keys (`keys:manage`), and `member`.
   */
  organizationRoles?: OrganizationRoles;
  /**
   * Fields of users, by name: `{ company: Type.String({ maxLength: 100, title: 'Company' }), newsletter: Type.Optional(Type.Boolean()) }`. Users
   * give them at registration and change them in the profile, unless they are `readOnly`.
   */
  userFields?: UserFields;
  /** The people of the identity provider in the same process are the users: docs/saas/agents-in-your-api.md. */
  agents?: AgentsOption;
}

/** The options of the SaaS backend. They take precedence over the environment. */
// The build adds their documentation to the declarations.
export interface SaasBackendOptions extends Partial<SaasConfiguration>, SaasRuntimeOptions {}

export type ResolvedSaas = ReturnType<typeof resolveSaas>;

/** Warnings about a valid configuration, for the start log and `doctor`. */
export function saasWarnings(values: SaasConfiguration): ConfigurationWarning[] {
  return [
    [
      values.paymentSecretKey !== undefined && configuredPrices(values) === undefined,
      'BILLING_PRICES',
      "is not set: any active price of the payment provider's account can be purchased",
      'List the prices that are for sale, like BILLING_PRICES=price_1Pro=pro,price_1Team=team, or set BILLING_PLANS.',
    ],
    [
      values.emailApiUrl !== undefined && values.emailApiKey === undefined,
      'EMAIL_API_URL',
      'has no effect without EMAIL_API_KEY',
      'Set EMAIL_API_KEY.',
    ],
  ];
}

/**
 * Resolves the configuration from options and environment.
 *
 * @param generate whether development may generate and store secrets
 * @throws ConfigurationError naming every problem
 */
export function resolveSaas(options: SaasBackendOptions, generate = true) {
  const {
    prefix = '/api',
    adminPath = '/admin',
    accountPath = '/account',
    customSettings,
    hooks,
    organizationRoles,
    userFields,
    agents,
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
  const runtime = {
    ...{
      prefix,
      adminPath,
      accountPath,
      customSettings,
      hooks,
      organizationRoles,
      userFields,
      agents,
      clock,
      random,
    },
    ...{ hashing, limits, mongo, pg, metricsPeers, openapi },
    /** The value of TRUST_PROXY, which a plugin does not use. */
    proxyVariable: readVariable('TRUST_PROXY', env),
  };
  const lent = hostDatabaseUri(options);
  const config = resolveOptions(
    saasSchema,
    {
      program: 'saas-backend',
      given: lent ? { ...given, databaseUri: given.databaseUri ?? lent } : given,
      env,
      random,
      generate,
      serverSchema: saasServerSchema,
    },
    (values, report) => {
      if (agents) refuseUnusableDirectory(agents, values, report);
      const problem = hostDatabaseProblem(options);
      if (problem) report.refuse(problem);
      validateMountPaths(runtime, values.accountPages, report);
      validateCombinations(values, report);
      const hasKey = values.settingsEncryptionKey !== undefined;
      for (const problem of customSettingsProblems(customSettings ?? {}, hasKey)) report.refuse(problem);
      if (hooks !== undefined) for (const problem of hooksProblems(hooks)) report.refuse(problem);
      for (const problem of roleProblems(organizationRoles ?? {})) report.refuse(problem);
      for (const problem of userFieldsProblems(userFields ?? {})) report.refuse(problem);
    },
  );
  return { config, runtime };
}

/** With pages for users, these are the default of the paths to which the payment provider and mailed codes lead. */
export function withAccountPages(values: SaasConfiguration, accountPath: string): SaasConfiguration {
  if (!values.accountPages) return values;
  const { default: initial } = billingOptions.billingReturnUrlRelative as { default?: string };
  const { billingReturnUrlRelative: path } = values;
  return {
    ...values,
    emailLoginUrlRelative: values.emailLoginUrlRelative ?? `${accountPath}/sign-in/code/enter`,
    billingReturnUrlRelative: path === initial ? `${accountPath}/billing` : path,
  };
}

/** The page on which people return from the payment provider: among the built-in pages, that of what they paid for. */
export function returnPathOf(
  { billingReturnUrlRelative: path }: SaasConfiguration,
  accountPath: string,
  ownerId: string,
): string {
  const isBuiltIn = path === `${accountPath}/billing`;
  return isBuiltIn && isOrganizationId(ownerId) ? `${accountPath}/organization/${ownerId}/billing` : path;
}

function validateMountPaths(
  { prefix, adminPath, accountPath }: { prefix: string; adminPath: string | false; accountPath: string },
  hasAccountPages: boolean,
  report: Report,
): void {
  const paths = Object.entries({
    prefix,
    ...(adminPath !== false && { adminPath }),
    ...(hasAccountPages && { accountPath }),
  });
  for (const [name, path] of paths) {
    const problem = mountProblem(path);
    if (problem) report.refuse(`'${name}' ${problem}`);
  }
  const names = paths.map(([name]) => `'${name}'`);
  if (new Set(paths.map(([, path]) => path)).size < paths.length)
    report.refuse(`${names.join(', ')} must differ, like /api, /admin and /account.`);
}

function validateCombinations(values: SaasConfiguration, report: Report): void {
  const secrets = {
    JWT_ACCESS_KEY: values.jwtAccessKey,
    JWT_ACCESS_KEY_PREVIOUS: values.jwtAccessKeyPrevious,
    JWT_ACCESS_SECRET: values.jwtAccessSecret,
    JWT_ACCESS_SECRET_PREVIOUS: values.jwtAccessSecretPrevious,
    JWT_REFRESH_SECRET: values.jwtRefreshSecret,
    JWT_REFRESH_SECRET_PREVIOUS: values.jwtRefreshSecretPrevious,
    PAYMENT_SECRET_KEY: values.paymentSecretKey,
    PAYMENT_WEBHOOK_SECRET: values.paymentWebhookSecret,
    PAYMENT_WEBHOOK_SECRET_PREVIOUS: values.paymentWebhookSecretPrevious,
    AGENT_CLIENT_SECRET: values.agentClientSecret,
    EMAIL_API_KEY: values.emailApiKey,
    ADMIN_PASSWORD: values.adminPassword,
    FACTOR_ENCRYPTION_KEY: values.factorEncryptionKey,
    FACTOR_ENCRYPTION_KEY_PREVIOUS: values.factorEncryptionKeyPrevious,
    CALLER_SECRET: values.callerSecret,
    CRON_SECRET: values.cronSecret,
    SETTINGS_ENCRYPTION_KEY: values.settingsEncryptionKey,
    SETTINGS_ENCRYPTION_KEY_PREVIOUS: values.settingsEncryptionKeyPrevious,
  };
  for (const [name, twin] of equalSecrets(secrets)) {
    const isRotation = twin === `${name}_PREVIOUS`;
    report.unsafe(
      `${twin} is the same as ${name}.`,
      isRotation ? `Set ${twin} to the previous secret, or unset it.` : 'Use a different secret for each.',
    );
  }
  // Outside production, it is generated.
  if (report.production && values.metrics && values.adminPassword === undefined) {
    report.refuse('METRICS requires ADMIN_PASSWORD.', 'Set ADMIN_PASSWORD, or unset METRICS.');
  }
  for (const name of insecureProviders(values))
    report.unsafe(`LOGIN_PROVIDERS has an http address for ${name}.`, 'Use its https address.');
  const problem = apiUrlProblem(values.paymentApiUrl, values.paymentSecretKey);
  if (problem) report.unsafe(`PAYMENT_API_URL ${problem}`);
  refusePartialAgents(values, report);
  refusePolicyWithoutKey(values, '', report);
  refuseUnusablePasskeys(values, '', report);
  refuseWebhooksWithoutKey(values, report);
  refuseLoneDarkLogo(values, '', report);
  refuseUnknownRoles(values.userRoles, values.impersonationRoles, report);
  refuseUnknownLocale(values, '', report);
  validatePlans(values, report);
}

/** Also for commands, which resolve a part of the options. */
export function validatePlans(values: Parameters<typeof plansConflict>[0], report: Report): void {
  const conflict = plansConflict(values);
  if (conflict) report.refuse(`BILLING_PRICES ${conflict}`, 'Assign it in one of them.');
}

function originProblem(origin: string): string | undefined {
  if (origin === '*') return undefined;
  return isOrigin(origin)
    ? undefined
    : `must list origins as browsers send them, like https://app.example.com, without a path or a pattern; given: ${formatValue(origin)}.`;
}

/**
 * Whether browsers send a text as an origin. Apps in a web view and extensions have schemes of their own, like
 * capacitor://localhost, whose origin is opaque to `URL`.
 */
function isOrigin(text: string): boolean {
  // A pattern like https://*.example is a valid URL, but matches no origin.
  if (!URL.canParse(text) || text.includes('*')) return false;
  const { protocol, origin, host } = new URL(text);
  if (origin !== 'null') return origin === text;
  return host !== '' && text === `${protocol}//${host.toLowerCase()}`;
}
