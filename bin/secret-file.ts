import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { systemRandom } from '../src/core/kernel/secrets.js';
import { withoutByteOrderMark } from '../src/core/kernel/text.js';
import { fail } from './terminal.js';

/** Files that contain tokens. */

/** Writes atomically; no other user can read the file at any time. */
export function writeSecretFile(file: string, text: string): void {
  const draft = `${file}.${systemRandom.bytes(6).toString('hex')}`;
  writeFileSync(draft, `${text}\n`, { mode: 0o600, flag: 'wx' });
  renameSync(draft, file);
}

/** The content without the line break at its end; the command fails if it cannot be read. */
export function readSecretFile(program: string, file: string): string {
  try {
    return withoutByteOrderMark(readFileSync(file, 'utf8')).trimEnd();
  } catch (error) {
    return fail(1, `${program}: ${file} cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}
