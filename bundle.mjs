/**
 * Bundles the programs, the library and the client into `dist/package`. The library imports its dependencies from
 * `node_modules`, where applications share them; the programs contain those that every start loads. Libraries that are only
 * development dependencies become part of both, together with their licenses.
 */
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { rolldown } from 'rolldown';

const OUTPUT = 'dist/package';

const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));

/** Production dependencies in the library; see docs/decisions/dependencies.md. */
const IN_LIBRARY = ['typebox'];

/** Production dependencies in the programs; see docs/decisions/dependencies.md. */
const IN_PROGRAMS = [
  ...IN_LIBRARY,
  '@fastify/basic-auth',
  '@fastify/cors',
  '@fastify/fast-json-stringify-compiler',
  '@fastify/formbody',
  '@fastify/jwt',
  'ajv',
  'close-with-grace',
  'commander',
  'cookie',
  'fastify',
  'fastify-plugin',
  'jose',
  'mustache',
  'negotiator',
  'pino',
];

/** Licenses, and what bundlers of applications read. */
const COMMENTS = { legal: true, annotation: true, jsdoc: false };

const library = await bundle({
  folder: 'library',
  entries: ['src/index', 'src/resource-server/index'],
  bundled: IN_LIBRARY,
  groups: {
    'resource-server': (closureOf) => closureOf('src/resource-server/index'),
    library: (closureOf) => closureOf('src/index'),
  },
});

const startOf = (product) => (closureOf) => closureOf('bin/commands/serve', `src/${product}/server`);

const programs = await bundle({
  folder: 'programs',
  entries: ['bin/saas-backend', 'bin/idp'],
  bundled: IN_PROGRAMS,
  groups: {
    program: (closureOf) => closureOf('bin/saas-backend', 'bin/idp'),
    core(closureOf) {
      const idp = startOf('idp')(closureOf);
      return new Set([...startOf('saas')(closureOf)].filter((module) => idp.has(module)));
    },
    'saas-backend': startOf('saas'),
    idp: startOf('idp'),
  },
});

/**
 * Node spends half a millisecond on each file, so what a start needs is in few of them: one for the modules of each group
 * that are in no group before it. rolldown divides the others by what loads them.
 *
 * @returns the names of the packages in the bundle
 */
async function bundle({ folder, entries, bundled, groups }) {
  const external = [...Object.keys(dependencies).filter((name) => !bundled.includes(name)), 'mongodb'];
  const input = {
    ...Object.fromEntries(entries.map((name) => [name, compiled(name)])),
    // They import their own file in a thread, by its address: as entries, they have a file of their own with all exports.
    [`threads/${folder}/bcrypt`]: compiled('src/core/passwords/bcrypt'),
    [`threads/${folder}/backup`]: compiled('src/core/storage/sqlite/backup'),
  };
  // An entry in a shared file would run with it.
  const entryFiles = new Set(Object.values(input));
  const build = await rolldown({
    input,
    platform: 'node',
    external: (id) => external.some((name) => id === name || id.startsWith(`${name}/`)),
    plugins: [{ name: 'fast-start', generateBundle: (_options, files) => makeFastToRead(files) }],
    // A module of the index is loaded with the product, and by the program not before its server.
    checks: { ineffectiveDynamicImport: false },
    resolve: {
      // Their CommonJS entries would come along as a whole.
      alias: {
        typebox: resolve('node_modules/typebox/build/index.mjs'),
        commander: resolve('node_modules/commander/index.js'),
      },
    },
  });
  const { output } = await build.write({
    dir: OUTPUT,
    format: 'esm',
    // Files with the same content have the same name in both bundles.
    chunkFileNames: 'shared/[name]-[hash].js',
    comments: COMMENTS,
    codeSplitting: {
      groups: Object.entries(groups).map(([name, modulesOf], index, { length }) => {
        let modules;
        return {
          debugName: name,
          priority: length - index,
          name(id, context) {
            modules ??= modulesOf(closures((module) => context.getModuleInfo(module)?.importedIds ?? []));
            return modules.has(id) && !entryFiles.has(id) ? name : null;
          },
        };
      }),
    },
  });
  await build.close();
  return output.flatMap(({ modules = {} }) =>
    Object.entries(modules).flatMap(([id, { renderedLength }]) =>
      renderedLength > 0 ? (/\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1] ?? []) : [],
    ),
  );
}

/**
 * Rewrites what costs V8 more than needed. A source with a character above U+00FF takes two bytes for each of its characters,
 * for as long as the process lives. The function around a CommonJS module is parsed once, not twice, if V8 expects that it is
 * called: Node.js 20 does of functions in parentheses, not of arrow functions.
 */
function makeFastToRead(files) {
  for (const file of Object.values(files)) {
    // Where an escape would mean something else than its character. Other tags that read the raw text are not known.
    if (/(?<!\\)(?:\\\\)*\\[^\0-\x7f]|String\.raw`[^`]*[^\0-\x7f]/.test(file.code)) {
      throw new Error(`${file.fileName} has a character outside of ASCII that cannot be escaped.`);
    }
    file.code = file.code
      .replaceAll(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .replaceAll(/(?<=__commonJSMin\(\()\(([^()]*)\) => \{/g, 'function($1) {');
    if (/__commonJSMin\((?!\(function\()/.test(file.code)) {
      throw new Error(`rolldown writes the modules of ${file.fileName} in another form than expected here.`);
    }
  }
}

/** The file that TypeScript writes for a module. */
function compiled(name) {
  return resolve('dist', `${name}.js`);
}

/** Returns a function for the modules that the given ones import at once, directly or by others. */
function closures(importsOf) {
  return (...roots) => {
    const modules = new Set();
    const add = (module) => {
      if (modules.has(module)) return;
      modules.add(module);
      importsOf(module).forEach(add);
    };
    for (const root of roots) add(compiled(root));
    return modules;
  };
}

// Runs in browsers as well: no part of the other programs.
const client = await rolldown({ input: 'dist/src/client/index.js', platform: 'neutral' });
await client.write({ file: join(OUTPUT, 'src/client/index.js'), format: 'esm', comments: COMMENTS });
await client.close();

/** The license of a package: its text, or the name if that is all that it states. */
function licenseOf(name) {
  const folder = join('node_modules', name);
  const file = readdirSync(folder).find((entry) => /^(?:licen[cs]e|copying)/i.test(entry));
  const { version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const text = file === undefined ? license : readFileSync(join(folder, file), 'utf8').trim();
  if (!text) throw new Error(`${name} is bundled without a license`);
  return `${name} ${version}\n\n${text}\n`;
}

// For the page of the API outside production, which reads them as they are.
const page = join(OUTPUT, 'swagger-ui');
mkdirSync(page, { recursive: true });
for (const file of ['swagger-ui-bundle.js', 'swagger-ui.css']) {
  cpSync(join('node_modules/swagger-ui-dist', file), join(page, file));
}
const packages = new Set([...library, ...programs, 'swagger-ui-dist']);
const licenses = [...packages].sort().map(licenseOf);
writeFileSync(join(OUTPUT, 'licenses.txt'), licenses.join(`\n${'-'.repeat(80)}\n\n`));
