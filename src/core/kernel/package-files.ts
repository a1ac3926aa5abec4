import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The files of this package that are read at runtime: templates, common passwords and descriptions. */

let folder: string | undefined;

/**
 * The path of a file or folder of this package. It is looked up by the name of the package, because an application may have
 * bundled this code into a file of its own.
 */
export function packageFile(path: string): string {
  folder ??= packageFolder();
  return join(folder, path);
}

let version: string | undefined;

/** The version of this package, which is read once: each command has it. */
export function packageVersion(): string {
  version ??= String(JSON.parse(readFileSync(packageFile('package.json'), 'utf8')).version);
  return version;
}

/** This package as its own code sees it, in `node_modules` of a bundle. @throws Error with the remedy */
function packageFolder(): string {
  try {
    return dirname(createRequire(import.meta.url).resolve('saas-backend/package.json'));
  } catch (cause) {
    throw new Error(
      'The files of saas-backend are not there: install the package beside the bundle, or leave it out of the bundle (esbuild --packages=external).',
      { cause },
    );
  }
}

/**
 * Nothing calls it: tools that copy only the files that an application needs (@vercel/nft, in Nitro and Next.js) find these folders by
 * such expressions.
 */
export function tracedFolders(): string[] {
  return [
    join(import.meta.dirname, '../../../../templates'),
    join(import.meta.dirname, '../../../../src/core/passwords'),
    join(import.meta.dirname, '../../../../docs/openapi'),
  ];
}
