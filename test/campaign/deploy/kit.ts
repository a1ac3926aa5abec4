import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Test } from 'tap';
import { compiled, type Program, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';

/** Reads the files of examples/deploy/ and runs what they describe. */

export const ROOT = join(compiled('.'), '..');

export const deployed = (path: string): string => readFileSync(join(ROOT, 'examples/deploy', path), 'utf8');

/** The values of a key of a systemd unit, in order. */
export const unitValues = (unit: string, key: string): string[] =>
  [...deployed(`systemd/${unit}.service`).matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(
    ([, value]) => value as string,
  );

/** The variables of an environment file. */
export const variablesOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    [...text.matchAll(/^([A-Z]\w*)=(.*)$/gm)].map(([, name, value]) => [name as string, value as string]),
  );

/**
 * Starts the program of a unit as systemd does: its command with its environment and credentials. The state folder is a
 * temporary one, the port a free one, and metrics are enabled.
 */
export async function startUnit(
  t: Pick<Test, 'teardown'>,
  unit: 'saas-backend' | 'idp',
  { secrets, port }: { secrets: Record<string, string>; port: number },
): Promise<Program> {
  const folder = temporaryFolder(t);
  const credentials = join(folder, 'credentials');
  mkdirSync(credentials);
  for (const credential of unitValues(unit, 'LoadCredential')) {
    const [name = '', source] = credential.split(':');
    if (source !== `/etc/${unit}/secrets/${name}` || secrets[name] === undefined) throw new Error(credential);
    writeFileSync(join(credentials, name), `${secrets[name]}\n`);
  }
  const own = variablesOf(
    unitValues(unit, 'Environment')
      .map((assignment) => assignment.replace('%d', credentials))
      .join('\n'),
  );
  const configured = deployed(`systemd/${unit}.env`)
    .replaceAll(`/var/lib/${unit}`, folder)
    .replaceAll('.example.com', '.example');
  const [command = '', ...args] = (unitValues(unit, 'ExecStart')[0] as string).split(' ');
  const name = /^\/opt\/saas-backend\/node_modules\/\.bin\/([\w-]+)$/.exec(command)?.[1];
  const program = startProgram(t, compiled(`bin/${name}.js`), {
    args,
    cwd: folder,
    env: { ...variablesOf(configured), ...own, PORT: String(port), METRICS: 'true', IDP_METRICS: 'true' },
  });
  await program.url();
  return program;
}
