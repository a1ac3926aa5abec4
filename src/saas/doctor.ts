import type { Advice } from '../config/configuration-error.js';
import { collectProblems } from '../config/configuration-error.js';
import type { Resolved } from '../config/options.js';
import { diagnose, type Finding } from '../server/doctor.js';
import { resolveServer, type ServerConfiguration, saasServerSchema } from '../server/options.js';
import { examineHashes } from './doctor-hashes.js';
import { adviseSaas, resolveSaas, type SaasConfiguration, saasSchema } from './options.js';

/** What a start of saas-backend would meet. */
export async function examineSaas(): Promise<Finding[]> {
  let databaseUri: string | undefined;
  const findings = await diagnose({
    product: 'saas-backend',
    schemas: [saasSchema, saasServerSchema],
    resolve() {
      const [server, saas] = collectProblems(
        'saas-backend',
        () => resolveServer('saas-backend', saasServerSchema, {}, {}),
        () => resolveSaas({}, false),
      );
      databaseUri = saas.config.values.databaseUri;
      return [server, saas.config];
    },
    storeVariable: 'DATABASE_URI',
    portVariable: 'PORT',
    hostVariable: 'HOST',
    proxyVariable: 'TRUST_PROXY',
    advise,
    unwrapHealth: (answer) => (answer as { data?: unknown } | null)?.data,
  });
  const opens = findings.every(({ level, about }) => level !== 'problem' || about !== 'DATABASE_URI');
  return databaseUri !== undefined && opens ? [...findings, ...(await examineHashes(databaseUri))] : findings;
}

function advise(
  { values, production }: Resolved<SaasConfiguration>,
  server: Resolved<ServerConfiguration>,
): Advice[] {
  return [
    ...adviseSaas({ values, production }),
    [
      production && values.databaseUri === 'sqlite::memory:',
      'DATABASE_URI',
      'keeps all data in memory: a restart deletes all users',
      'Use a file (sqlite:/var/lib/app.db) or a MongoDB database.',
    ],
    [
      production && values.adminPassword === undefined,
      'ADMIN_PASSWORD',
      'is not set: the admin area responds with 503',
      'Set it to 12 characters or more.',
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
      values.jwtAccessSecretPrevious !== undefined || values.jwtRefreshSecretPrevious !== undefined,
      'JWT_ACCESS_SECRET_PREVIOUS, JWT_REFRESH_SECRET_PREVIOUS',
      'are still accepted',
      'Unset them when the last token that they signed has expired.',
    ],
  ];
}
