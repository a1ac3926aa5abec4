/**
 * Every check of this repository, each in one place: those of the gate (`.ci/run`) and of the 24 slices of the campaign
 * (`.ci/campaign`). A test proves that no script, test file or program of tests is left out.
 *
 * @typedef {object} Section
 * @property {string} name
 * @property {'gate' | number} part the gate, or a slice of the campaign
 * @property {string} run a command of bash
 * @property {number} [node] the line of Node.js; 20 if absent
 * @property {string[]} [needs] of `.ci/needs.mjs`
 * @property {string[]} [tests] the test files that run here: `idp/oidc/par` is test/idp/oidc/par.test.ts. Those of no section are `npm test`
 * @property {string[]} [repeats] test files of another section that run here in another environment
 */
import { readdirSync, readFileSync } from 'node:fs';

/** The gate takes the slice of its day: each adds three to eight minutes to it. */
export const SLICES = 24;

const list = (text) => text.trim().split(/\s+/);

/** What the tests of whole programs need. */
const SYSTEM = ['chromium', 'curl', 'mongod', 'openssl', 'stripe-mock'];

/** SQLite, cryptography, HTTP and module loading differ between lines of Node.js. */
const DIFFERING = list(
  'client/client host/fastify idp/oidc/token core/passwords/hasher core/server/server core/storage/sqlite bin/start',
);

/** The campaign adds sessions, MongoDB, every command, and the installed package. */
const ON_EACH_LINE = [
  ...DIFFERING,
  ...list('saas/auth/sessions core/storage/mongodb bin/programs package/package'),
];

/** What depends on the version of PostgreSQL. */
const ON_POSTGRESQL =
  'core/storage/postgresql core/storage/postgresql-connections core/storage/postgresql-hosts';

