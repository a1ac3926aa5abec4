import { generateKeyPairSync } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BILLING_MAILS } from '../../../src/saas/billing/notifications.js';
import { SECRETS } from '../../kit/app.js';
import { words } from '../../kit/words.js';

/** The values of each variable of both programs. A variable without cases fails the tests. */

export interface Cases {
  /** The default value in development, and in production if it differs there. Absent: none. */
  default?: unknown;
  /** Production does not start without it. */
  required?: true;
  /** Variables without which production refuses its valid values. */
  requires?: Record<string, string>;
  /** Text → value; accepted everywhere, without a warning. */
  valid: Record<string, unknown>;
  /** Refused everywhere. */
  invalid: string[];
  /** Refused in production, a warning elsewhere. */
  unsafe?: string[];
}

/** Texts that are the values themselves. */
const same = (...texts: string[]) => Object.fromEntries(texts.map((text) => [text, text]));

/** Values by their texts. */
const json = (...values: object[]) =>
  Object.fromEntries(values.map((value) => [JSON.stringify(value), value]));

/** Part of every refused secret; no message may contain it. */
export const CANARY = 'kanarienvogel';

/** Of apps in a web view and of extensions. */
const APP_ORIGINS = words(`capacitor://localhost ionic://localhost tauri://localhost
  chrome-extension://abcdefghijklmnopabcdefghijklmnop moz-extension://3c6b1e1e-0000-4000-8000-000000000000`);

const graceDays: Cases = {
  default: 7,
  valid: { '0': 0, '365': 365 },
  invalid: ['-1', '366', '1.5', 'week'],
};

const secondFactor = (prefix: string, more: string[]): Cases => ({
  default: 'optional',
  requires: { [`${prefix}FACTOR_ENCRYPTION_KEY`]: 'factors-Wq8ZsT1mXe6YbN0cRj4HuPd9' },
  valid: same('optional', 'required', ...more),
  invalid: ['all', 'Required', 'true'],
});

const seconds = (standard: number, most: number): Cases => ({
  default: standard,
  valid: { '1': 1, [String(most)]: most },
  invalid: ['0', '-1', '1.5', '15m', '1e3', ' 60', String(most + 1), '9'.repeat(20)],
});

const flag: Cases = {
  default: false,
  valid: { true: true, '1': true, false: false, '0': false },
  invalid: ['yes', 'TRUE', '2'],
};

/** A flag that is 0 or 1. */
const digit: Cases = {
  default: false,
  valid: { '0': false, '1': true },
  invalid: ['true', 'false', 'yes', ' 1', '1 ', '01', '2', 'toString'],
};

const serviceAddress = {
  valid: same('https://id.example.com', 'http://localhost:4000'),
  invalid: words('id.example.com http://id.example.com https://id.example.com?x https://id.example.com#x'),
};

/** Options of agents need each other. */
const agent = (cases: Cases): Cases => ({
  ...cases,
  requires: {
    AGENT_ISSUER: 'https://id.example.com',
    AGENT_RESOURCE: 'https://app.example.com/api',
    AGENT_CLIENT_ID: 'app',
  },
});

const hostPatterns: Cases = {
  valid: { 'app.example, *.Example.com': ['app.example', '*.Example.com'] },
  invalid: ['https://app.example', 'app.example/x', '*', 'app.*', 'a b', 'app.example:8443'],
};

const PATHS = [
  '//evil.test',
  'https://evil.test',
  '/\\evil.test',
  '\\/evil.test',
  '/\t/evil.test',
  '/a b',
  '/a#b',
  'javascript:alert(1)',
];
const path = (standard?: string): Cases => ({
  ...(standard !== undefined && { default: standard }),
  valid: same('/account/new', 'account', '/a?b=c'),
  invalid: PATHS,
});

const strong = 'Vw3kLq8ZsT1mXe6YbN0cRj4HuPd9Ga2F';
const weak = [
  `${CANARY}-too-short`,
  `change-me-${CANARY}-${CANARY}-${CANARY}`,
  ' '.repeat(40),
  'ab'.repeat(32),
];

/** One byte less than the least. */
const short = 'k3Y-8fJq2-k3Y-8fJq2-k3Y-8fJq2-3';
const signing: Cases = { valid: same(strong), invalid: [], unsafe: [...weak, short] };

