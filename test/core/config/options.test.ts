import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { applicableWarnings } from '../../../src/core/config/configuration-error.js';
import { loadDevelopmentSecrets } from '../../../src/core/config/development-secrets.js';
import { resolveIdp } from '../../../src/idp/options.js';
import { type ConfigurationError, createIdentityServer, createServer } from '../../../src/index.js';
import { resolveSaas, saasWarnings } from '../../../src/saas/options.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { SECRETS } from '../../kit/app.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';

type Environment = Record<string, string | undefined>;

/** A production configuration that starts. */
const PRODUCTION: Environment = {
  NODE_ENV: 'production',
  DATABASE_URI: 'sqlite::memory:',
  PUBLIC_URL: 'https://app.example.test',
  JWT_ACCESS_SECRET: SECRETS.jwtAccessSecret,
  JWT_REFRESH_SECRET: SECRETS.jwtRefreshSecret,
  ADMIN_PASSWORD: SECRETS.adminPassword,
};
/** The same outside production, where weak secrets only warn. */
const DEVELOPMENT: Environment = { ...PRODUCTION, NODE_ENV: undefined };

function problemsOf(t: Test, env: Environment | false, options: CreateServerOptions = {}): readonly string[] {
  try {
    createServer({ env, ...options });
  } catch (error) {
    t.match(error, { name: 'ConfigurationError' });
    return (error as ConfigurationError).problems;
  }
  return [];
}

t.test('one secret cannot serve two purposes, even trimmed or as a previous secret', async (t) => {
  const secret = 'Vw3kLq8ZsT1mXe6YbN0cRj4HuPd9Ga2F';
  const other = 'k9QxTr2LmZ8vBn4WcY6dHs1JfPe7Gu3A';
  const names = [
    'JWT_ACCESS_SECRET',
    'JWT_ACCESS_SECRET_PREVIOUS',
    'JWT_REFRESH_SECRET',
    'JWT_REFRESH_SECRET_PREVIOUS',
    'PAYMENT_WEBHOOK_SECRET',
    'PAYMENT_WEBHOOK_SECRET_PREVIOUS',
    'ADMIN_PASSWORD',
  ];
  for (const [index, name] of names.entries()) {
    for (const second of names.slice(index + 1)) {
      const pair = { [name]: secret, [second]: `${secret} \n` };
      const problems = problemsOf(t, { ...PRODUCTION, ...pair });
      t.match(problems, [new RegExp(`^${second} is the same as ${name}\\. `)], `${name}, ${second}`);
      t.equal(problems.length, 1);
      t.notMatch(problems.join(), secret);
      t.equal(resolveSaas({ env: { ...DEVELOPMENT, ...pair } }).config.warnings.length, 1);
      t.same(problemsOf(t, { ...PRODUCTION, [name]: secret, [second]: other }), []);
    }
  }
});

t.test('one secret of the identity provider cannot serve two purposes', async (t) => {
  const seed = '5d9c1e8a70f3b264c6e1d8f05a9b3742e7160fca8d35b94c2e6f01a7d8c3b549';
  const production = {
    NODE_ENV: 'production',
    IDP_DATABASE_URI: 'sqlite::memory:',
    IDP_PUBLIC_URL: 'https://id.example',
    IDP_ED25519_SEED: seed,
  };
  const token = 'Vw3kLq8ZsT1mXe6YbN0cRj4HuPd9Ga2F';
  for (const [env, says] of [
    [{ IDP_ADMIN_TOKEN: token, IDP_INVITE_TOKEN: ` ${token}` }, /^IDP_INVITE_TOKEN is the same as IDP_ADMIN/],
    [{ IDP_ADMIN_TOKEN: seed.toUpperCase() }, /^IDP_ADMIN_TOKEN is the same as IDP_ED25519_SEED\. Use/],
    [{ IDP_ED25519_SEED_NEXT: seed }, /^IDP_ED25519_SEED_NEXT is the same as IDP_ED25519_SEED\. Unset/],
    [{ IDP_ED25519_SEED_PREVIOUS: seed }, /^IDP_ED25519_SEED_PREVIOUS is the same .*\. Unset/],
  ] as const) {
    const start = () => createIdentityServer({ env: { ...production, ...env } });
    const { problems } = t.throws(start, { name: 'ConfigurationError' }) as ConfigurationError;
    t.match(problems, [says]);
    t.equal(problems.length, 1);
  }
});

