import { lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/**
 * Creates a file beside the place where it will be, as it will be created, and removes it: the only way to know whether
 * it can be. A program that starts meanwhile finds nothing of it.
 *
 * @param create makes the file of this name, and the folders above it
 * @throws what `create` throws
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

/** The folder, or the nearest one above it that is there, if only as a link to nowhere. */
function nearestFolder(folder: string): string {
  const isThere = lstatSync(folder, { throwIfNoEntry: false }) !== undefined;
  return isThere || dirname(folder) === folder ? folder : nearestFolder(dirname(folder));
}
