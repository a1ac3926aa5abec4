import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { allBlocks, type Block, ROOT } from './blocks.js';

/**
 * Every snippet of README and docs compiles against the types of the package, as an integrator's editor shows them: `ts`
 * with strict rules, `js` as JavaScript is checked, without annotations. A page declares in NAMES what its reader brings.
 */

const run = promisify(execFile);
const TSC = join(ROOT, 'node_modules/.bin/tsc');

const FASTIFY = "import('fastify').FastifyInstance";
const ours = (name: string) => `typeof import('saas-backend').${name}`;

/** What every page may use without importing it again. */
const COMMON: Record<string, string> = {
  saasBackend: ours('saasBackend'),
  identityProvider: ours('identityProvider'),
  createServer: ours('createServer'),
  createIdentityServer: ours('createIdentityServer'),
  fastify: FASTIFY,
  userId: 'string',
};

/** As the page declares them. */
const FIELDS =
  "{ company: import('typebox').TString, team: import('typebox').TUnion<[import('typebox').TLiteral<'small'>, import('typebox').TLiteral<'large'>]>, newsletter: import('typebox').TOptional<import('typebox').TBoolean>, tier: import('typebox').TOptional<import('typebox').TEnum<['bronze', 'gold']>> }";

/** What readers of the pages about plans, payments and teams have. */
const PAGES_ABOUT_PLANS = {
  client: "import('saas-backend/client').SaasClient",
  app: "import('express').Express",
  backend: "import('saas-backend').SaasMiddlewareServer",
};