/** Numbers, and the secret of server-side callers, which is never short. */
const rateLimits = (
  prefix: string,
  { registrations, logins }: { registrations: number; logins: number },
): Record<string, Cases> => ({
  [`${prefix}MAX_REGISTRATIONS_PER_HOUR`]: seconds(registrations, 10_000),
  [`${prefix}MAX_LOGINS_PER_MINUTE`]: seconds(logins, 10_000),
  [`${prefix}MAX_MAIL_REQUESTS_PER_HOUR`]: seconds(10, 10_000),
  [`${prefix}MAX_REQUESTS_PER_MINUTE`]: seconds(300, 100_000),
  ...Object.fromEntries(
    ['CALLER_SECRET', 'CRON_SECRET'].map((name) => [
      `${prefix}${name}`,
      { valid: same(strong), invalid: [`${CANARY}-too-short`], unsafe: weak.slice(1) },
    ]),
  ),
});

/** The formats of the provider's dashboard and command line, and whitespace left in place of a secret. */
const webhookSigning: Cases = {
  valid: same(`whsec_${strong}`, `whsec_${'9d0c4b71e8a2f653'.repeat(4)}`, strong),
  invalid: ['   ', '\t', ' '.repeat(40)],
  unsafe: [
    `whsec_${CANARY}`,
    `change-me-${CANARY}-${CANARY}-${CANARY}`,
    `whsec_replace_me_${CANARY}-${CANARY}`,
    'whsec_your_webhook_signing_secret_here',
    `whsec_${'x'.repeat(32)}`,
    `whsec_${' '.repeat(32)}`,
    'ab'.repeat(32),
  ],
};

const store = (file: string): Cases => ({
  default: `sqlite:./data/${file}.db`,
  required: true,
  valid: same(
    ...words(`sqlite:app.db sqlite:/var/lib/app.db sqlite::memory: mongodb+srv://cluster.example/app
      mongodb://user:word@a.example,b.example:27018/app?replicaSet=rs0`),
  ),
  invalid: words(`app.db sqlite: sqlite:folder/ sqlite://host/app.db mysql://user:${CANARY}@db.example/app
    mongodb://user:${CANARY}@db.example`),
});

const publicUrl: Cases = {
  required: true,
  valid: same(
    ...words(`https://app.example https://app.example:8443/sub/ http://localhost:3000 http://127.0.0.1:3000
      http://[::1]:3000`),
  ),
  invalid: [
    ...words(`app.example //app.example ftp://app.example javascript:alert(1) https://user:${CANARY}@app.example
      https://app.example/?a=b https://app.example/#a https:app.example https:/app.example https://app.example//`),
    ...[
      'https://app.example/a b',
      'https:\\\\app.example',
      'https://app.example\\sub',
      'https://app.example/"><b>',
    ],
  ],
  unsafe: ['http://app.example', 'http://localhost.example'],
};

const port = (standard: number): Cases => ({
  default: standard,
  valid: { '0': 0, '65535': 65_535 },
  invalid: ['-1', '65536', '0x50', '80.5', 'eighty'],
});

const connections = (standard: number, least: number): Cases => ({
  default: standard,
  valid: { [String(least)]: least, '1000000': 1_000_000 },
  invalid: [String(least - 1), '-1', '1000001', '1e3', '80.5', 'many'],
});

const host: Cases = { valid: same('0.0.0.0', '::1'), invalid: [] };

const logLevel: Cases = {
  default: 'info',
  valid: same('trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'),
  invalid: ['verbose', 'INFO', '30'],
};

