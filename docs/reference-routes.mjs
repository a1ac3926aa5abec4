// The page of the routes: who can call what. docs/generate.mjs calls it.
import { table } from './table.mjs';

/** The routes of each program by the beginning of their paths; the last group has the rest. */
const GROUPS = {
  'saas-backend': [
    ['Sign-up, sign-in and sessions', /^\/api\/auth\b/],
    ['The signed-in user', /^\/api\/user\b/],
    ['Billing', /^\/api\/billing\b/],
    ['Organizations', /^\/api\/organizations\b/],
    ['Pages for users', /^\/account\b/],
    ['Admin API', /^\/admin\/api\b/],
    ['Pages of the admin area', /^\/admin\b/],
    ['Operation and metadata', /^/],
  ],
  idp: [
    [
      'OpenID Connect and OAuth',
      /^\/(?:\.well-known|authorize|token|par|revoke|introspect|userinfo|jwks|logout|register|device|device_authorization|bc-authorize|revocations)\b/,
    ],
    ['Administrator API', /^\/v1\b/],
    ['Account pages', /^\/account\b/],
    ['Pages of links', /^\/(?:invite|verify|approve)\b/],
    ['Console', /^\/admin\b/],
    ['Operation and metadata', /^/],
  ],
};

const ACCESS = {
  'saas-backend': [
    ['public', 'nothing'],
    ['user', 'an access token in `Authorization: Bearer`'],
    ['recent-user', 'as `user`, and a sign-in or `POST /api/auth/reauthenticate` within the last 10 minutes'],
    ['owner', 'as `user`, or the key of an organization ([API keys](../saas/api-keys.md))'],
    ['person', 'the session of a browser'],
    ['recent-person', 'the session of a browser whose user signed in within the last 10 minutes'],
    [
      'admin',
      'HTTP Basic authentication with the credentials of the admin area, or the session of a user with a role of an operator; except for GET, the header `X-Requested-With`',
    ],
    ['metrics', 'as `admin`'],
    ['cron', '`CRON_SECRET` in `Authorization: Bearer` ([Serverless platforms](../operate/serverless.md))'],
  ],
  idp: [
    ['public', 'nothing'],
    ['admin', '`IDP_ADMIN_TOKEN` in `Authorization: Bearer`'],
    ['metrics', 'as `admin`'],
    ['inviter', '`IDP_INVITE_TOKEN` if set, otherwise `IDP_ADMIN_TOKEN`, in `Authorization: Bearer`'],
    [
      'operator',
      'a person with the role of an operator, who signed in within the last 15 minutes ([Console](../idp/console.md))',
    ],
    ['person', 'the session of a browser'],
    ['recent-person', 'the session of a browser whose person signed in within the last 15 minutes'],
    ['signup', 'sign-up is enabled'],
    ['client', 'the credentials of a registered client'],
    ['agent', 'the credentials of an agent with HTTP Basic authentication'],
    ['bearer', 'an access token of this provider'],
    ['registration', 'an initial access token, or `IDP_MCP` ([Clients](../idp/clients.md))'],
    ['cron', '`IDP_CRON_SECRET` in `Authorization: Bearer`'],
  ],
};

/** Options without which routes do not exist. */
const CONDITIONS = {
  'saas-backend': [
    ['`…/second-factor…`', '`FACTOR_ENCRYPTION_KEY`'],
    ['`…/passkey…`', '`PASSKEYS`'],
    [
      '`/auth/providers`, `/auth/login` (GET), `/auth/callback`, `/auth/exchange`, `/user/identities`',
      '`LOGIN_PROVIDERS`, or the option `agents`',
    ],
    ['`/auth/email-login…`', '`EMAIL_LOGIN`'],
    ['`…/agent…`; agents at routes with a scope', '`AGENT_ISSUER`, or the option `agents` for the latter'],
    ['`…/keys…`; API keys at routes with a scope', '`API_KEYS`'],
    ['`…/resync`', '`PAYMENT_SECRET_KEY`'],
    ['`…/endpoints…`, `…/deliveries…`', '`WEBHOOKS`'],
    ['`/admin/settings/custom`, `/admin/api/settings/custom`', 'the option `customSettings`'],
    ['`/account…`, `/.well-known/change-password`', '`ACCOUNT_PAGES`'],
    ['`/metrics`, `/cron`', '`METRICS`, `CRON_SECRET`'],
  ],
  idp: [
    ['`…/second-factor…`', '`IDP_FACTOR_ENCRYPTION_KEY`'],
    ['`…/passkey…`', '`IDP_PASSKEYS`'],
    ['`…/device…`', '`IDP_DEVICE_FLOW`'],
    [
      '`/verify/…`, `/account/forgot-password…`',
      'a mail server; without it, `GET /account/forgot-password` says whom to ask',
    ],
    ['`/metrics`, `/cron`', '`IDP_METRICS`, `IDP_CRON_SECRET`'],
  ],
};

function routeTables(program, all) {
  const routes = all.map(({ method, url, config }) => ({
    method,
    url,
    access: config.access,
    scope: config.agentScope,
  }));
  // Fastify knows `/admin` and `/admin/` as two; they are one route.
  const known = new Set(routes.map(({ method, url }) => method + url));
  const distinct = routes.filter(
    ({ method, url }) => !(url.endsWith('/') && known.has(method + url.slice(0, -1))),
  );
  distinct.sort((one, other) => (one.url + one.method < other.url + other.method ? -1 : 1));
  const undescribed = distinct.filter(({ access }) => !ACCESS[program].some(([level]) => level === access));
  if (undescribed.length > 0)
    throw new Error(`docs/reference-routes.mjs does not describe the access ${undescribed[0].access}`);
  const groupOf = ({ url }) => GROUPS[program].find(([, paths]) => paths.test(url))[0];
  return GROUPS[program].map(([title]) => {
    const rows = distinct
      .filter((route) => groupOf(route) === title)
      .map(({ method, url, access, scope }) => [
        method,
        `\`${url}\``,
        scope ? `${access}; agents and API keys: \`${scope}\`` : access,
      ]);
    return `### ${title}${program === 'idp' && title.startsWith('Operation') ? ' of idp' : ''}\n\n${table(['Method', 'Path', 'Access'], rows)}`;
  });
}

/** @param routes those of a server with every feature, by program */
export function routesPage(note, routes) {
  const sections = Object.entries(routes).map(
    ([program, all]) => `## ${program}

${table(
  ['Access', 'Requires'],
  ACCESS[program].map(([level, what]) => [`\`${level}\``, what]),
)}
${table(['Routes', 'Exist with'], CONDITIONS[program])}
${routeTables(program, all).join('\n')}`,
  );
  return `${note}
# Routes

All routes of both servers, and who can call them. Nothing else is exposed. The same as OpenAPI: [openapi.md](openapi.md).

${sections.join('\n')}`;
}
