import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Random } from '../kernel/secrets.js';
import { tryCreation } from '../storage/sqlite/trial.js';

/**
 * The secrets of a development set-up: made once and kept in `file`, readable for its owner only, so that a
 * restart signs nobody out. Programs that start at the same time agree on one set: the file appears whole or
 * not at all.
 *
 * @param makers name → how to make the secret when the file does not have it yet
 * @returns every secret in the file
 */
export function loadDevelopmentSecrets(
  file: string,
  makers: Record<string, () => string>,
  random: Random,
): Record<string, string> {
  const kept = readKept(file);
  const missing = Object.entries(makers).filter(([name]) => kept?.[name] === undefined);
  if (kept && missing.length === 0) return kept;

  const complete = { ...kept, ...Object.fromEntries(missing.map(([name, make]) => [name, make()])) };
  const draft = `${file}.${random.bytes(6).toString('hex')}`;
  createDraft(draft, `${JSON.stringify(complete, null, 2)}\n`);
  try {
    // A link fails where a file stands by now: then another program was first, and its secrets hold.
    if (kept) renameSync(draft, file);
    else linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return loadDevelopmentSecrets(file, makers, random);
}

/** Why {@link loadDevelopmentSecrets} would fail with a file and these secrets; `null`: it would not. Nothing remains of the trial. */
export function developmentSecretsProblem(file: string, names: readonly string[]): string | null {
  try {
    const kept = readKept(file);
    if (names.some((name) => kept?.[name] === undefined)) tryCreation(file, createDraft);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

function createDraft(draft: string, text = ''): void {
  createDevelopmentFolder(dirname(draft));
  writeFileSync(draft, text, { mode: 0o600, flag: 'wx' });
}

/** Makes a folder for what belongs to one machine and not to a repository. */
export function createDevelopmentFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, '.gitignore'), '*\n');
}

function readKept(file: string): Record<string, string> | null {
  if (!existsSync(file)) return null;
  try {
    const kept: unknown = JSON.parse(readFileSync(file, 'utf8'));
    const isSet = typeof kept === 'object' && kept !== null && !Array.isArray(kept);
    if (isSet && Object.values(kept).every((secret) => typeof secret === 'string')) return { ...kept };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Error(`${file} does not contain valid development secrets. Repair or delete it.`);
}