const trustProxy: Cases = {
  default: false,
  valid: {
    false: false,
    '10.0.0.0/8, fd00::/8,::1': ['10.0.0.0/8', 'fd00::/8', '::1'],
    ...Object.fromEntries(
      words('10.0.0.7 0.0.0.0/1 0.0.0.0/1,128.0.0.0/2,192.0.0.0/4 2000::/4 ::ffff:10.0.0.0/104').map(
        (text) => [text, text.split(',')],
      ),
    ),
  },
  invalid: [
    ...words(
      `true 1 10.0.0.0/33 10.0.0.0/-1 10.0.0.0/8/8 10.0.0.0/255.0.0.0 10.0.0 loopback proxy.internal ::/129`,
    ),
    '10.0.0.7 10.0.0.8',
    // Every public address, also where IPv6 contains IPv4 (RFC 4291); private and reserved ones make no difference.
    '128.0.0.0/1, 0.0.0.0/1, 10.0.0.7',
    ...words(`0.0.0.0/0 ::/0 0.0.0.0/1,128.0.0.0/1 0.0.0.0/2,64.0.0.0/2,128.0.0.0/2,192.0.0.0/2
      0.0.0.0/1,128.0.0.0/2,192.0.0.0/3 ::/1,8000::/1 2000::/3 2000::/4,3000::/4 ::/1
      0.0.0.0/5,8.0.0.0/7,11.0.0.0/8,12.0.0.0/6,16.0.0.0/4,32.0.0.0/3,64.0.0.0/2,128.0.0.0/1
      ::ffff:0:0/96 ::ffff:0.0.0.0/97,128.0.0.0/1`),
  ],
};