/** @type {Section[]} */
export const SECTIONS = [
  { name: 'install', part: 'gate', run: 'npm ci --no-audit --no-fund --foreground-scripts' },
  { name: 'check', part: 'gate', run: 'npm run check' },
  { name: 'package', part: 'gate', run: 'npm run check:package', node: 24 },
  { name: 'site', part: 'gate', run: 'npm run test:docs', node: 24, needs: ['chromium'] },
  {
    name: 'tests',
    part: 'gate',
    run: 'TEST_ENGINES=sqlite npm test',
    needs: ['curl', 'openssl', 'stripe-mock'],
  },
  {
    name: 'programs',
    part: 'gate',
    run: 'TEST_ENGINES=sqlite npm run test:system',
    needs: ['chromium', 'curl', 'openssl', 'stripe-mock'],
    tests: list(`
      saas/auth/foreign-hashes
      saas/billing/crashes
      bin/audit bin/backup bin/doctor bin/documents bin/idp bin/login bin/programs bin/start bin/users
      browser/checkout browser/passkeys browser/sign-in
      bin/canaries
      package/package`),
  },
  // The contract of the port, round trips and a race of processes; the others follow in 'MongoDB', 'PostgreSQL' and 'moved stores'.
  {
    name: 'engines',
    part: 'gate',
    run: 'npm run test:engines',
    needs: ['mongod', 'openssl'],
    tests: list(
      `saas/auth/processes saas/auth/round-trips bin/store-sql bin/stores
      core/storage/mongodb core/storage/mongodb-batches ${ON_POSTGRESQL}`,
    ),
  },
  {
    name: 'flows on PostgreSQL',
    part: 'gate',
    run: 'TEST_ENGINES=postgresql node test/run.mjs --suite "flows on PostgreSQL"',
    repeats: list(`
      saas/auth/recovery saas/auth/tokens saas/billing/payments saas/webhooks/delivery saas/webhooks/personal-data shared/passkeys/passkeys
      idp/oidc/dpop idp/oidc/token-confusion`),
  },
  {
    name: 'Node.js 24',
    part: 'gate',
    node: 24,
    run: 'npm run build && TEST_ENGINES=sqlite node test/run.mjs --suite "Node.js 24"',
    needs: ['curl', 'openssl', 'stripe-mock'],
    repeats: DIFFERING,
  },

  {
    name: 'relying parties',
    part: 0,
    // The build names each package: that of Kubernetes takes minutes, in which vet is silent.
    run: 'for name in go kubernetes; do folder=test/campaign/relying-parties/$name; go build -C $folder -v -o /dev/null . && go vet -C $folder . || exit 1; done; node test/run.mjs --suite "relying parties"',
    needs: [...SYSTEM, 'apache', 'apache-openidc', 'dex', 'go', 'mcp-clients', 'python', 'spring'],
    tests: list(`
      campaign/certification/steps
      saas/login-providers/upstreams
      campaign/relying-parties/ecosystems campaign/relying-parties/es256 campaign/relying-parties/mcp campaign/relying-parties/parties
      campaign/relying-parties/products campaign/relying-parties/revocations`),
  },
  {
    name: 'Bun and Deno',
    part: 12,
    run: 'node test/run.mjs --suite "Bun and Deno"',
    needs: ['bun', 'deno'],
    tests: ['bin/runtimes'],
  },
  // The program requires Node.js 22.
  { name: 'MCP conformance', part: 12, node: 24, run: 'npm run test:mcp' },

  {
    name: 'kills',
    part: 1,
    run: 'npm run test:kills',
    needs: ['mongod'],
    repeats: list('core/storage/mongodb core/storage/postgresql core/storage/sqlite'),
  },
  {
    name: 'storms',
    part: 14,
    run: 'npm run test:storms',
    needs: ['mongod'],
    repeats: ['saas/billing/crashes'],
  },
  {
    name: 'upgrade',
    part: 14,
    run: 'node test/run.mjs --suite upgrade',
    needs: ['mongod'],
    tests: ['bin/upgrade'],
  },
  { name: 'rotations', part: 2, run: 'npm run test:rotations', tests: ['idp/oidc/rotation'] },
  {
    name: 'races',
    part: 3,
    run: 'node test/run.mjs --suite races',
    needs: ['mongod'],
    tests: list(`
      saas/auth/account-races
      saas/organizations/races
      idp/provisioning/mailed-link-races`),
  },
  {
    name: 'outages',
    part: 2,
    run: 'node test/run.mjs --suite outages',
    needs: ['mongod'],
    tests: list('saas/auth/links-outage saas/auth/login-codes-outage idp/oidc/outage core/storage/outage'),
  },
  {
    name: 'pages',
    part: 15,
    run: 'node test/run.mjs --suite pages',
    needs: ['chromium', 'stripe-mock'],
    tests: ['browser/pages'],
  },
  {
    name: 'checkout pages',
    part: 9,
    run: 'node test/run.mjs --suite "checkout pages"',
    needs: ['chromium', 'stripe-mock'],
    tests: ['browser/billing', 'browser/jobs', 'client/browser'],
  },
  {
    name: 'explorers',
    part: 21,
    run: 'TEST_ENGINES=sqlite node test/run.mjs --suite explorers',
    needs: ['stripe-mock'],
    tests: list('saas/auth/explore saas/login-providers/explore idp/oidc/agents-explore'),
  },
  {
    name: 'commands of documents',
    part: 12,
    run: 'node test/run.mjs --suite "commands of documents"',
    needs: ['curl', 'openssl', 'stripe-mock'],
    tests: ['package/documents/commands'],
  },
  {
    name: 'moved stores',
    part: 8,
    run: 'node test/run.mjs --suite "moved stores"',
    needs: ['mongod', 'openssl'],
    tests: list('bin/store-copy bin/workers saas/billing/quota-processes idp/oidc/processes'),
  },
  { name: 'torture', part: 20, run: 'npm run torture', needs: ['mongod', 'strace'] },
  {
    name: 'hostile',
    part: 21,
    run: 'npm run test:hostile',
    tests: list('campaign/hostile/growth campaign/hostile/load campaign/hostile/wire'),
  },
  {
    name: 'fuzz',
    part: 4,
    run: 'npm run fuzz -- --requests 30000 && node test/run.mjs --suite fuzz',
    tests: ['campaign/fuzz'],
  },
  {
    name: 'Schemathesis',
    part: 22,
    run: 'npm run test:schemathesis',
    needs: ['schemathesis'],
  },
  {
    name: 'OpenAPI',
    part: 3,
    node: 24,
    run: 'npx --yes @redocly/cli@2.77.0 lint docs/openapi/saas-backend.json docs/openapi/idp.json',
  },
  {
    name: 'PostgreSQL 14',
    part: 16,
    run: 'TEST_POSTGRESQL="$TEST_POSTGRESQL_14" node test/run.mjs --suite "PostgreSQL 14"',
    needs: ['openssl', 'postgresql_14'],
    repeats: list(ON_POSTGRESQL),
  },
  {
    name: 'PgBouncer',
    part: 16,
    run: 'TEST_PGBOUNCER=true TEST_ENGINES=postgresql node test/run.mjs --suite PgBouncer',
    needs: ['pgbouncer'],
    tests: ['core/storage/postgresql-pooler'],
    repeats: list(
      'saas/auth/processes idp/oidc/processes core/storage/postgresql core/storage/postgresql-hosts',
    ),
  },
  { name: 'Keycloak', part: 5, run: 'npm run test:keycloak', needs: ['java'] },
  {
    name: 'deployment',
    part: 17,
    run: 'npm run lint:deploy && node test/run.mjs --suite deployment',
    needs: ['caddy', 'go', 'mongod', 'nginx', 'pip', 'systemd'],
    tests: list('campaign/deploy/deploy campaign/proxy/proxies'),
  },
  // These two install each application from the registry, as its user does, and visit it. The frameworks require Node.js 22.
  {
    name: 'frameworks',
    part: 13,
    node: 24,
    run: 'node test/run.mjs --suite frameworks --timeout=1800',
    needs: ['chromium', 'openssl'],
    tests: ['campaign/frameworks/frameworks'],
  },
  {
    name: 'new applications',
    part: 23,
    run: 'node test/run.mjs --suite "new applications" --timeout=1800',
    needs: ['chromium'],
    tests: ['campaign/init/init', 'campaign/init/skill'],
  },
  // Without a container engine, and only as root.
  { name: 'image', part: 11, run: 'npm run test:image', needs: ['mongod'] },
  {
    name: 'scale',
    part: 22,
    run: ['sqlite', 'postgresql']
      .map(
        (engine) =>
          `npm run bench:scale -- --engine ${engine} --users 20000 --sessions 50000 --expired 20000 --seconds 2`,
      )
      .join(' && '),
  },
  { name: 'webhook storms', part: 20, run: 'npm run bench:webhooks -- --seeds 2' },
  { name: 'bench', part: 11, run: 'npm run bench -- --quick --seconds 1', needs: ['mongod'] },
  {
    name: 'timing',
    part: 23,
    run: 'npm run bench:timing -- --quick && npm run bench:timing -- --quick --mongodb --only register',
    needs: ['mongod'],
  },
  ...[
    { line: 22, part: 7 },
    { line: 24, part: 2 },
    { line: 26, part: 6 },
  ].map(({ line, part }) => ({
    name: `Node.js ${line}, all of it`,
    part,
    node: line,
    run: `node test/run.mjs --suite "Node.js ${line}, all of it"`,
    needs: SYSTEM,
    repeats: ON_EACH_LINE,
  })),
  ...Array.from({ length: SLICES }, (_, slice) => ({
    name: `mutants ${slice + 1} of ${SLICES}`,
    part: slice,
    run: `npm run test:mutants -- --shard ${slice + 1}/${SLICES}`,
    needs: ['mongod'],
  })),
];

