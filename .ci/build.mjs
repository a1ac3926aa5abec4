/**
 * Compiles into `dist` what has changed since the last time: most commands of `package.json` build first. The types of the client are
 * generated from the OpenAPI document before.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'rolldown';
import { clientFiles } from '../docs/openapi/client.mjs';

const STAMP = 'dist/built-from';
const CLIENT_TYPES = 'generated/client';

rmSync(CLIENT_TYPES, { recursive: true, force: true });
mkdirSync(CLIENT_TYPES, { recursive: true });
const document = JSON.parse(readFileSync('docs/openapi/saas-backend.json', 'utf8'));
for (const [name, text] of Object.entries(clientFiles(document)))
  writeFileSync(join(CLIENT_TYPES, name), text);

// The image has no tests.
const sources = ['bin', 'src', 'generated', 'test'].filter(existsSync).flatMap((folder) =>
  readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(folder, name)),
);
const hash = createHash('sha256');
for (const file of [...sources.sort(), 'package.json', 'package-lock.json', 'tsconfig.json', '.ci/build.mjs'])
  hash.update(`${file}\0`).update(readFileSync(file)).update('\0');
const state = hash.digest('hex');

if (existsSync(STAMP) && readFileSync(STAMP, 'utf8') === state) {
  // What the last run of the tests could not run.
  rmSync('dist/skipped', { recursive: true, force: true });
  console.log('dist is up to date');
} else {
  removeOutputsWithoutSource();
  console.log('Compiling bin, src, generated and test');
  // Within `dist`, so that it is gone when the outputs are.
  const incremental = ['--incremental', '--tsBuildInfoFile', 'dist/.tsbuildinfo'];
  const { status } = spawnSync(
    process.execPath,
    ['node_modules/typescript/bin/tsc', '-p', '.', ...incremental],
    { stdio: 'inherit' },
  );
  // What the compiler printed is the last that is shown.
  if (status !== 0) process.exit(status ?? 1);
  await documentOptions();
  // Pages load the client as one file. It imports no packages.
  await build({
    input: 'dist/src/client/index.js',
    platform: 'neutral',
    output: { file: 'dist/client.js', comments: { legal: true, annotation: true, jsdoc: false } },
  });
  // Last, so that a build that was interrupted is repeated.
  writeFileSync(STAMP, state);
}

/** Adds the documentation of each option to the declarations of both products, where editors read it. */
async function documentOptions() {
  const { describeOptions } = await import('../dist/src/core/config/option-rows.js');
  for (const [product, schema, values, type] of [
    ['saas', 'saasSchema', 'SaasConfiguration', 'SaasBackendOptions'],
    ['idp', 'idpSchema', 'IdpConfiguration', 'IdentityProviderOptions'],
  ]) {
    const options = await import(`../dist/src/${product}/options.js`);
    const members = describeOptions(options[schema]).map(
      (row) => `    /**\n${commentOf(row)}\n     */\n    ${row.name}?: Required<${values}>['${row.name}'];\n`,
    );
    const file = `dist/src/${product}/options.d.ts`;
    const declaration = new RegExp(`(?<=export interface ${type} [^{]*\\{\n).*?(?=^\\})`, 'ms');
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace(declaration, () => members.join('')),
    );
  }
}

/** What an option is, its variable and its default. */
function commentOf({ doc, env, default: initial, file }) {
  const variable = `Variable: \`${env}\`${file ? `, or \`${env}_FILE\` for the path of a file` : ''}.`;
  const text = [doc, variable, ...(initial === '' ? [] : [`Default: ${initial.replaceAll('`', '')}.`])]
    .join(' ')
    .replaceAll('*/', '*\\/');
  return text.replaceAll(/(\S.{0,114}\S|\S)(\s+|$)/g, '     * $1\n').trimEnd();
}

/** The compiler leaves the outputs of sources that were removed or renamed. */
function removeOutputsWithoutSource() {
  if (!existsSync('dist')) return;
  const known = new Set(sources.map((name) => name.replace(/\.ts$/, '')));
  for (const name of readdirSync('dist', { recursive: true })) {
    const [, source] = /^((?:bin|src|generated|test)[\\/].+?)\.(?:js|js\.map|d\.ts)$/.exec(name) ?? [];
    if (source !== undefined && !known.has(source)) rmSync(join('dist', name));
  }
}