/** Both functions have cases that need a folder. */
export function saasCases(folder: string): Record<string, Cases> {
  return {
    DATABASE_URI: store('saas-backend'),
    PUBLIC_URL: publicUrl,
    PASSKEYS: flag,
    LOGIN_PROVIDERS: {
      valid: json(
        { google: { clientId: 'x', clientSecret: 'y' } },
        { acme: { issuer: 'https://id.acme.example', clientId: 'x', label: 'Acme' } },
      ),
      invalid: [
        `{"google":{"clientId":"${CANARY}"}`,
        ...words(`["google"] {"google":{}} {"acme":{"clientId":"x"}} {"github":{"clientId":"x"}}
          {"Acme":{"issuer":"https://id.acme.example","clientId":"x"}}
          {"acme":{"issuer":"id.acme.example","clientId":"x"}}
          {"acme":{"issuer":"https://id.acme.example","clientId":"x","secret":"y"}}
          {"google":{"clientId":"x","url":"https://id.acme.example"}}`),
      ],
      unsafe: ['{"acme":{"issuer":"http://id.acme.example","clientId":"x"}}'],
    },
    AGENT_ISSUER: agent(serviceAddress),
    AGENT_RESOURCE: agent(serviceAddress),
    AGENT_CLIENT_ID: agent({ valid: same('app'), invalid: ['a b', 'x'.repeat(1025)] }),
    AGENT_CLIENT_SECRET: agent({
      valid: same('secret-Wq8ZsT1mXe6YbN0cRj4HuPd9'),
      invalid: [`${CANARY} b`],
    }),
    CORS_ORIGIN: {
      valid: {
        'https://a.example,http://b.example:8080': ['https://a.example', 'http://b.example:8080'],
        ...Object.fromEntries(['*', ...APP_ORIGINS].map((origin) => [origin, [origin]])),
      },
      invalid:
        words(`null a.example https://a.example/ https://a.example/path https://*.a.example https://A.example
        https://a.example,null file:// capacitor://localhost/ tauri://user@localhost javascript:alert(1)
        chrome-extension://*`),
    },
    JWT_ACCESS_KEY: accessKey,
    JWT_ACCESS_KEY_PREVIOUS: accessKey,
    JWT_ACCESS_AUDIENCE: {
      valid: same('authenticated', 'https://files.example.com'),
      invalid: ['a b', 'x'.repeat(256)],
    },
    JWT_ACCESS_SECRET: { ...signing, required: true },
    JWT_ACCESS_SECRET_PREVIOUS: signing,
    JWT_REFRESH_SECRET: { ...signing, required: true },
    JWT_REFRESH_SECRET_PREVIOUS: signing,
    FACTOR_ENCRYPTION_KEY: signing,
    FACTOR_ENCRYPTION_KEY_PREVIOUS: signing,
    SECOND_FACTOR: secondFactor('', []),
    SECOND_FACTOR_GRACE_DAYS: graceDays,
    SETTINGS_ENCRYPTION_KEY: signing,
    SETTINGS_ENCRYPTION_KEY_PREVIOUS: signing,
    ACCESS_TOKEN_TTL: seconds(900, 86_400),
    REFRESH_TOKEN_TTL: seconds(604_800, 31_536_000),
    SESSION_MAX_AGE: seconds(2_592_000, 157_680_000),
    REFRESH_TOKEN_REUSE_WINDOW: seconds(30, 600),
    ...rateLimits('', { registrations: 10, logins: 30 }),
    AUDIT_RETENTION_DAYS: seconds(365, 36_500),
    WEBHOOKS: { ...flag, requires: { SETTINGS_ENCRYPTION_KEY: 'settings-Wq8ZsT1mXe6YbN0cRj4HuPd9' } },
    WEBHOOK_PRIVATE_NETWORKS: flag,
    TELEMETRY: flag,
    METRICS: { ...flag, requires: { ADMIN_PASSWORD: 'metrics-Ht4wXcRq1zLmKd' } },
    REQUIRE_EMAIL_VERIFICATION: flag,
    ACCOUNT_PAGES: flag,
    EMAIL_LOGIN: flag,
    USER_ROLES: {
      valid: { editor: ['editor'], 'editor, content_manager,': ['editor', 'content_manager'] },
      invalid: ['Editor', 'two words', '1st', 'a'.repeat(33)],
    },
    IMPERSONATION_ROLES: {
      requires: { USER_ROLES: 'support' },
      valid: { support: ['support'] },
      invalid: ['Support', 'support,Editor'],
    },
    EMAIL_LOGIN_URL_RELATIVE: path(),
    RESET_URL_RELATIVE: path(),
    VERIFY_URL_RELATIVE: path(),
    PAYMENT_SECRET_KEY: {
      valid: same('sk_live_51Hx', 'rk_live_51Hx'),
      invalid: [
        `sk_live_${CANARY} `,
        `sk_live\n${CANARY}`,
        `pk_live_${CANARY}`,
        `pk_test_${CANARY}`,
        `whsec_${CANARY}`,
      ],
    },
    PAYMENT_API_URL: {
      valid: same('http://127.0.0.1:12111'),
      invalid: ['127.0.0.1:12111', 'https://api.example/v1', 'https://user@api.example', 'ftp://api.example'],
    },
    BILLING_RETURN_URL_RELATIVE: path('/settings/billing'),
    BILLING_PRICES: {
      valid: { 'price_1=pro, price_2=team plan': ['price_1=pro', 'price_2=team plan'] },
      invalid: ['price_1', 'price_1=', '=pro', 'price_1=pro=max', 'price_1=pro,price_1=team'],
    },
    BILLING_PLANS: {
      valid: Object.fromEntries(
        [
          { pro: {} },
          {
            'pro plan': { prices: ['price_1'], limits: { projects: null } },
            free: { features: ['export'] },
          },
          { pro: { checkout: { quantity: { min: 2, max: 2 } } } },
        ].map((plans) => [JSON.stringify(plans), { plans }]),
      ),
      invalid: [
        `{"pro":{"prices":["${CANARY}"]}`,
        ...['{"pro":{"prices":["price 1"]}}', '{"pro":{"features":["a b"]}}', '{" pro":{}}'],
        ...words(`["pro"] {"pro":{"price":["price_1"]}} {"pro":{"prices":"price_1"}}
          {"pro":{"prices":["price_1","price_1"]}} {"pro":{"prices":["price_1"]},"team":{"prices":["price_1"]}}
          {"pro":{"features":["a","a"]}} {"pro":{"limits":{"projects":-1}}} {"pro":{"limits":{"projects":1.5}}}
          {"pro":{"limits":{"projects":"unlimited"}}} {"pro":{"limits":{"":1}}} {"unknown":{}} {"none":{}} {"":{}}
          {"free":{"prices":["price_1"]}} {"pro":{"purchase":"yes"}} {"pro":{"checkout":{"trialDays":0}}}
          {"pro":{"checkout":{"locale":"german"}}} {"pro":{"checkout":{"billingAddress":true}}}
          {"pro":{"checkout":{"quantity":{"min":3,"max":2}}}}`),
      ],
    },
    BILLING_ALLOW_PAUSE: {
      valid: { '1': true, '0': false },
      invalid: ['true', 'false', 'yes'],
    },
    BILLING_MAILS: {
      valid: { 'receipt, renewal': ['receipt', 'renewal'], none: [], all: [...BILLING_MAILS] },
      invalid: ['receipts', 'welcome', 'receipt,none'],
    },
    ORGANIZATIONS: flag,
    API_KEYS: flag,
    ORGANIZATION_MAX_MEMBERS: seconds(1000, 1_000_000),
    ORGANIZATION_INVITATION_URL_RELATIVE: path(),
    BILLING_PRORATION: {
      valid: same('always_invoice', 'create_prorations', 'none'),
      invalid: ['now', 'true', 'never'],
    },
    BILLING_PAST_DUE: {
      default: 'entitled',
      valid: { entitled: 'entitled', denied: 'denied', '7': 7, '366': 366 },
      invalid: ['0', '367', 'never', '1.5'],
    },
    PAYMENT_WEBHOOK_SECRET: webhookSigning,
    PAYMENT_WEBHOOK_SECRET_PREVIOUS: webhookSigning,
    ADMIN_USERNAME: {
      default: 'admin',
      valid: same('operator'),
      invalid: ['a:b', 'a\nb'],
    },
    ADMIN_PASSWORD: {
      valid: same('Ht4wXc8Rq1zL'),
      invalid: [],
      unsafe: ['k3Y-8fJq2xZ', 'administrator', `changeme-${CANARY}`, ' '.repeat(20)],
    },
    ...mailCases('', folder),
    ...appearanceCases('', folder),
    HOST: host,
    PORT: port(3000),
    LOG_LEVEL: logLevel,
    TRUST_PROXY: trustProxy,
    MAX_CONNECTIONS: connections(16_384, 16),
    MAX_CONNECTIONS_PER_ADDRESS: connections(1024, 4),
  };
}