/** What the gate runs on SQLite only: on MongoDB the files that name engines, on PostgreSQL the products. */
const onSqlite = ['tests', 'programs', 'explorers'].flatMap(namesOfSuite);
const namesEngines = (file) =>
  /on(?:Mongod|Engines|Servers)\(/.test(
    readFileSync(new URL(`../test/${file}.test.ts`, import.meta.url), 'utf8'),
  );
const onPostgresql = [
  ...onSqlite.filter((file) => /^(?:saas|idp|shared)\//.test(file) || namesEngines(file)),
  'idp/oidc/rotation',
];
SECTIONS.push(
  {
    name: 'MongoDB',
    part: 18,
    run: 'TEST_ENGINES=sqlite,mongodb node test/run.mjs --suite MongoDB',
    needs: ['mongod', 'stripe-mock'],
    repeats: onSqlite.filter(namesEngines),
  },
  ...[
    { name: 'PostgreSQL', part: 10, isChosen: (file) => !file.startsWith('idp/') },
    { name: 'idp on PostgreSQL', part: 19, isChosen: (file) => file.startsWith('idp/') },
  ].map(({ name, part, isChosen }) => ({
    ...{ name, part },
    run: `TEST_ENGINES=postgresql node test/run.mjs --suite "${name}"`,
    needs: ['stripe-mock'],
    repeats: onPostgresql.filter(isChosen),
  })),
);

/** Scripts of package.json that check nothing, that others call, or that a person judges. */
export const NO_CHECKS = list(
  'build prepare start format generate docs:build docs:dev screenshots test:flaky',
);

/** Every test file: `idp/oidc/par`. */
export function testFiles() {
  return readdirSync(new URL('../test', import.meta.url), { recursive: true })
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => name.replaceAll('\\', '/').slice(0, -'.test.ts'.length))
    .sort();
}

/** The test files of a section. */
function namesOfSuite(name) {
  const section = SECTIONS.find((section) => section.name === name);
  if (!section) throw new Error(`.ci/sections.mjs has no section '${name}'`);
  const elsewhere = new Set(SECTIONS.flatMap(({ tests = [] }) => tests));
  return name === 'tests'
    ? testFiles().filter((file) => !elsewhere.has(file))
    : [...(section.tests ?? []), ...(section.repeats ?? [])];
}

/**
 * The compiled test files of a section.
 *
 * @param {string} name of the section
 */
export const filesOfSuite = (name) => namesOfSuite(name).map((file) => `dist/test/${file}.test.js`);
