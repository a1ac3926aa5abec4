import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';

/** Imports point downwards only, and further rules of the structure. */

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** The rooms of the house, from the ground up, and those that each imports: no more and no less. */
const ROOMS = {
  core: [],
  client: [],
  react: ['client'],
  server: ['client'],
  shared: ['core'],
  'resource-server': ['core'],
  idp: ['core', 'shared'],
  saas: ['core', 'resource-server', 'server', 'shared'],
  index: ['core', 'idp', 'saas', 'server'],
  next: ['index'],
  bin: ['core', 'idp', 'saas'],
};

/** Rooms with one folder for each domain. */
const ROOMS_OF_DOMAINS = ['core', 'shared', 'idp', 'saas'];

/** The folders of the core and what all consoles share, from the bottom up: each imports only earlier ones. */
const FOUNDATIONS = [
  'src/core/kernel',
  'src/core/storage',
  'src/core/config',
  'src/core/http',
  'src/core/ops',
  'src/core/passwords',
  'src/core/throttle',
  'src/core/outbound',
  'src/core/server',
  'src/shared/console-kit',
];
const PRODUCTS = ['src/saas', 'src/idp'];

interface Source {
  file: string;
  text: string;
  imports: string[];
  /** The imports that are loaded with the file: neither types nor dynamic imports. */
  loads: string[];
  /** The imports of types alone. */
  types: string[];
}

const sources = ['bin', 'src'].flatMap(readSources);

function readSources(folder: string): Source[] {
  const files = readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => file.endsWith('.ts'))
    .map((name) => {
      const file = `${folder}/${name}`;
      const text = readFileSync(join(ROOT, file), 'utf8');
      return { file, text, imports: importsOf(text), loads: loadsOf(text), types: typesOf(text) };
    });
}

function importsOf(text: string): string[] {
  const found = text.matchAll(/\b(?:from|import)\s+'([^']+)'|\bimport\('([^']+)'\)/g);
  return [...found].map(([, name, lazy = '']) => name ?? lazy);
}

function loadsOf(text: string): string[] {
  const found = text.matchAll(/^(?:import|export)\s(?!type\s)(?:[\w\s{},*]*?\sfrom\s)?'([^']+)'/gm);
  return [...found].map(([, name]) => name as string);
}

