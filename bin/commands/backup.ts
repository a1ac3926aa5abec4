import { statSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { ConfigurationError } from '../../src/core/config/configuration-error.js';
import { backup } from '../../src/core/server/backup.js';
import type { CommandLine, CommonOptions } from '../command.js';
import type { Program } from '../program.js';
import { createProgress } from '../progress.js';
import { complain, fail, say, sentences } from '../terminal.js';

export function define(command: CommandLine, program: Program): void {
  command
    .description('Copy the store into a new file. The server may be running.')
    .argument('<file>', 'File to create')
    .examples(
      `${program.name} backup "/backups/$(date +%F).db"`,
      `${program.name} backup /backups/now.db --json`,
    )
    .action((file: string, options: CommonOptions) => writeBackup(program, file, options));
}

async function writeBackup(
  { name, storeVariable }: Program,
  file: string,
  { json }: CommonOptions,
): Promise<void> {
  const since = performance.now();
  const progress = createProgress({ name: 'MiB', write: mebibytes });
  try {
    await backup(name, file, { onProgress: progress.show, onWarning: complain });
  } catch (error) {
    if (error instanceof ConfigurationError) throw error;
    fail(1, `${name} cannot back up the store that ${storeVariable} names: ${sentences(error as Error)}`);
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
