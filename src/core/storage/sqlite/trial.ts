import { lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/**
 * Checks whether a file can be created, by creating it in a temporary folder beside its place and deleting it.
 *
 * @param create creates the file of this name and its parent folders
 * @throws the error of `create`
 */
export function tryCreation(file: string, create: (file: string) => void): void {
  const folder = nearestFolder(dirname(file));
  const trial = mkdtempSync(join(folder, '.doctor-'));
  try {
    create(join(trial, relative(folder, file)));
  } finally {
    rmSync(trial, { recursive: true, force: true });
  }
}

/** The nearest existing ancestor of a folder, or the folder itself. A broken link counts as existing. */
function nearestFolder(folder: string): string {
  const isThere = lstatSync(folder, { throwIfNoEntry: false }) !== undefined;
  return isThere || dirname(folder) === folder ? folder : nearestFolder(dirname(folder));
}
