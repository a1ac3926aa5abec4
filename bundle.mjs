/**
 * Bundles the programs, the index and the client into `dist/package`. Production dependencies are imported from `node_modules`, except
 * those that load faster from the bundle; libraries that are only development dependencies become part of it, together
 * with their licenses.
 */
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';

const OUTPUT = 'dist/package';

/** Production dependencies in the bundle; see docs/decisions.md. */
const BUNDLED = ['typebox', 'commander'];

const { dependencies } = JSON.parse(readFileSync('package.json', 'utf8'));

const { metafile } = await build({
  entryPoints: [
    'dist/bin/saas-backend.js',
    'dist/bin/idp.js',
    'dist/src/index.js',
    'dist/src/resource-server/index.js',
  ],
  outbase: 'dist',
  bundle: true,
  splitting: true,
  format: 'esm',
  platform: 'node',
  target: 'node20',
  outdir: OUTPUT,
  chunkNames: 'shared/[name]-[hash]',
  // Loaded by @fastify/mongodb as well.
  external: [...Object.keys(dependencies).filter((name) => !BUNDLED.includes(name)), 'mongodb'],
  // Their CommonJS entries would come along as a whole.
  alias: {
    typebox: './node_modules/typebox/build/index.mjs',
    commander: './node_modules/commander/index.js',
  },
  banner: {
    js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
  },
  metafile: true,
  logLevel: 'warning',
});

// Runs in browsers as well: no banner, no part of the other programs.
await build({
  entryPoints: ['dist/src/client/index.js'],
  outfile: join(OUTPUT, 'src/client/index.js'),
  bundle: true,
  format: 'esm',
  platform: 'neutral',
  target: 'es2022',
  logLevel: 'warning',
});

const NAME = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//;

const bundled = new Set(
  Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(
      ([file, { bytesInOutput }]) => (bytesInOutput > 0 ? NAME.exec(file)?.[1] : []) ?? [],
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
