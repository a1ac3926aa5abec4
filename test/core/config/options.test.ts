import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { applicableWarnings, formatProblem } from '../../../src/core/config/configuration-error.js';
import { loadDevelopmentSecrets } from '../../../src/core/config/development-secrets.js';
import { resolveIdp } from '../../../src/idp/options.js';
import { type ConfigurationError, createIdentityServer, createServer } from '../../../src/index.js';
import { resolveSaas, saasWarnings } from '../../../src/saas/options.js';
import type { CreateServerOptions } from '../../../src/saas/server.js';
import { SECRETS } from '../../kit/app.js';
import { compiled, startProgram } from '../../kit/process.js';
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

t.test('production requires its secrets and reports all missing ones at once', async (t) => {
  t.same(problemsOf(t, PRODUCTION), []);
  const problems = problemsOf(
    t,
    { NODE_ENV: 'production', PORT: 'eighty', LOG_LEVEL: 'loud' },
    { prefix: '/' },
  );
  for (const name of [
    'DATABASE_URI',
    'PUBLIC_URL',
    'JWT_ACCESS_SECRET',
    'JWT_REFRESH_SECRET',
    'PORT',
    'LOG_LEVEL',
    "'prefix'",
  ]) {
    t.equal(problems.filter((problem) => problem.startsWith(name)).length, 1, name);
  }
  t.equal(problems.length, 7);
  const weak = { JWT_ACCESS_SECRET: 'secret', ADMIN_PASSWORD: 'admin', PAYMENT_WEBHOOK_SECRET: 'whsec_test' };
  t.match(problemsOf(t, { ...PRODUCTION, ...weak }), [
    /^JWT_ACCESS_SECRET is /,
    /^PAYMENT_WEBHOOK_SECRET is shorter than 32 bytes\. Copy the signing secret from the payment provider\.$/,
    /^ADMIN_PASSWORD is /,
  ]);
  for (const blank of ['', undefined]) {
    t.match(problemsOf(t, { ...PRODUCTION, JWT_ACCESS_SECRET: blank }), [/^JWT_ACCESS_SECRET is not set/]);
  }
});

t.test('production refuses weak secrets, development warns, and neither prints them', async (t) => {
  const weak: [name: string, value: string][] = [
    ['JWT_ACCESS_SECRET', 'access-secret-change-me'],
    ['JWT_ACCESS_SECRET', 'access-secret-change-me-access-secret-change-me'],
    ['JWT_REFRESH_SECRET', 'k3Y-8fJq2'],
    ['JWT_REFRESH_SECRET', 'k3Y-8fJq2-k3Y-8fJq2-k3Y-8fJq2-3'],
    ['JWT_REFRESH_SECRET', ' '.repeat(40)],
    ['JWT_REFRESH_SECRET', 'ab'.repeat(32)],
    ['JWT_REFRESH_SECRET', SECRETS.jwtAccessSecret],
    ['JWT_ACCESS_SECRET_PREVIOUS', 'k3Y-8fJq2'],
    ['ADMIN_PASSWORD', 'changeme'],
    ['ADMIN_PASSWORD', 'administrator'],
    ['ADMIN_PASSWORD', 'k3Y-8fJq2xZ'],
    ['ADMIN_PASSWORD', SECRETS.jwtAccessSecret],
    ['PAYMENT_WEBHOOK_SECRET', SECRETS.jwtAccessSecret],
    ['PAYMENT_WEBHOOK_SECRET', 'whsec_k3Y-8fJq2'],
    ['PAYMENT_WEBHOOK_SECRET_PREVIOUS', 'whsec_k3Y-8fJq2'],
    ['PUBLIC_URL', 'http://app.example.test'],
  ];
  for (const [name, value] of weak) {
    const problems = problemsOf(t, { ...PRODUCTION, [name]: value });
    t.equal(problems.length, 1, `${name}=${value}`);
    t.match(problems[0], name);
    if (name !== 'PUBLIC_URL') t.notMatch(problems[0], value);
    const { config } = resolveSaas({ env: { ...DEVELOPMENT, [name]: value } });
    t.equal(config.warnings.length, 1);
    t.notMatch(config.warnings.map(formatProblem).join(), value);
  }
});

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