t.test('a live key is sent without TLS only to the local machine', async (t) => {
  const keyed = (paymentSecretKey: string, url: string) => ({
    PAYMENT_SECRET_KEY: paymentSecretKey,
    PAYMENT_API_URL: url,
  });
  for (const url of ['http://api.example', 'http://10.0.0.1:12111']) {
    t.same(problemsOf(t, { ...PRODUCTION, ...keyed('rk_live_1', url) }), [
      'PAYMENT_API_URL must be https, because it receives a live key.',
    ]);
    const { config } = resolveSaas({ env: { ...DEVELOPMENT, ...keyed('sk_live_1', url) } });
    t.equal(config.warnings.length, 1, 'elsewhere a warning');
    t.same(
      problemsOf(t, { ...PRODUCTION, ...keyed('sk_test_1', url) }),
      [],
      'a simulator has no name to prove',
    );
  }
  for (const url of ['https://api.example', 'http://127.0.0.1:12111', 'http://[::1]:12111']) {
    t.same(problemsOf(t, { ...PRODUCTION, ...keyed('sk_live_1', url) }), []);
  }
  t.equal(problemsOf(t, { ...PRODUCTION, ...keyed('sk_live_1', 'no address') }).length, 1);
});

t.test('options given by code do not switch off production checks', async (t) => {
  const before = process.env['NODE_ENV'];
  t.teardown(() => {
    if (before === undefined) delete process.env['NODE_ENV'];
    else process.env['NODE_ENV'] = before;
  });
  process.env['NODE_ENV'] = 'Production';
  t.match(problemsOf(t, false, SECRETS).join(), "NODE_ENV must be spelled 'production'");
  process.env['NODE_ENV'] = 'production';
  t.match(
    problemsOf(t, false, { jwtAccessSecret: 'secret' }).join(),
    /JWT_ACCESS_SECRET.*JWT_REFRESH_SECRET/,
  );
  t.same(problemsOf(t, { ...PRODUCTION, NODE_ENV: 'production' }), []);
});

t.test('with a key, production needs no secret of access tokens', (t) => {
  const { JWT_ACCESS_SECRET: _, ...others } = PRODUCTION;
  t.match(problemsOf(t, others), [/^JWT_ACCESS_SECRET is not set/]);
  const key = '8f1d0a6be37c942518f0ad6c3b7e95d2406c1fb8e29a7d530123456789abcdef';
  const { config } = resolveSaas({ env: { ...others, JWT_ACCESS_KEY: key } });
  t.equal(config.values.jwtAccessSecret, undefined);
  t.match(problemsOf(t, { ...others, JWT_ACCESS_KEY: key, JWT_ACCESS_KEY_PREVIOUS: key.toUpperCase() }), [
    /^JWT_ACCESS_KEY_PREVIOUS is the same as JWT_ACCESS_KEY\./,
  ]);
  t.end();
});

t.test('a start advises to list the prices for sale, unless one of the options does', async (t) => {
  const paymentSecretKey = 'sk_test_1';
  const advice = (options: CreateServerOptions) => {
    const { config } = resolveSaas({ env: DEVELOPMENT, paymentSecretKey, ...options });
    return applicableWarnings(saasWarnings(config.values)).map(({ about }) => about);
  };
  t.same(advice({}), ['BILLING_PRICES']);
  t.same(advice({ billing: { plans: { pro: { features: ['export'] } } } }), ['BILLING_PRICES']);
  t.same(advice({ billing: { plans: { pro: { prices: ['price_1'] } } } }), []);
  t.same(advice({ billingPrices: ['price_1=pro'] }), []);
});

t.test('a price has the same plan in BILLING_PRICES and BILLING_PLANS', async (t) => {
  const billing = { plans: { pro: { prices: ['price_1'] } } };
  t.same(problemsOf(t, DEVELOPMENT, { billing, billingPrices: ['price_1=pro', 'price_2=team'] }), []);
  t.same(problemsOf(t, DEVELOPMENT, { billing, billingPrices: ['price_1=team'] }), [
    'BILLING_PRICES assigns the price "price_1" to the plan team, but BILLING_PLANS assigns it to pro. Assign it in one of them.',
  ]);
});

t.test('a problem shared by several parts of a server is reported once', async (t) => {
  const env = { NODE_ENV: 'Production' };
  for (const create of [() => createServer({ env }), () => createIdentityServer({ env })]) {
    t.throws(create, { message: /^.*\n {2}- NODE_ENV .*$/ });
  }
});

t.test('an unreadable or damaged file of development secrets is named', async (t) => {
  for (const text of ['{bad', 'null', '[]', '{"JWT_ACCESS_SECRET":1}']) {
    const file = join(temporaryFolder(t), 'x.secrets.json');
    writeFileSync(file, text);
    t.throws(
      () => loadDevelopmentSecrets(file, { A: () => 'a' }, countedRandom()),
      /x\.secrets\.json does not contain/,
    );
  }
  const cwd = process.cwd();
  t.teardown(() => process.chdir(cwd));
  process.chdir(temporaryFolder(t));
  writeFileSync('data', 'no folder');
  t.match(problemsOf(t, {}), [
    /^Development secrets cannot be saved: E[A-Z]+: [^.]+\. Set JWT_ACCESS_SECRET, .*ADMIN_PASSWORD instead\.$/,
  ]);
});

