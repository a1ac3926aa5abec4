/** What the documents of the two products do not have in common. */
import { renderOAuth } from '../../dist/src/core/kernel/errors.js';
import { adminBulk, adminOrganizations, adminOther, adminUsers } from './admin-api.mjs';
import {
  account,
  agents,
  authentication,
  billing,
  keys,
  organizations,
  otherLogins,
  secondFactor,
  settings,
} from './api.mjs';
import { discovery, oauth, provisioning } from './idp-api.mjs';
import { cronAt, documentAt, operationsAt } from './operations.mjs';

const LICENSE = { name: 'MIT', identifier: 'MIT' };
const INSTALLATION =
  'The shipped document has every operation; the one that an installation serves has those that are configured.';

/** Errors of every route: its scope, its body, its parameters. */
function commonCodes(route, about) {
  const { config, method } = route;
  const hasBody = method !== 'GET';
  return [
    'INTERNAL',
    ...(about.isOpen ? [] : ['NOT_READY', 'OVERLOADED']),
    ...(config.unmetered === true ? [] : ['RATE_LIMITED']),
    // Also for an invalid Host header, and for the headers of a server-side caller.
    'VALIDATION_ERROR',
    ...(hasBody ? ['INVALID_JSON', 'PAYLOAD_TOO_LARGE', 'UNSUPPORTED_MEDIA_TYPE'] : []),
  ];
}

const codeSchema = (codes) => (codes.length === 1 ? { const: codes[0] } : { enum: codes });

const ErrorDetails = {
  type: 'array',
  description: 'One entry for each invalid field.',
  items: {
    type: 'object',
    properties: { path: { type: 'string' }, message: { type: 'string' } },
    required: ['path', 'message'],
  },
};

const EXPORT = {
  type: 'object',
  properties: {
    success: { const: true },
    data: {
      type: 'object',
      description: 'A section for each kind of data.',
      properties: { exportedAt: { type: 'string', format: 'date-time' } },
      required: ['exportedAt'],
      additionalProperties: true,
    },
  },
  required: ['success', 'data'],
};

const refreshTokens = ({ schema = {} }) => {
  const responses = Object.values(schema.response ?? {});
  return (
    schema.body?.properties?.refreshToken !== undefined ||
    responses.some(({ properties }) => properties?.data?.properties?.refreshToken !== undefined)
  );
};

/** Those that give or take a refresh token, and those that read it from the cookie only. */
const usesSessionCookie = (route) =>
  refreshTokens(route) || /^\/api\/auth\/session(\/token)?$/.test(route.url);

const SESSION_MODE = {
  name: 'Session-Mode',
  in: 'header',
  description:
    '`cookie` keeps the refresh token in a cookie of the browser (`HttpOnly`) instead of the bodies of request and response. Only for pages of `PUBLIC_URL` and `CORS_ORIGIN`.',
  schema: { type: 'string', const: 'cookie' },
};
const REQUESTED_WITH = {
  name: 'X-Requested-With',
  in: 'header',
  required: true,
  description: 'Any value. Pages of other sites cannot send it.',
  schema: { type: 'string', examples: ['fetch'] },
};

const ORGANIZATION = {
  name: 'X-Organization',
  in: 'header',
  description:
    'The ID or slug of an organization whose payments the user may manage: the request is about its subscriptions instead of those of the user.',
  schema: { type: 'string' },
};
/** Whether a route is about the subscriptions of the user, or of an organization. */
const concernsOwner = ({ url, config }) => url.startsWith('/api/billing/') && config.access !== 'public';

/** Whether operators who act as a user are refused. */
const refusesImpersonators = ({ method, config: { access, whileImpersonated } }) =>
  access === 'recent-user' || (access === 'user' && method !== 'GET' && !whileImpersonated);

/** OpenAPI has no type of its own for it: the name is that of the registry of HTTP authentication schemes. */
const BOUND_TOKEN = { type: 'http', scheme: 'DPoP', bearerFormat: 'JWT' };
const PROOF = 'the proof of the key in the header `DPoP` (RFC 9449).';

/** Errors of the guards. */
const USER = ['UNAUTHENTICATED', 'TOKEN_EXPIRED', 'ACCOUNT_SUSPENDED'];
/** For access tokens of agents at routes for people. */
const PEOPLE_ONLY = ['FORBIDDEN', 'IDENTITY_PROVIDER_UNAVAILABLE'];
const SAAS_GUARDS = {
  user: [...USER, ...PEOPLE_ONLY],
  owner: [...USER, ...PEOPLE_ONLY],
  'recent-user': [...USER, ...PEOPLE_ONLY, 'REAUTHENTICATION_REQUIRED'],
  admin: ['UNAUTHENTICATED', 'ADMIN_NOT_CONFIGURED', 'RATE_LIMITED', 'REAUTHENTICATION_REQUIRED'],
  metrics: ['UNAUTHENTICATED', 'ADMIN_NOT_CONFIGURED', 'RATE_LIMITED'],
  cron: ['UNAUTHENTICATED'],
};