function typesOf(text: string): string[] {
  const imports = importsOf(text.replace(/^(?:import|export) type [^;]*? from '[^']+'/gm, ''));
  return importsOf(text).filter((name) => !imports.includes(name));
}

/** The bundle of the client, which others import by its published name, so that its classes exist once. */
const CLIENT = 'saas-backend/client';

const isLocal = (name: string): boolean => name.startsWith('.') || name === CLIENT;

/** Resolves a local import to a source file. */
function targetOf(file: string, name: string): string {
  if (name === CLIENT) return 'src/client/index.ts';
  return relative(ROOT, join(ROOT, dirname(file), name)).replace(/\.js$/, '.ts');
}

/** Our files and the names of packages that a process has loaded once it has loaded `file`. */
function everythingLoadedBy(file: string, known = new Set<string>()): string[] {
  known.add(file);
  for (const name of sources.find((source) => source.file === file)?.loads ?? []) {
    const target = isLocal(name) ? targetOf(file, name) : name;
    if (!known.has(target)) everythingLoadedBy(target, known);
  }
  return [...known];
}

/** `saas`, `index` for the file at the root, `bin`. */
function roomOf(file: string): string {
  const [root = '', room = ''] = dirname(file).split('/');
  return root === 'bin' ? 'bin' : room || 'index';
}

/** A folder with all that is in it: `src/saas/auth`, `src/saas` for the files of the product itself, `bin`. */
function partOf(file: string): string {
  const folders = dirname(file).split('/');
  const depth = ROOMS_OF_DOMAINS.includes(roomOf(file)) ? 3 : 2;
  return folders[0] === 'bin' ? 'bin' : folders.slice(0, depth).join('/');
}

const DOMAIN = FOUNDATIONS.length;

function levelOf(file: string): number {
  const part = partOf(file);
  if (FOUNDATIONS.includes(part)) return FOUNDATIONS.indexOf(part);
  if (PRODUCTS.includes(part)) return DOMAIN + 1;
  if (part === 'src') return DOMAIN + 2;
  return part === 'bin' || part === 'src/next' ? DOMAIN + 3 : DOMAIN;
}

const local = sources.flatMap(({ file, imports, types }) =>
  imports
    .filter(isLocal)
    .map((name) => ({ file, target: targetOf(file, name), isType: types.includes(name) }))
    .filter(({ target }) => !target.startsWith('generated/')),
);

t.test('each room imports the rooms below it, and the products do not import each other', async (t) => {
  const arrows = local.map(({ file, target }) => [roomOf(file), roomOf(target)] as const);
  const drawn = sources.map(({ file }) => {
    const room = roomOf(file);
    const below = arrows.filter(([from, to]) => from === room && to !== room).map(([, to]) => to);
    return [room, [...new Set(below)].sort()];
  });
  t.strictSame(Object.fromEntries(drawn), ROOMS);
  const names = Object.keys(ROOMS);
  for (const [room, below] of Object.entries(ROOMS))
    for (const other of below) t.ok(names.indexOf(other) < names.indexOf(room), `${room} is above ${other}`);
});

t.test(
  'the core has the folders that its layers name, and the index is the only file at the root',
  async (t) => {
    t.ok(
      local.some(({ target }) => levelOf(target) === 0) &&
        local.some(({ file }) => levelOf(file) === DOMAIN + 3),
    );
    const core = sources.filter(({ file }) => roomOf(file) === 'core').map(({ file }) => partOf(file));
    t.same([...new Set(core)].sort(), FOUNDATIONS.filter((part) => part.startsWith('src/core/')).sort());
    const roots = sources.filter(({ file }) => partOf(file) === 'src').map(({ file }) => file);
    t.same(roots, ['src/index.ts']);
  },
);

t.test('within a room, imports point downwards only', async (t) => {
  t.same(
    local.filter(({ file, target }) => levelOf(target) > levelOf(file)),
    [],
  );
});

/** The imports from one domain to another. */
const between = local.filter(
  ({ file, target }) => levelOf(file) === levelOf(target) && partOf(file) !== partOf(target),
);

t.test('a domain imports only types from another domain, of its product or of a room below', async (t) => {
  t.ok(between.length > 10, 'types are imported');
  t.same(
    // The client is a package of its own for whoever imports it.
    between.filter(({ isType, target }) => !isType && target !== targetOf('', CLIENT)),
    [],
  );
});

/** What is reached from itself. */
function inCircles(arrows: readonly (readonly [from: string, to: string])[]): string[] {
  const reachable = (from: string, known = new Set<string>()): Set<string> => {
    for (const [one, to] of arrows) if (one === from && !known.has(to)) reachable(to, known.add(to));
    return known;
  };
  return [...new Set(arrows.flat())].filter((one) => reachable(one).has(one));
}

t.test('domains and files have no circles, type imports included', async (t) => {
  t.same(inCircles([...'ab bc ca cd'.split(' ')].map(([from = '', to = '']) => [from, to])), ['a', 'b', 'c']);
  t.same(inCircles(between.map(({ file, target }) => [partOf(file), partOf(target)])), []);
  t.same(inCircles(local.map(({ file, target }) => [file, target])), []);
});

t.test('a program loads its own server only to serve, and nothing of the other product', async (t) => {
  const PROGRAMS = {
    'bin/saas-backend.ts': {
      server: 'src/saas/server.ts',
      foreign: /^(src\/idp\/|jose\b)/,
    },
    'bin/idp.ts': {
      server: 'src/idp/server.ts',
      foreign: /^(src\/saas\/|@fastify\/jwt)/,
    },
  };
  for (const [program, { server, foreign }] of Object.entries(PROGRAMS)) {
    const named = local.filter(({ file }) => file === program).map(({ target }) => target);
    t.ok(named.includes(server), `${program} names ${server}`);
    t.notOk(everythingLoadedBy(program).includes('fastify'), `${program} serves on demand`);
    const everything = everythingLoadedBy(server);
    t.ok(everything.includes('fastify'), `${server} is followed`);
    t.same(
      [...named, ...everything].filter((name) => foreign.test(name)),
      [],
      program,
    );
  }
});

t.test('slow dependencies are loaded only where they are needed', async (t) => {
  const SLOW =
    /^(stripe|prom-client|bcryptjs|nodemailer|mongodb|@fastify\/mongodb|@observablehq\/plot|linkedom|openid-client|otpauth|uqr|@simplewebauthn\/server)\b/;
  const everything = everythingLoadedBy('src/index.ts');
  t.ok(
    everything.includes('src/idp/oidc/keys.ts') && everything.includes('@fastify/jwt'),
    'imports are followed',
  );
  t.same(
    everything.filter((name) => SLOW.test(name)),
    [],
  );
});

t.test('module.ts and service.ts do not import fastify', async (t) => {
  const files = sources.filter(({ file }) => /(^|\/)(module|service)\.ts$/.test(file));
  const names = files.map(({ file }) => file);
  t.ok(names.includes('src/saas/auth/service.ts') && names.includes('src/saas/settings/module.ts'));
  t.same(
    files.filter(({ imports }) => imports.some((name) => /^@?fastify/.test(name))).map(({ file }) => file),
    [],
  );
});

t.test('the client imports only its own files', async (t) => {
  const files = sources.filter(({ file }) => partOf(file) === 'src/client');
  t.ok(files.length > 5);
  t.same(
    files
      .filter(({ imports }) => imports.some((name) => !/^\.\.?\/[\w./-]+$/.test(name)))
      .map(({ file }) => file),
    [],
  );
  const foreign = local.filter(
    ({ file, target }) => partOf(file) === 'src/client' && partOf(target) !== 'src/client',
  );
  t.same(foreign, []);
});

t.test('each third-party service is imported in one place', async (t) => {
  const KNOWN_TO: Record<string, RegExp> = {
    stripe: /^src\/saas\/billing\/provider\//,
    mongodb: /^src\/core\/storage\/mongodb/,
    '@fastify/mongodb': /^src\/core\/storage\/mongodb/,
    nodemailer: /^src\/shared\/email\/transport\.ts$/,
    argon2: /^src\/core\/passwords\/argon2\.ts$/,
    '@node-rs/argon2': /^src\/core\/passwords\/argon2\.ts$/,
    bcryptjs: /^src\/core\/passwords\/bcrypt\.ts$/,
    'prom-client': /^src\/core\/ops\/metrics\.ts$/,
  };
  for (const [name, place] of Object.entries(KNOWN_TO)) {
    const elsewhere = sources.filter(({ file, imports }) => imports.includes(name) && !place.test(file));
    t.same(elsewhere, [], name);
  }
});

t.test('the environment is read in one place', async (t) => {
  const readers = sources.filter(({ text }) => /process\s*(\?\.|\.|\[['"])\s*env\b/.test(text));
  t.same(
    readers.map(({ file }) => file),
    ['src/core/config/options.ts'],
  );
});

const linesOf = ({ text }: Source) => text.trimEnd().split('\n').length;

t.test('files have at least 20 lines, except index.ts, tables and generated files', async (t) => {
  const short = sources.filter((source) => linesOf(source) < 20).map(({ file }) => file);
  t.same(
    short.filter((file) => !/(^|\/)(index|errors|schemas|store)\.ts$|\/generated\//.test(file)),
    [],
  );
});

t.test('files have at most 400 lines and no unfinished parts', async (t) => {
  const long = sources.filter((source) => linesOf(source) > 400);
  t.same(
    long.map(({ file }) => file),
    [],
  );
  t.same(
    sources.filter(({ text }) => /\b(TODO|FIXME|XXX)\b/.test(text)).map(({ file }) => file),
    [],
  );
});

t.test('every dependency is imported and has a documented reason', async (t) => {
  const { dependencies, peerDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  const declared = Object.keys({ ...dependencies, ...peerDependencies }).sort();
  const packages = sources
    .flatMap(({ imports }) => imports)
    .filter((name) => !isLocal(name) && !name.startsWith('node:'))
    .map((name) =>
      name
        .split('/')
        .slice(0, name.startsWith('@') ? 2 : 1)
        .join('/'),
    );
  // Never imported: the first holds the version that Fastify gets, files of the second are served.
  t.same([...new Set([...packages, 'light-my-request', '@fastify/swagger-ui'])].sort(), declared);

  const decisions = readFileSync(join(ROOT, 'docs/decisions/dependencies.md'), 'utf8');
  const argued = [...decisions.matchAll(/^\| `([^`]+)`/gm)].map(([, name]) => name);
  t.same(argued.sort(), declared);
});
