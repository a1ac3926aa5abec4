import { statSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { ConfigurationError } from '../../src/config/configuration-error.js';
import { backup } from '../../src/server/backup.js';
import type { Call, Command } from '../command.js';
import { createProgress } from '../progress.js';
import { fail, say, sentences } from '../terminal.js';

const backupCommand: Command = {
  name: 'backup',
  takes: ['<file>'],
  summary: 'copies the store into a new file, also while the program runs',
  examples: ['backup /backups/$(date +%F).db', 'backup /backups/now.db --json'],
  run: writeBackup,
};

export const commands = [backupCommand];

async function writeBackup({
  program: { name, storeVariable },
  args: [file = ''],
  json,
}: Call): Promise<void> {
  const since = performance.now();
  const progress = createProgress({ name: 'MiB', write: mebibytes });
  try {
    await backup(name, file, (written, source) => progress.show(written, source));
  } catch (error) {
    if (error instanceof ConfigurationError) throw error;
    fail(1, `${name} cannot back up what ${storeVariable} names: ${sentences(error as Error)}`);
  } finally {
    progress.end();
  }
  const milliseconds = Math.round(performance.now() - since);
  const bytes = statSync(file).size;
  say(
    json
      ? JSON.stringify({ file, bytes, milliseconds })
      : `${file}: ${mebibytes(bytes)} MiB in ${(milliseconds / 1000).toFixed(1)} s`,
  );
}

function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1);
}
