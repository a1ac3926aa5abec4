import { statSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import { backup } from '../src/backup.js';

/** Writes a backup and answers with what is to be said of it. */
export async function writeBackup(
  program: Parameters<typeof backup>[0],
  file: string,
  json: boolean,
): Promise<string> {
  const since = performance.now();
  const showProgress = (written: number, source: number) => {
    process.stderr.write(`\r${mebibytes(written)} of about ${mebibytes(source)} MiB `);
  };
  const isWatched = process.stderr.isTTY && !json;
  try {
    await backup(program, file, isWatched ? showProgress : undefined);
  } finally {
    if (isWatched) process.stderr.write('\r\x1b[K');
  }
  const milliseconds = Math.round(performance.now() - since);
  const bytes = statSync(file).size;
  return json
    ? JSON.stringify({ file, bytes, milliseconds })
    : `${file}: ${mebibytes(bytes)} MiB in ${(milliseconds / 1000).toFixed(1)} s`;
}

function mebibytes(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(1);
}