/** What the reader of a page has: values of the application and of earlier snippets. */
const NAMES: Record<string, Record<string, string>> = {
  'docs/saas/accounts.md': {
    client: "import('saas-backend/client').SaasClient",
    backend: "import('saas-backend').SaasMiddlewareServer",
    app: "import('express').Express",
    ...{ email: 'string', password: 'string' },
  },
  'docs/saas/sessions.md': { email: 'string', password: 'string' },
  'docs/saas/confirm-addresses.md': {
    client: "import('saas-backend/client').SaasClient",
    email: 'string',
  },
  'docs/saas/suspend-delete-export.md': {
    client: "import('saas-backend/client').SaasClient",
    password: 'string',
  },
  'docs/saas/testing.md': {
    startApp: `(options?: import('saas-backend').SaasBackendOptions) => Promise<${FASTIFY}>`,
    app: FASTIFY,
  },
  'docs/saas/user-events.md': { backend: "import('saas-backend').SaasMiddlewareServer" },
  'docs/saas/user-roles.md': { app: "import('express').Express" },
  'docs/saas/client-forms.md': {
    client: "import('saas-backend/client').SaasClient",
    SaasError: "typeof import('saas-backend/client').SaasError",
    ...{ email: 'string', password: 'string', signal: 'AbortSignal' },
    show: '(text: string) => void',
    ask: '(label: string) => Promise<string>',
  },
  'docs/saas/email-login.md': {
    client: "import('saas-backend/client').SaasClient",
    email: 'string',
    show: '(text: string) => void',
    ask: '(label: string) => Promise<string>',
  },
  'docs/saas/api-keys.md': {
    listFiles: '(userId: string) => Promise<string[]>',
    app: "import('express').Express",
    backend: "import('saas-backend').SaasMiddlewareServer",
  },
  'docs/saas/agents-in-your-api.md': {
    app: "import('express').Express",
    backend: "import('saas-backend').SaasMiddlewareServer",
    listFiles: '(userId: string) => Promise<string[]>',
    readPayment: '(body: unknown) => { amount: number; creditor: string }',
    pay: '(payment: object) => Promise<object>',
  },
  'docs/saas/billing-access.md': {
    ...PAGES_ABOUT_PLANS,
    count: 'number',
    reportsOf: '(userId: string, plan: string) => Promise<string[]>',
  },
  'docs/saas/billing-changes.md': PAGES_ABOUT_PLANS,
  'docs/saas/billing-limits.md': { ...PAGES_ABOUT_PLANS, request: "import('fastify').FastifyRequest" },
  'docs/saas/billing-purchases.md': PAGES_ABOUT_PLANS,
  'docs/saas/billing-selling.md': PAGES_ABOUT_PLANS,
  'docs/saas/client.md': {
    client: "import('saas-backend/client').SaasClient",
    SaasError: "typeof import('saas-backend/client').SaasError",
    ...{ email: 'string', password: 'string', name: 'string', signal: 'AbortSignal' },
    show: '(text: string) => void',
    ask: '(label: string) => Promise<string>',
  },
  'docs/idp/console.md': { app: FASTIFY },
  'docs/saas/impersonation.md': {
    client: "import('saas-backend/client').SaasClient",
    show: '(text: string) => void',
  },
  'docs/both/embedding.md': {
    app: "import('express').Express",
    backend: "import('saas-backend').SaasMiddlewareServer",
    server: "import('node:http').Server",
  },
  'docs/both/fastify.md': {
    demandLogin: "import('fastify').onRequestAsyncHookHandler & ((request: object) => Promise<void>)",
    listNotes: '() => Promise<string[]>',
  },
  'docs/both/express.md': {
    app: "import('express').Express",
    express: "typeof import('express')",
    backend: "import('saas-backend').SaasMiddlewareServer",
    server: "import('node:http').Server",
    notesOf: '(userId: string) => string[]',
    dashboardOf: '(user: { email: string }) => string',
    ...{ reports: '() => string[]', everything: '() => string[]' },
  },
  'docs/both/factors.md': {
    client: "import('saas-backend/client').SaasClient",
    ...{ email: 'string', password: 'string', picture: '{ src: string }' },
    show: '(text: string) => void',
    ask: '(label: string) => Promise<string>',
    app: "import('express').Express",
    backend: "import('saas-backend').SaasMiddlewareServer",
    deleteProject: '() => Promise<void>',
    pay: '() => Promise<void>',
  },
  'docs/both/passkeys.md': { client: "import('saas-backend/client').SaasClient" },
  'docs/saas/login-providers.md': { client: "import('saas-backend/client').SaasClient" },
  'docs/idp/mcp.md': {
    Fastify: "typeof import('fastify').default",
    express: "typeof import('express')",
    protectMcp: "typeof import('saas-backend/resource-server').protectMcp",
  },
  'docs/reference/openapi.md': { app: FASTIFY },
  'docs/saas/organization-billing.md': PAGES_ABOUT_PLANS,
  'docs/saas/organization-roles.md': PAGES_ABOUT_PLANS,
  'docs/saas/organizations.md': PAGES_ABOUT_PLANS,
  'docs/saas/pages.md': PAGES_ABOUT_PLANS,
  'docs/saas/user-fields.md': {
    client: "import('saas-backend/client').SaasClient",
    ...{ email: 'string', password: 'string', userFields: FIELDS },
  },
  'docs/idp/resource-server.md': {
    serveMcp: "(call: import('saas-backend/resource-server').McpCall<unknown>) => Promise<void>",
  },
  'docs/saas/server-sessions.md': {
    backend: "import('saas-backend').FetchHandler",
    middleware: "import('saas-backend').SaasMiddlewareServer",
    app: "import('express').Express",
    request: 'Request',
    ...{ email: 'string', password: 'string' },
  },
  'docs/saas/users-api.md': {
    backend: "import('saas-backend').SaasMiddlewareServer",
    users: "import('saas-backend').SaasDecorator['users']",
    id: 'string',
  },
  'docs/saas/hooks.md': {
    isInvited: '(email: string) => Promise<boolean>',
    warehouse: '{ record(login: object): Promise<void> }',
    rolesOf: '(userId: string) => Promise<string[]>',
  },
  'docs/saas/webhooks.md': {
    app: "import('express').Express",
    express: "typeof import('express')",
    webhook: '{ verify(body: unknown, headers: object): { type: string, data: object } }',
    queue: '{ add(id: unknown, event: unknown): Promise<void> }',
  },
  'docs/operate/mongodb.md': { fastifyMongodb: "typeof import('@fastify/mongodb').default" },
  'docs/operate/postgresql.md': { pg: "typeof import('pg').default" },
};

