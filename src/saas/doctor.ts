import {
  applicableWarnings,
  type ConfigurationWarning,
  collectProblems,
} from '../core/config/configuration-error.js';
import type { Resolved } from '../core/config/options.js';
import { systemClock } from '../core/kernel/clock.js';
import { systemRandom } from '../core/kernel/secrets.js';
import { createPasswords } from '../core/passwords/hasher.js';
import { examineCertificate } from '../core/server/certificate.js';
import { diagnose, type Finding } from '../core/server/doctor.js';
import { resolveServer, type ServerConfiguration, saasServerSchema } from '../core/server/options.js';
import { readCollection } from '../core/storage/inspect.js';
import { examineMailBacklog, examineMailServer } from '../shared/email/doctor.js';
import { configuredAgents } from './agents/schemas.js';
import { countForeignHashes } from './auth/import/foreign-hashes.js';
import type { Users } from './auth/store.js';
import { configuredPrices, isLiveKey, keyedPrices } from './billing/options.js';
import { examineAccount } from './billing/provider/examination.js';
import {
  CUSTOMER_COLLECTION,
  CUSTOMER_FIELDS,
  type Customers,
  countRejectedProfiles,
  findTestSubscriptions,
  SUBSCRIPTION_COLLECTION,
  SUBSCRIPTION_FIELDS,
  type Subscriptions,
} from './billing/store.js';
import {
  countUsageBacklog,
  USAGE_COLLECTION,
  USAGE_FIELDS,
  type UsageReports,
} from './billing/usage/reports.js';
import { resolveSaas, type SaasConfiguration, saasSchema, saasWarnings } from './options.js';

/** Reports what a start of saas-backend would encounter. @param sendMailTo receives a test mail */
export async function examineSaas(sendMailTo?: string): Promise<Finding[]> {
  let config: Resolved<SaasConfiguration> | undefined;
  let agents: ReturnType<typeof configuredAgents>;
  const findings = await diagnose({
    product: 'saas-backend',
    schemas: [saasSchema, saasServerSchema],
    resolve() {
      const [server, saas] = collectProblems(
        'saas-backend',
        () => resolveServer('saas-backend', saasServerSchema, {}, {}),
        () => resolveSaas({}, false),
      );
      config = saas.config;
      agents = configuredAgents(saas.config.values);
      return [server, saas.config];
    },
    warningsOf,
    unwrapHealth: (answer) => (answer as { data?: unknown } | null)?.data,
  });
  const storeOpens = findings.every(({ level, about }) => level !== 'problem' || about !== 'DATABASE_URI');
  if (config === undefined) return findings;
  const { values } = config;
  const { databaseUri, publicUrl } = values;
  const services = [
    ...(await examineCertificate(publicUrl, { about: 'PUBLIC_URL', now: systemClock.now() })),
    ...(await examineMailServer(config, { prefix: '', publicUrl, sendMailTo })),
    ...(await examineProvider(values)),
  ];
  if (!storeOpens) return [...findings, ...services];
  const warnings = [
    ...(await examineForeignHashes(databaseUri)),
    ...(await examineUsage(databaseUri)),
    ...(await examineProfiles(databaseUri)),
    ...(await examineTestData(values)),
  ];
  return [
    ...findings,
    ...services,
    ...(await examineMailBacklog(databaseUri)),
    ...applicableWarnings(warnings).map((advice): Finding => ({ level: 'warning', ...advice })),
    ...(agents ? await examineIssuer(agents) : []),
  ];
}