const seed = `${'c0ffee5a'.repeat(7)}1d9b3f72`;
const nextSeed: Cases = {
  valid: same(seed, seed.toUpperCase()),
  invalid: [seed.slice(1), `${seed}0`, `${seed.slice(13)}${CANARY}`],
  unsafe: [
    '0'.repeat(64),
    `${'0'.repeat(62)}01`,
    '9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60',
    '9D61B19DEFFD5A60BA844AF492EC2CC44449C5697B326919703BAC031CAE7F60',
  ],
};

/** An Ed25519 seed, or a private key on P-256 in PEM; keys of other kinds are refused. */
const pemOf = (namedCurve: string) =>
  generateKeyPairSync('ec', { namedCurve })
    .privateKey.export({ type: 'pkcs8', format: 'pem' })
    .toString()
    .trim();
const accessKey: Cases = {
  ...nextSeed,
  valid: { ...nextSeed.valid, ...same(pemOf('P-256')) },
  invalid: [...nextSeed.invalid, pemOf('P-384'), `${CANARY}-----BEGIN PRIVATE KEY-----`],
};

const es256: Cases = {
  valid: nextSeed.valid,
  invalid: [
    ...(nextSeed.invalid ?? []),
    '0'.repeat(64),
    // The order of the group, and above.
    'ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551',
    'f'.repeat(64),
  ],
  unsafe: [
    `${'0'.repeat(62)}01`,
    'C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721',
    '8e9b109e719098bf980487df1f5d77e9cb29606ebed2263b5f57c213df84f4b2',
    'f3bd0c07a81fb932781ed52752f60cc89a6be5e51934fe01938ddb55d8f77801',
  ],
};