t.test('an unknown option is refused, not ignored', async (t) => {
  t.match(problemsOf(t, DEVELOPMENT, { acessTokenTtl: 60 } as CreateServerOptions), [
    "'acessTokenTtl' is not an option. Did you mean 'accessTokenTtl'?",
  ]);
  t.match(problemsOf(t, DEVELOPMENT, { accessTokenTtl: '60' as never }), [
    /^ACCESS_TOKEN_TTL \(option 'accessTokenTtl'\)/,
  ]);
  t.match(problemsOf(t, DEVELOPMENT, { openapi: true }), [/^'openapi' is an option of a plugin/]);
  for (const path of ['', '/', 'api', '/api/', '/a b', '/:id', '/*', '/a//b']) {
    t.match(problemsOf(t, DEVELOPMENT, { prefix: path }), [/^'prefix' must be a path/], path);
    t.match(problemsOf(t, DEVELOPMENT, { adminPath: path }), [/^'adminPath' must be a path/], path);
  }
});

t.test('a variable that looks like one of the program is named, and others are not', async (t) => {
  const warned = (options: ReturnType<typeof resolveSaas> | ReturnType<typeof resolveIdp>) =>
    options.config.warnings.map(({ message }) => message);
  const env = {
    ...DEVELOPMENT,
    DATABASE_URI: '',
    REQUIRE_EMAIL_VERFICATION: 'true',
    ACCOUNT_PAGE: '1',
    PUBLIC_URL_FILE: '/run/secrets/url',
    JWT_ACCESS_SECRET_FIL: 'x',
    DATABASE_URL: 'postgres://user@host/x',
    // Not ours, empty, or of the other program.
    ...{ PORTS: '1', HOSTNAME: 'x', EMAIL: 'a@b.example', SMTP_URL: 'x', ADMIN_PASSWORT: '' },
    ...{ IDP_METRICS: 'true', IDP_PUBLIC_URL: 'x', IDP_ACCOUNT_PAGES: '1', TRUST_PROXY: '127.0.0.1' },
  };
  t.match(warned(resolveSaas({ env }, false)), [
    /^REQUIRE_EMAIL_VERFICATION .* 'REQUIRE_EMAIL_VERIFICATION'\?$/,
    /^ACCOUNT_PAGE .* 'ACCOUNT_PAGES'\?$/,
    /^PUBLIC_URL_FILE .* not read from a file/,
    /^JWT_ACCESS_SECRET_FIL .* 'JWT_ACCESS_SECRET_FILE'\?$/,
    /^DATABASE_URL .* 'DATABASE_URI'\?$/,
  ]);
  t.equal(warned(resolveSaas({ env }, false)).length, 5);
  const set = { ...env, DATABASE_URI: 'sqlite::memory:' };
  t.notMatch(warned(resolveSaas({ env: set }, false)).join(), 'DATABASE_URL', 'of another program');
  for (const inCode of [{ databaseUri: 'sqlite::memory:' }, { pg: { pool: { connect() {} } } }])
    t.notMatch(warned(resolveSaas({ env, ...inCode }, false)).join(), 'DATABASE_URL', 'of the application');
  const other = { IDP_DISABLE_SIGN_UP: '1', IDP_SIGNUP: '0', IDP_HOST: 'x', PUBLIC_URI: 'x' };
  const found = warned(resolveIdp({ env: other }, false));
  t.match(found, [/^IDP_DISABLE_SIGN_UP .* 'IDP_DISABLE_SIGNUP'\?$/, /^IDP_SIGNUP .* variable of idp\.$/]);
  t.equal(found.length, 2);
});

t.test('development secrets are created once in a file that only its owner can read', async (t) => {
  const file = join(temporaryFolder(t), 'data', 'secrets.json');
  let made = 0;
  const makers = { ONE: () => `one ${made++}`, TWO: () => `two ${made++}` };
  const first = loadDevelopmentSecrets(file, makers, countedRandom());
  t.same(first, { ONE: 'one 0', TWO: 'two 1' });
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal(statSync(join(file, '..')).mode & 0o777, 0o700);
  t.same(loadDevelopmentSecrets(file, makers, countedRandom()), first);
  const more = loadDevelopmentSecrets(file, { ...makers, THREE: () => 'three' }, countedRandom());
  t.same(more, { ...first, THREE: 'three' });
  t.same(JSON.parse(readFileSync(file, 'utf8')), more);
  t.equal(statSync(file).mode & 0o777, 0o600);
});