function warningsOf(
  { values, production }: Resolved<SaasConfiguration>,
  server: Resolved<ServerConfiguration>,
): ConfigurationWarning[] {
  return [
    ...saasWarnings(values),
    [
      production && values.databaseUri === 'sqlite::memory:',
      'DATABASE_URI',
      'keeps all data in memory: a restart deletes all users',
      'Use a file (sqlite:/var/lib/app.db) or a MongoDB database.',
    ],
    [
      production && values.adminPassword === undefined && !values.accountPages,
      'ADMIN_PASSWORD',
      'is not set: the admin area responds with 503',
      'Set it to 12 characters or more, or ACCOUNT_PAGES for operators who sign in with their accounts.',
    ],
    [
      production && values.emailApiKey === undefined && values.emailSmtpUrl === undefined,
      'EMAIL_API_KEY',
      'is not set: no e-mail is sent, so users cannot reset their passwords',
      'Set it, or EMAIL_SMTP_URL.',
    ],
    [
      values.corsOrigin?.includes('*') === true,
      'CORS_ORIGIN',
      'allows every origin to call the API',
      'List the origins of your applications.',
    ],
    [
      values.paymentSecretKey !== undefined && values.paymentWebhookSecret === undefined,
      'PAYMENT_WEBHOOK_SECRET',
      'is not set: payments will not be recorded',
      'Set it to the signing secret of the webhook endpoint.',
    ],
    [
      production && /^[a-z]+_test_/.test(values.paymentSecretKey ?? ''),
      'PAYMENT_SECRET_KEY',
      'is a test key: no payment is charged',
      'Set the live key.',
    ],
    [
      production && server.values.trustProxy === false,
      'TRUST_PROXY',
      'is not set: behind a proxy, all clients share the address of the proxy and therefore its rate limits',
      'List the addresses of the proxy, unless clients connect directly.',
    ],
    [
      values.jwtAccessKeyPrevious !== undefined,
      'JWT_ACCESS_KEY_PREVIOUS',
      'is published and accepted, but does not sign',
      'In the first step of a rotation, exchange it with JWT_ACCESS_KEY after ten minutes, when verifiers know it. Afterwards, unset it when the last token that it signed has expired.',
    ],
    [
      values.jwtAccessKey !== undefined && values.jwtAccessSecret !== undefined,
      'JWT_ACCESS_SECRET',
      'is still accepted, although JWT_ACCESS_KEY signs',
      'Unset it when the last token that it signed has expired.',
    ],
    [
      values.jwtAccessSecretPrevious !== undefined || values.jwtRefreshSecretPrevious !== undefined,
      'JWT_ACCESS_SECRET_PREVIOUS, JWT_REFRESH_SECRET_PREVIOUS',
      'are still accepted',
      'Unset them when the last token that they signed has expired.',
    ],
  ];
}

/** Counts the accounts with a password hash of another system; the store is known to open. */
async function examineForeignHashes(databaseUri: string): Promise<ConfigurationWarning[]> {
  const passwords = createPasswords(systemRandom);
  const counts = await readCollection(databaseUri, 'users', (users: Pick<Users, 'page'>) =>
    countForeignHashes(users, passwords),
  );
  const families = [...(counts ?? [])]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([family, count]) => `${family}: ${count}`);
  return [
    [
      families.length > 0,
      'imported passwords',
      `still have imported hashes (${families.join('; ')}); until they are replaced, every failed login takes as long as all of these algorithms together`,
      'A login replaces the hash. Ask owners who have not signed in since the import to do so, or to choose a new password.',
    ],
  ];
}

/** Usage reports that do not reach the payment provider. */
async function examineUsage(databaseUri: string): Promise<ConfigurationWarning[]> {
  const backlog = await readCollection(
    databaseUri,
    USAGE_COLLECTION,
    (reports: Pick<UsageReports, 'count'>) => countUsageBacklog(reports, systemClock.now()),
    USAGE_FIELDS,
  );
  const { failed, refused, overdue } = backlog ?? { failed: 0, refused: 0, overdue: 0 };
  return [
    [
      failed > 0,
      'usage reports',
      `failed in the last 90 days and will not be sent: ${failed}`,
      'Find the reason in the log or in the usage.failed events, and charge the usage by hand if it is missing at the provider.',
    ],
    [
      refused > 0,
      'usage reports',
      `sent more than a day ago and not accepted by the payment provider: ${refused}`,
      'Find the reason in the log: usually the meter does not exist. Reports fail after 35 days.',
    ],
    [
      overdue > 0,
      'usage reports',
      `overdue by more than an hour: ${overdue}`,
      'Start a server with PAYMENT_SECRET_KEY. If one is running, its log tells why the provider is not available.',
    ],
  ];
}

