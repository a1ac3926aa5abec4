import { writeSync } from 'node:fs';
import { hostname } from 'node:os';
import { packageVersion } from '../kernel/package-files.js';
import type { Product } from '../ops/health.js';

/** What each line of the log of a program contains. */
export const logIdentity = (program: Product) => ({
  pid: process.pid,
  hostname: hostname(),
  program,
  version: packageVersion(),
});

/** Writes as many of the `bytes` as possible and returns their number. */
export type Write = (bytes: Buffer) => number;

/** Attempts to write to a full pipe. */
const MAX_ATTEMPTS = 50;
const RETRY_DELAY_MS = 10;

const sleepBuffer = new Int32Array(new SharedArrayBuffer(4));

/**
 * Writes the log to stdout, line by line. Lines that cannot be written are dropped and counted: pino's own stream would
 * block all requests while the disk is full.
 */
export function createLogStream(write: Write = (bytes) => writeSync(1, bytes)) {
  let lost = 0;
  let isLineIncomplete = false;

  const writeAll = (text: string): void => {
    let rest = Buffer.from(text);
    for (let attempts = 1; rest.length > 0; ) {
      try {
        const written = write(rest);
        isLineIncomplete = written < rest.length;
        rest = rest.subarray(written);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN' || ++attempts > MAX_ATTEMPTS) throw error;
        Atomics.wait(sleepBuffer, 0, 0, RETRY_DELAY_MS);
      }
    }
  };

  return {
    write(line: string) {
      try {
        if (isLineIncomplete) writeAll('\n');
        if (lost > 0) writeAll(lossOf(lost));
        lost = 0;
        writeAll(line);
      } catch {
        // Reported with the next line that can be written.
        lost++;
      }
    },
  };
}

function lossOf(lost: number): string {
  return `${JSON.stringify({ level: 40, lost, msg: 'log lines could not be written and were lost' })}\n`;
}