export const saasBackend = ({ version, errors, schemas }) => ({
  info: {
    title: 'saas-backend',
    version,
    license: LICENSE,
    description: `Accounts, subscriptions and settings of a product. ${INSTALLATION} Unknown properties of requests are ignored, unless an operation says otherwise.`,
  },
  server: 'https://app.example.com',
  tags: {
    Authentication: { description: 'Sessions and mailed links.', operations: authentication },
    'Other sign-ins': {
      description: 'At other providers (`LOGIN_PROVIDERS`), and with a mailed code (`EMAIL_LOGIN`).',
      operations: otherLogins,
    },
    'Second factor': { description: 'With `FACTOR_ENCRYPTION_KEY`.', operations: secondFactor },
    Account: { description: 'The account of the user.', operations: account },
    Agents: {
      description: 'Access of agents, with `AGENT_ISSUER`.',
      operations: agents,
    },
    Billing: { description: 'Plans, subscriptions and purchases.', operations: billing },
    Organizations: {
      description: 'Organizations, their members and invitations, with `ORGANIZATIONS`.',
      operations: organizations,
    },
    'API keys': {
      description: 'For programs of users and organizations, with `API_KEYS`.',
      operations: keys,
    },
    Settings: { description: 'What the operator has set.', operations: settings },
    'Admin: users': { description: 'Users, for the operator.', operations: { ...adminUsers, ...adminBulk } },
    'Admin: organizations': {
      description: 'Organizations, for the operator.',
      operations: adminOrganizations,
    },
    'Admin: service': { description: 'Everything else, for the operator.', operations: adminOther },
    Operations: {
      description: 'To watch the service.',
      operations: {
        ...documentAt('/api'),
        ...operationsAt('/api', { isEnveloped: true }),
        ...cronAt('/api'),
        ...operationsAt('', { isEnveloped: true, suffix: 'OfServer' }),
      },
    },
  },
  errors: Object.fromEntries(
    errors.map(({ code, statusCode, message }) => [code, { status: statusCode, code, message }]),
  ),
  schemas,
  extraSchemas: { Export: EXPORT, ErrorDetails },
  hasForms: false,
  securityOf: {
    user: ['accessToken'],
    owner: ['accessToken'],
    'recent-user': ['accessToken'],
    admin: ['adminPassword'],
    metrics: ['adminPassword'],
    cron: ['cronSecret'],
  },
  securityOfAgents: ['boundAccessToken'],
  securitySchemes: {
    boundAccessToken: {
      ...BOUND_TOKEN,
      description: `An access token of an agent that is bound to a key (\`AGENT_ISSUER\` or the option \`agents\`), and ${PROOF}`,
    },
    accessToken: {
      type: 'http',
      scheme: 'bearer',
      bearerFormat: 'JWT',
      description: 'The access token, or an API key (`API_KEYS`) at routes that admit them.',
    },
    cronSecret: { type: 'http', scheme: 'bearer', description: '`CRON_SECRET`.' },
    adminPassword: {
      type: 'http',
      scheme: 'basic',
      description: '`ADMIN_USERNAME` and `ADMIN_PASSWORD`.',
    },
    webhookSignature: {
      type: 'apiKey',
      in: 'header',
      name: 'Payment-Signature',
      description: 'The signature of the payment provider, also as `Stripe-Signature`.',
    },
  },
  headersOf: (route) => [
    ...(usesSessionCookie(route) ? [SESSION_MODE] : []),
    ...(concernsOwner(route) ? [ORGANIZATION] : []),
    ...(route.config.access === 'admin' && route.method !== 'GET' ? [REQUESTED_WITH] : []),
  ],
  commonErrors: (route, about) => [
    ...commonCodes(route, about),
    ...(SAAS_GUARDS[route.config.access] ?? []),
    ...(route.config.agentScope ? ['INSUFFICIENT_SCOPE', 'ACCOUNT_NOT_CONNECTED'] : []),
    ...(usesSessionCookie(route) ? ['ORIGIN_NOT_ALLOWED'] : []),
    ...(refusesImpersonators(route) ? ['IMPERSONATED'] : []),
    ...(concernsOwner(route) ? ['ORGANIZATION_NOT_FOUND', 'ROLE_REQUIRED'] : []),
    ...(route.config.access === 'admin' && route.method !== 'GET' ? ['CSRF_REJECTED', 'FORBIDDEN'] : []),
    ...(route.url.startsWith('/api/') && !route.config.duringMaintenance ? ['MAINTENANCE'] : []),
  ],
  errorSchema: (codes) => ({
    type: 'object',
    description: '`error.code` is stable; messages can change.',
    properties: {
      success: { const: false },
      message: { type: 'string' },
      error: {
        type: 'object',
        description: 'Some errors have further members, with which the client continues.',
        properties: {
          code: codeSchema(codes),
          requestId: { type: 'string' },
          details: { $ref: '#/components/schemas/ErrorDetails' },
        },
        required: ['code', 'requestId'],
        additionalProperties: true,
      },
    },
    required: ['success', 'message', 'error'],
  }),
  errorExample: (code, message) => ({
    success: false,
    message,
    error: { code, requestId: 'req_5f1c0e9a7b2d1' },
  }),
});