/** Customers whose address or name the payment provider rejects. */
async function examineProfiles(databaseUri: string): Promise<ConfigurationWarning[]> {
  const count = await readCollection(
    databaseUri,
    CUSTOMER_COLLECTION,
    (customers: Pick<Customers, 'count'>) => countRejectedProfiles(customers),
    CUSTOMER_FIELDS,
  );
  return [
    [
      (count ?? 0) > 0,
      'customer profiles',
      `have an address or a name that the payment provider rejects: ${count}`,
      'Find the users and the reason in the log. The next change of the address or the name is sent again.',
    ],
  ];
}

/** Subscriptions that were made in test mode and give nothing with a live key. */
async function examineTestData({
  databaseUri,
  paymentSecretKey,
}: SaasConfiguration): Promise<ConfigurationWarning[]> {
  if (!isLiveKey(paymentSecretKey)) return [];
  const ids = await readCollection(
    databaseUri,
    SUBSCRIPTION_COLLECTION,
    (subscriptions: Pick<Subscriptions, 'page'>) => findTestSubscriptions(subscriptions),
    SUBSCRIPTION_FIELDS,
  );
  return [
    [
      (ids ?? []).length > 0,
      'subscriptions',
      `are from test mode and give no access with a live key: ${ids?.join(', ')}`,
      'Start with an empty database, or delete these users.',
    ],
  ];
}

/** Whether the payment provider accepts the key, and its account is set up as this product needs it. */
async function examineProvider(values: SaasConfiguration): Promise<Finding[]> {
  const { paymentSecretKey: key, paymentApiUrl: apiUrl, publicUrl } = values;
  if (key === undefined) return [];
  const isPublic = publicUrl?.startsWith('https://') === true;
  const problems = await examineAccount({
    key,
    apiUrl,
    prices: configuredPrices(values),
    lookupKeys: keyedPrices(values).map(({ price }) => price.lookupKey),
    webhookUrl: isPublic ? `${publicUrl}/api/billing/webhook` : undefined,
  });
  if (problems.length > 0) return problems.map((problem): Finding => ({ level: 'warning', ...problem }));
  return [{ level: 'ok', about: 'PAYMENT_SECRET_KEY', message: 'is accepted, and the account is set up' }];
}

const ISSUER_TIMEOUT_MS = 5000;

/** Whether the identity provider of agents answers, and issues tokens that this server accepts. */
async function examineIssuer({ issuer, resource }: { issuer: string; resource: string }): Promise<Finding[]> {
  const findings: Finding[] = [];
  const add = (level: Finding['level'], about: string, message: string, remedy: string) =>
    findings.push({ level, about, message, remedy });
  const address = `${issuer}/.well-known/openid-configuration`;
  let metadata: Record<string, unknown>;
  try {
    const response = await fetch(address, {
      redirect: 'error',
      signal: AbortSignal.timeout(ISSUER_TIMEOUT_MS),
    });
    metadata = Object(await response.json());
  } catch {
    const remedy = `Open ${address}. Until it answers, agents are refused; people are not affected.`;
    add('warning', 'AGENT_ISSUER', 'does not answer with its metadata', remedy);
    return findings;
  }
  if (metadata['issuer'] !== issuer) {
    const remedy = 'Set AGENT_ISSUER to the issuer exactly as its metadata name it.';
    add('problem', 'AGENT_ISSUER', 'answers for another issuer', remedy);
  }
  const algorithms = [metadata['id_token_signing_alg_values_supported']].flat();
  if (!algorithms.some((name) => name === 'EdDSA' || name === 'Ed25519')) {
    const remedy = 'Access tokens of agents must be signed with EdDSA (docs/idp/eddsa.md).';
    add('problem', 'AGENT_ISSUER', 'does not sign with EdDSA', remedy);
  }
  const registered = metadata['protected_resources'];
  if (Array.isArray(registered) && !registered.includes(resource)) {
    const remedy = `Register it there: idp resource add ${resource}`;
    add('problem', 'AGENT_RESOURCE', 'is not among the APIs that the identity provider names', remedy);
  }
  if (metadata['revocation_list_uri'] === undefined) {
    const remedy = 'Register the API there; otherwise, revoked tokens are accepted until they expire.';
    add('warning', 'AGENT_ISSUER', 'has no list of revoked access tokens', remedy);
  }
  if (findings.length > 0) return findings;
  return [{ level: 'ok', about: 'AGENT_ISSUER', message: 'answers, and its metadata fit' }];
}