export function idpCases(folder: string): Record<string, Cases> {
  return {
    IDP_DATABASE_URI: store('idp'),
    IDP_PUBLIC_URL: publicUrl,
    IDP_ED25519_SEED: { ...nextSeed, required: true },
    IDP_ED25519_SEED_NEXT: nextSeed,
    IDP_ED25519_SEED_PREVIOUS: nextSeed,
    IDP_AUDIT_RETENTION_DAYS: seconds(365, 36_500),
    IDP_TELEMETRY: flag,
    IDP_METRICS: { ...flag, requires: { IDP_ADMIN_TOKEN: 'metrics-Vh3kTz9pLw6QyD1nXc8RbMs5uW' } },
    IDP_BASIC_LOGIN: {
      default: 'all',
      valid: same('all', 'agents'),
      invalid: ['humans', 'none', 'All'],
    },
    IDP_CLIENT_ASSERTIONS: {
      default: 'issuer',
      valid: same('issuer', 'token-endpoint'),
      invalid: ['token_endpoint', 'both', 'Issuer'],
    },
    IDP_REFRESH_TOKEN_REUSE_WINDOW: seconds(30, 600),
    ...rateLimits('IDP_', { registrations: 30, logins: 60 }),
    IDP_ES256_KEY: es256,
    IDP_ES256_KEY_NEXT: es256,
    IDP_ES256_KEY_PREVIOUS: es256,
    IDP_FACTOR_ENCRYPTION_KEY: signing,
    IDP_FACTOR_ENCRYPTION_KEY_PREVIOUS: signing,
    IDP_PASSKEYS: flag,
    IDP_SECOND_FACTOR: secondFactor('IDP_', ['operators']),
    IDP_SECOND_FACTOR_GRACE_DAYS: graceDays,
    IDP_BACKCHANNEL_PRIVATE_NETWORKS: digit,
    IDP_DEVICE_FLOW: digit,
    IDP_IDENTITY_ASSERTIONS: {
      default: 'off',
      valid: same('off', 'issue', 'accept', 'both'),
      invalid: ['true', '1', 'BOTH', 'none'],
    },
    IDP_DISABLE_SIGNUP: digit,
    IDP_TRUSTED_EMAIL_DOMAINS: {
      valid: { 'a.example, B.example': ['a.example', 'B.example'] },
      invalid: ['a', '@a.example', '*.a.example', 'a.example/b', 'a.example,127.0.0.1', 'a b.example'],
    },
    IDP_SUPPORT_CONTACT: {
      valid: same('help@example.com', 'https://example.com/access'),
      invalid: [
        'ada',
        'http://example.com',
        'javascript:alert(1)',
        'mailto:a@example.com',
        'https://exa mple.com',
      ],
    },
    IDP_CLIENT_ID_METADATA: flag,
    IDP_CLIENT_ID_METADATA_HOSTS: hostPatterns,
    IDP_CLIENT_ID_METADATA_DENIED_HOSTS: hostPatterns,
    IDP_CLIENT_REGISTRATION: flag,
    IDP_MCP: flag,
    IDP_APPROVALS: flag,
    IDP_LOOPBACK_DOCUMENTS: {
      default: false,
      valid: { '0': false },
      invalid: ['true', 'false', '2'],
      unsafe: ['1'],
    },
    IDP_NATIVE_SCHEMES: {
      valid: { 'cursor,vscode-insiders': ['cursor', 'vscode-insiders'] },
      invalid: ['a b', ...words('Cursor cursor:// com.example.app javascript cursor,data http 1password')],
    },
    ...mailCases('IDP_', folder),
    ...appearanceCases('IDP_', folder),
    IDP_ADMIN_TOKEN: signing,
    IDP_INVITE_TOKEN: signing,
    IDP_HOST: host,
    IDP_PORT: port(8080),
    LOG_LEVEL: logLevel,
    IDP_TRUST_PROXY: trustProxy,
    IDP_MAX_CONNECTIONS: connections(16_384, 16),
    IDP_MAX_CONNECTIONS_PER_ADDRESS: connections(1024, 4),
  };
}

/** Production configurations that start. */
export const SAAS_PRODUCTION = {
  NODE_ENV: 'production',
  DATABASE_URI: 'sqlite::memory:',
  PUBLIC_URL: 'https://app.example',
  JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret,
  JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret,
};
export const IDP_PRODUCTION = {
  NODE_ENV: 'production',
  IDP_DATABASE_URI: 'sqlite::memory:',
  IDP_PUBLIC_URL: 'https://id.example',
  IDP_ED25519_SEED: '5d9c1e8a70f3b264c6e1d8f05a9b3742e7160fca8d35b94c2e6f01a7d8c3b549',
};