t.test('environment variables are converted to the types of their options', async (t) => {
  const { config } = resolveSaas({
    env: {
      ...DEVELOPMENT,
      CORS_ORIGIN: 'https://a.example, https://b.example:8443',
      ACCESS_TOKEN_TTL: '60',
      ADMIN_USERNAME: 'operator',
    },
  });
  t.match(config.values, {
    corsOrigin: ['https://a.example', 'https://b.example:8443'],
    accessTokenTtl: 60,
    refreshTokenTtl: 604_800,
    sessionMaxAge: 2_592_000,
    adminUsername: 'operator',
  });
  t.equal(config.production, false);
  t.throws(() => Object.assign(config.values, { accessTokenTtl: 1 }), TypeError, 'frozen');
  const { config: passed } = resolveSaas({
    env: { ...DEVELOPMENT, ACCESS_TOKEN_TTL: '60' },
    accessTokenTtl: 30,
  });
  t.equal(passed.values.accessTokenTtl, 30, 'what is passed wins');
  const { config: without } = resolveSaas({ env: false, ...SECRETS, databaseUri: 'sqlite::memory:' });
  t.equal(without.values.accessTokenTtl, 900);
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

t.test('messages state which values are accepted', async (t) => {
  t.match(
    problemsOf(t, { ...PRODUCTION, NODE_ENV: 'Production' }).join(),
    "NODE_ENV must be spelled 'production'",
  );
  t.match(problemsOf(t, { ...PRODUCTION, LOG_LEVEL: 'loud' }), [
    /^LOG_LEVEL \(option 'logLevel'\) must be one of trace, debug, .*; given: "loud"\.$/,
  ]);
  for (const [given, shown] of Object.entries({ '-1': '-1', soon: '"soon"', '1.5': '"1.5"' })) {
    t.same(problemsOf(t, { ...PRODUCTION, ACCESS_TOKEN_TTL: given }), [
      `ACCESS_TOKEN_TTL (option 'accessTokenTtl') must be a whole number from 1 to 86400, like 900; given: ${shown}.`,
    ]);
  }
  t.match(
    problemsOf(t, { ...DEVELOPMENT, DATABASE_URI: 'postgres://ada:geheim@db.example/app' }).join(),
    /^DATABASE_URI is not a valid store URI: .*, like sqlite:data\/app\.db; given: postgres:…\.$/,
  );
  t.match(
    problemsOf(t, { ...DEVELOPMENT, PUBLIC_URL: 'app.example' }).join(),
    /like https:.*; given: "app\.example"/,
  );
});

t.test('messages about plans name the plan and the option', async (t) => {
  const plans = (value: unknown) => problemsOf(t, { ...DEVELOPMENT, BILLING_PLANS: JSON.stringify(value) });
  const BILLING_PLANS = "BILLING_PLANS (option 'billing')";
  t.same(plans({ pro: { feature: ['a'], limits: { projects: 'ten' } }, team: { prices: 'price_1' } }), [
    `${BILLING_PLANS} plans.pro.feature is not an option. Did you mean 'features'?`,
    `${BILLING_PLANS} plans.pro.limits.projects must be a whole number of 0 or more, or null for unlimited; given: "ten".`,
    `${BILLING_PLANS} plans.team.prices must be a list, each of them the ID of a price; given: text of 7 characters.`,
  ]);
  t.same(plans({ pro: { prices: ['price_1'] }, team: { prices: ['price_1'] } }), [
    'BILLING_PLANS must list each price once; "price_1" is listed in pro and team.',
  ]);
  t.same(plans({ plans: { pro: { prices: ['price_1'] } } }), [], 'the shape of the option');
  t.same(plans({ unknown: {} }), ['BILLING_PLANS plans.unknown is a reserved name: choose another one.']);
  t.same(plans({ free: { prices: ['price_1'] } }), [
    'BILLING_PLANS plans.free applies to every user, so it must have a name, features and limits only.',
  ]);
  t.same(plans({ pro: { checkout: { quantity: { min: 5, max: 2 } } } }), [
    'BILLING_PLANS plans.pro must have a checkout.quantity whose min is at most its max; given: 5 and 2.',
  ]);
  t.same(problemsOf(t, { ...DEVELOPMENT, BILLING_PLANS: '{"pro"' }), [
    `${BILLING_PLANS} must be JSON that describes plans by their names, like {"pro":{"prices":["price_1Pro"],"features":["export"],"limits":{"projects":10}}}; given: "{\\"pro\\"".`,
  ]);
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
  t.same(warned(resolveSaas({ env }, false)), [
    "REQUIRE_EMAIL_VERFICATION has no effect: it is not a variable of saas-backend. Did you mean 'REQUIRE_EMAIL_VERIFICATION'?",
    "ACCOUNT_PAGE has no effect: it is not a variable of saas-backend. Did you mean 'ACCOUNT_PAGES'?",
    'PUBLIC_URL_FILE has no effect: PUBLIC_URL is not read from a file.',
    "JWT_ACCESS_SECRET_FIL has no effect: it is not a variable of saas-backend. Did you mean 'JWT_ACCESS_SECRET_FILE'?",
    "DATABASE_URL has no effect: it is not a variable of saas-backend. Did you mean 'DATABASE_URI'?",
  ]);
  const set = { ...env, DATABASE_URI: 'sqlite::memory:' };
  t.notMatch(
    warned(resolveSaas({ env: set }, false)).join(),
    'DATABASE_URL',
    'it belongs to another program',
  );
  const other = {
    IDP_DISABLE_SIGN_UP: '1',
    IDP_SIGNUP: '0',
    IDP_HOST: 'x',
    IDP_PORT_FILE: 'x',
    PUBLIC_URI: 'x',
  };
  t.same(warned(resolveIdp({ env: other }, false)), [
    "IDP_DISABLE_SIGN_UP has no effect: it is not a variable of idp. Did you mean 'IDP_DISABLE_SIGNUP'?",
    'IDP_SIGNUP has no effect: it is not a variable of idp.',
    'IDP_PORT_FILE has no effect: IDP_PORT is not read from a file.',
  ]);
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

t.test('programs that start at the same time agree on one set of secrets', async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(join(folder, 'data'));
  const script = compiled('test/kit/development-secrets.js');
  const programs = Array.from({ length: 4 }, () => startProgram(t, script, { cwd: folder }));
  // They wait for a common signal, so that none of them finds the file.
  await Promise.all(programs.map((program) => program.printed(/^ready$/)));
  for (const program of programs) program.signal('SIGUSR2');
  const printed = await Promise.all(programs.map((program) => program.printed(/^secrets (.*)$/)));
  t.equal(new Set(printed.map(([, secrets]) => secrets)).size, 1);
});