/** Two versions of a library are installed here. */
const INSTALLED_AS: Record<string, [string, string]> = {
  'openid-client 5': ["'openid-client'", "'openid-client-5'"],
};

const LIBRARIES = ['es2024', 'dom', 'dom.iterable'];

/** The snippet as a module: its imports, what its reader has, and its statements in a scope of their own. */
function moduleOf({ page, heading, language, ...block }: Block): string {
  const text = block.text.replace(...(INSTALLED_AS[heading] ?? ['', '']));
  const imported = /^import [\s\S]*?;$/gm;
  const imports = (text.match(imported) ?? []).join('\n');
  const names = Object.entries({ ...COMMON, ...NAMES[page] });
  const missing = names.filter(
    ([name]) => !new RegExp(`\\b${name}\\b`).test(imports.replace(/from .*/g, '')),
  );
  const declared = missing.map(([name, type]) =>
    language === 'js'
      ? `const ${name} = /** @type {${type}} */ (/** @type {unknown} */ (null));`
      : `declare const ${name}: ${type};`,
  );
  const body = text.replace(imported, '').replaceAll(/^export (default )?/gm, '');
  // A module cannot be declared in a block.
  const isAmbient = body.trimStart().startsWith('declare module');
  return `${imports}\n${declared.join('\n')}\n${isAmbient ? body : `{\n${body}}`}\nexport {};\n`;
}

/** The compiler's messages about the snippets. */
async function compile(folder: string, blocks: Block[], options: Record<string, unknown>): Promise<string> {
  mkdirSync(folder);
  for (const block of blocks) {
    const extension = { js: 'mjs', tsx: 'tsx' }[block.language] ?? 'mts';
    const name = `${basename(block.page, '.md')}-line-${block.line}.${extension}`;
    writeFileSync(join(folder, name), moduleOf(block));
  }
  // The file of an application of Next.js that its other files import.
  writeFileSync(
    join(folder, 'backend.d.mts'),
    "export declare const backend: import('saas-backend').FetchHandler;\n",
  );
  const compilerOptions = {
    paths: { '@/lib/backend': ['./backend.d.mts'] },
    ...{ target: 'es2023', lib: LIBRARIES, module: 'nodenext', jsx: 'react-jsx', noEmit: true },
    ...{ skipLibCheck: true, types: ['node'], ...options },
  };
  writeFileSync(
    join(folder, 'tsconfig.json'),
    JSON.stringify({ compilerOptions, include: ['*.mjs', '*.mts', '*.tsx'] }),
  );
  return run(TSC, ['-p', folder]).then(
    () => '',
    ({ stdout }: { stdout: string }) => stdout,
  );
}

t.test('every snippet of README and docs compiles against the types of the package', async (t) => {
  // Inside the package, where its name refers to its exports.
  const folder = mkdtempSync(join(ROOT, 'dist/snippets-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const blocks = allBlocks(['ts', 'js', 'tsx']).filter(({ notRun, runBy }) => !notRun && !runBy);
  const strict = blocks.filter(({ language }) => language !== 'js');
  const lax = blocks.filter(({ language }) => language === 'js');
  t.ok(strict.length > 10 && lax.length > 25, `${strict.length} and ${lax.length} snippets`);
  const [ts, js] = await Promise.all([
    compile(join(folder, 'ts'), strict, { strict: true }),
    compile(join(folder, 'js'), lax, { strict: false, checkJs: true }),
  ]);
  t.equal(ts, '', 'TypeScript');
  t.equal(js, '', 'JavaScript');
});