/** The options of brand and languages, which both programs have. */
function appearanceCases(prefix: '' | 'IDP_', folder: string): Record<string, Cases> {
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const logo = file('logo.svg', '<svg xmlns="http://www.w3.org/2000/svg"/>');
  const noLogo = [
    join(folder, 'nothing.svg'),
    file('page.svg', '<html><svg></svg></html>'),
    file('large.svg', `<svg>${' '.repeat(64 * 1024)}</svg>`),
    file('animation.gif', 'GIF89a'),
    file('empty.png', ''),
    folder,
  ];
  const messages = join(folder, 'messages');
  mkdirSync(messages, { recursive: true });
  file('messages/fr.json', '{ "logout": { "submit": "Se déconnecter" } }');
  return {
    [`${prefix}BRAND_NAME`]: {
      valid: same('Ada & Söhne'),
      invalid: ['   ', 'a\nb', 'x'.repeat(61)],
    },
    [`${prefix}BRAND_LOGO`]: { valid: same(logo), invalid: noLogo },
    [`${prefix}BRAND_LOGO_DARK`]: {
      valid: same(logo),
      invalid: [...noLogo, logo],
      requires: { [`${prefix}BRAND_LOGO`]: logo },
    },
    [`${prefix}BRAND_ACCENT`]: {
      valid: same('#1f4fd8', '#ABC'),
      invalid: ['1f4fd8', '#12', '#1f4fd', '#12345678', '#ggg', 'red', '#1f4fd8;}'],
    },
    [`${prefix}DEFAULT_LOCALE`]: {
      default: 'en',
      valid: same('de', 'ar'),
      invalid: ['DE', 'fr', 'de_DE', '../en'],
    },
    [`${prefix}MESSAGES_DIR`]: { valid: same(messages), invalid: [logo, join(folder, 'nowhere')] },
  };
}

/** The options of e-mail, which both programs have. */
function mailCases(prefix: '' | 'IDP_', folder: string): Record<string, Cases> {
  mkdirSync(join(folder, 'templates'));
  mkdirSync(join(folder, 'broken'));
  writeFileSync(join(folder, 'broken', 'welcome.html'), '{{#open}}');
  return {
    [`${prefix}EMAIL_API_KEY`]: {
      valid: same('re_9fJq2'),
      invalid: [`re ${CANARY}`, `re_${CANARY}\n`],
    },
    [`${prefix}EMAIL_API_URL`]: {
      valid: same('https://api.resend.com/emails'),
      invalid: ['api.resend.com', 'https://user@api.resend.com/emails', 'smtp://api.resend.com'],
      unsafe: ['http://api.resend.com/emails'],
    },
    [`${prefix}EMAIL_SERVICE`]: {
      default: 'Resend',
      valid: same('SendGrid', 'Postmark'),
      invalid: ['Pigeon', 'smtp.example'],
    },
    [`${prefix}EMAIL_USER`]: { valid: same('apikey'), invalid: ['jörg', 'a\nb'] },
    [`${prefix}EMAIL_SMTP_URL`]: {
      valid: same('smtp://mail.example:587', 'smtps://user:p%40ss@mail.example'),
      invalid: [
        `https://user:${CANARY}@mail.example`,
        `smtp://user:${CANARY}@mail.example/path`,
        `smtp://user:${CANARY}@mail.example?pool=true`,
        `smtp://user:${CANARY}%ff@mail.example`,
        'mail.example',
      ],
    },
    [`${prefix}FROM_EMAIL`]: {
      valid: same('no-reply@app.example'),
      invalid: [
        'App <no-reply@app.example>',
        'a@b.example, c@d.example',
        'nobody',
        'a@b.example\nBcc: c@d.example',
      ],
    },
    [`${prefix}FROM_NAME`]: {
      valid: same('Ada & Söhne'),
      invalid: ['a\nb', 'x'.repeat(201)],
    },
    [`${prefix}EMAIL_REPLY_TO`]: {
      valid: same('help@app.example'),
      invalid: ['Ada <ada@app.example>', 'a@b.example, c@d.example', 'a@b.example\nBcc: c@d.example'],
    },
    [`${prefix}OPERATOR_EMAILS`]: {
      valid: {
        'ops@app.example': ['ops@app.example'],
        'ops@app.example,ada@app.example': ['ops@app.example', 'ada@app.example'],
      },
      invalid: ['ops', 'Ops <ops@app.example>', 'ops@app.example,nobody', 'a@b.example\nBcc: c@d.example'],
    },
    [`${prefix}EMAIL_TEMPLATE_DIR`]: {
      valid: same(join(folder, 'templates')),
      invalid: [join(folder, 'nowhere'), join(folder, 'broken')],
    },
  };
}
