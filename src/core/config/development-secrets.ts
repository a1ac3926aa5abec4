import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Random } from '../kernel/secrets.js';
import { tryCreation } from '../storage/sqlite/trial.js';

/**
 * Loads the development secrets from a file and generates missing ones, so that sessions survive a restart. The file is
 * written atomically, so that programs that start at the same time use the same secrets.
 *
 * @param generators name → function that generates the secret if the file does not contain it
 * @returns every secret in the file
 */
export function loadDevelopmentSecrets(
  file: string,
  generators: Record<string, () => string>,
  random: Random,
): Record<string, string> {
  const existing = readSecrets(file);
  const missing = Object.entries(generators).filter(([name]) => existing?.[name] === undefined);
  if (existing && missing.length === 0) return existing;

  const complete = {
    ...existing,
    ...Object.fromEntries(missing.map(([name, generate]) => [name, generate()])),
  };
  const draft = `${file}.${random.bytes(6).toString('hex')}`;
  createDraft(draft, `${JSON.stringify(complete, null, 2)}\n`);
  try {
    // Unlike a rename, a link fails if another program has created the file concurrently; then its secrets are used.
    if (existing) renameSync(draft, file);
    else linkSync(draft, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  return loadDevelopmentSecrets(file, generators, random);
}

/** Describes why {@link loadDevelopmentSecrets} would fail; `null` if it would not. Changes nothing. */
export function developmentSecretsProblem(file: string, names: readonly string[]): string | null {
  try {
    const existing = readSecrets(file);
    if (names.some((name) => existing?.[name] === undefined)) tryCreation(file, createDraft);
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}

function createDraft(draft: string, text = ''): void {
  createDevelopmentFolder(dirname(draft));
  writeFileSync(draft, text, { mode: 0o600, flag: 'wx' });
}

/** Creates a folder that Git ignores. */
export function createDevelopmentFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, '.gitignore'), '*\n');
}

function readSecrets(file: string): Record<string, string> | null {
  if (!existsSync(file)) return null;
  try {
    const content: unknown = JSON.parse(readFileSync(file, 'utf8'));
    const isObject = typeof content === 'object' && content !== null && !Array.isArray(content);
    if (isObject && Object.values(content).every((secret) => typeof secret === 'string'))
      return { ...content };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Error(`${file} does not contain valid development secrets. Repair or delete it.`);
}