const IDP_GUARDS = {
  admin: ['UNAUTHENTICATED', 'invalid_token', 'admin_api_disabled', 'RATE_LIMITED'],
  metrics: ['UNAUTHENTICATED', 'invalid_token', 'admin_api_disabled', 'RATE_LIMITED'],
  cron: ['UNAUTHENTICATED'],
  inviter: ['UNAUTHENTICATED', 'invalid_token', 'admin_api_disabled', 'RATE_LIMITED'],
  signup: ['signup_disabled'],
  registration: ['invalid_token', 'RATE_LIMITED'],
  client: ['invalid_request'],
  bearer: ['invalid_request'],
};

export const idp = ({ version, errors, schemas }) => ({
  info: {
    title: 'idp',
    version,
    license: LICENSE,
    description: `An OpenID Connect provider for humans and agents. ${INSTALLATION} Pages for people are not part of it.`,
  },
  server: 'https://id.example.com',
  tags: {
    'OpenID Connect': { description: 'The endpoints for applications.', operations: oauth },
    Discovery: { description: 'Metadata and keys.', operations: discovery },
    Provisioning: { description: 'People, agents and clients.', operations: provisioning },
    Operations: {
      description: 'To watch the service.',
      operations: { ...documentAt(''), ...operationsAt('', { isEnveloped: false }), ...cronAt('') },
    },
  },
  errors: Object.fromEntries(
    errors.map((error) => [
      error.code,
      {
        status: error.statusCode,
        code: JSON.parse(renderOAuth(error).body).error,
        message: error.message,
      },
    ]),
  ),
  schemas,
  extraSchemas: { ErrorDetails },
  hasForms: true,
  securityOf: {
    admin: ['adminToken'],
    metrics: ['adminToken'],
    cron: ['cronSecret'],
    inviter: ['inviteToken', 'adminToken'],
    client: ['clientBasic', null],
    registration: ['initialAccessToken'],
    agent: ['agentBasic'],
    bearer: ['accessToken', 'boundAccessToken'],
  },
  securityOfAgents: [],
  securitySchemes: {
    boundAccessToken: {
      ...BOUND_TOKEN,
      description: `An access token of this provider that is bound to a key, and ${PROOF}`,
    },
    cronSecret: { type: 'http', scheme: 'bearer', description: '`IDP_CRON_SECRET`.' },
    adminToken: { type: 'http', scheme: 'bearer', description: '`IDP_ADMIN_TOKEN`.' },
    inviteToken: {
      type: 'http',
      scheme: 'bearer',
      description: '`IDP_INVITE_TOKEN`; if it is not set, the administrator token.',
    },
    accessToken: { type: 'http', scheme: 'bearer', description: 'An access token of this provider.' },
    initialAccessToken: {
      type: 'http',
      scheme: 'bearer',
      description: 'A token of `idp registration-token create`.',
    },
    clientBasic: {
      type: 'http',
      scheme: 'basic',
      description: 'ID and secret of a client, form-encoded (RFC 6749 §2.3.1).',
    },
    agentBasic: { type: 'http', scheme: 'basic', description: 'Handle and password of an agent.' },
  },
  headersOf: () => [],
  commonErrors: (route, about) => [...commonCodes(route, about), ...(IDP_GUARDS[route.config.access] ?? [])],
  errorSchema: (codes) => ({
    type: 'object',
    description: '`error` is stable; descriptions can change (RFC 6749 §5.2).',
    properties: {
      error: codeSchema(codes),
      error_description: { type: 'string' },
      details: { $ref: '#/components/schemas/ErrorDetails' },
    },
    required: ['error', 'error_description'],
  }),
  errorExample: (code, message) => ({ error: code, error_description: message }),
});
