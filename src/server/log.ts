import { writeSync } from 'node:fs';

/** Where the log goes. */
export interface LogStream {
  write(line: string): void;
}

/** Writes what it can of `bytes` and answers how many that were. */
export type Write = (bytes: Buffer) => number;

/** How often a pipe whose reader is behind is tried again, and after how many milliseconds. */
const TRIES = 50;
const PAUSE = 10;

const pause = new Int32Array(new SharedArrayBuffer(4));

/**
 * The log on stdout, line by line. What cannot be written is lost and counted, and nothing else happens: where the
 * disk of the log is full, the stream that pino brings along tries until there is room, and all requests with it.
 */
export function createLogStream(write: Write = (bytes) => writeSync(1, bytes)): LogStream {
  let lost = 0;
  let isTorn = false;

  const writeAll = (text: string): void => {
    let rest = Buffer.from(text);
    for (let tries = 1; rest.length > 0; ) {
      try {
        const written = write(rest);
        isTorn = written < rest.length;
        rest = rest.subarray(written);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EAGAIN' || ++tries > TRIES) throw error;
        Atomics.wait(pause, 0, 0, PAUSE);
      }
    }
  };

  return {
    write(line) {
      try {
        // A line that broke off ends before the next one.
        if (isTorn) writeAll('\n');
        if (lost > 0) writeAll(lossOf(lost));
        lost = 0;
        writeAll(line);
      } catch {
        // Told as soon as something can be told.
        lost++;
      }
    },
  };
}

function lossOf(lost: number): string {
  return `${JSON.stringify({ level: 40, lost, msg: 'log lines could not be written and were lost' })}\n`;
}
