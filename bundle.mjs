/**
 * Bundles the programs, the index and the client into `dist/package`. Production dependencies are imported from `node_modules`, except
 * those that load faster from the bundle; libraries that are only development dependencies become part of it, together
 * with their licenses.
 */
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { rolldown } from 'rolldown';

const OUTPUT = 'dist/package';

/** Production dependencies in the bundle; see docs/decisions.md. */
const BUNDLED = ['typebox', 'commander'];

const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));
const EXTERNAL = [...Object.keys(dependencies).filter((name) => !BUNDLED.includes(name)), 'mongodb'];

const isExternal = (id) => EXTERNAL.some((name) => id === name || id.startsWith(`${name}/`));

/** Licenses, and what bundlers of applications read. */
const COMMENTS = { legal: true, annotation: true, jsdoc: false };

const entries = {
  'bin/saas-backend': 'dist/bin/saas-backend.js',
  'bin/idp': 'dist/bin/idp.js',
  'src/index': 'dist/src/index.js',
  'src/resource-server/index': 'dist/src/resource-server/index.js',
  // They import their own file in a thread, by its address: as entries, they have a file of their own with all exports.
  'threads/bcrypt': 'dist/src/passwords/bcrypt.js',
  'threads/backup': 'dist/src/storage/sqlite/backup.js',
};

const bundle = await rolldown({
  input: entries,
  platform: 'node',
  // mongodb is loaded by @fastify/mongodb as well.
  external: isExternal,
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
const { output } = await bundle.write({
  dir: OUTPUT,
  format: 'esm',
  chunkFileNames: 'shared/[name]-[hash].js',
  comments: COMMENTS,
  // Node spends half a millisecond on each file, so what a start needs is in few of them.
  codeSplitting: { groups: startGroups() },
});
await bundle.close();

/** A file for each set of modules that a start loads. rolldown divides the others by what loads them. */
function startGroups() {
  let groups;
  // In the order of their priority.
  return ['idp', 'saas-backend', 'core', 'program', 'resource-server', 'kernel'].map(
    (debugName, priority) => ({
      debugName,
      priority,
      name(id, context) {
        groups ??= modulesOfGroups((module) => context.getModuleInfo(module)?.importedIds ?? []);
        return groups[debugName].has(id) ? debugName : null;
      },
    }),
  );
}

/** The modules of each group. They import no others but those of groups before it. */
function modulesOfGroups(importsOf) {
  const closureOf = (...roots) => {
    const modules = new Set();
    const add = (module) => {
      if (modules.has(module)) return;
      modules.add(module);
      importsOf(module).forEach(add);
    };
    for (const root of roots) add(resolve(root));
    return modules;
  };
  // A server starts with the program, too, which the library does not contain.
  const serve = 'dist/bin/commands/serve.js';
  const library = closureOf(entries['src/index']);
  const [saas, idp] = ['saas', 'idp'].map((product) =>
    [...closureOf(serve, `dist/src/${product}/server.js`)].filter((module) => library.has(module)),
  );
  const programs = closureOf(entries['bin/saas-backend'], entries['bin/idp']);
  const groups = {
    kernel: new Set([...programs].filter((module) => library.has(module))),
    'resource-server': closureOf(entries['src/resource-server/index']),
    program: programs,
    core: new Set(saas.filter((module) => idp.includes(module))),
    'saas-backend': new Set(saas),
    idp: new Set(idp),
  };
  // An entry in a shared file would run with it.
  for (const modules of Object.values(groups))
    for (const file of Object.values(entries)) modules.delete(resolve(file));
  return groups;
}

// Runs in browsers as well: no part of the other programs.
const client = await rolldown({ input: 'dist/src/client/index.js', platform: 'neutral' });
await client.write({ file: join(OUTPUT, 'src/client/index.js'), format: 'esm', comments: COMMENTS });
await client.close();

const NAME = /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//;

const bundled = new Set(
  output.flatMap(({ modules = {} }) =>
    Object.entries(modules).flatMap(([id, { renderedLength }]) =>
      renderedLength > 0 ? (NAME.exec(id)?.[1] ?? []) : [],
    ),
  ),
);

/** The license text of a package. */
function licenseOf(name) {
  const folder = join('node_modules', name);
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (file === undefined) throw new Error(`${name} is bundled without a license text`);
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  return `${name} ${version}\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
}

// For the page of the API outside production, which reads them as they are.
const page = join(OUTPUT, 'swagger-ui');
mkdirSync(page, { recursive: true });
for (const file of ['swagger-ui-bundle.js', 'swagger-ui.css']) {
  cpSync(join('node_modules/swagger-ui-dist', file), join(page, file));
}
bundled.add('swagger-ui-dist');

const licenses = [...bundled].sort().map(licenseOf);
writeFileSync(join(OUTPUT, 'licenses.txt'), licenses.join(`\n${'-'.repeat(80)}\n\n`));
