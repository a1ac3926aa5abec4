import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import t from 'tap';

/** One file per missing dependency; `test/reporter.mjs` prints them after `npm test`. */
const FOLDER = new URL('../../skipped/', import.meta.url);

export interface Missing {
  /** Names the file. */
  name: string;
  /** The subject of the skipped tests. */
  subject: string;
  /** The missing dependency, with its article: `a mongod`. */
  want: string;
  /** One sentence: how to install it. */
  remedy: string;
}

/**
 * Runs tests that require something optional, such as a database or a browser. If it does not start they are
 * skipped, which is reported; with CI=true they fail.
 */
export async function withOrSkip<T>(
  { name, subject, want, remedy }: Missing,
  start: () => Promise<T>,
  tests: (started: T) => void,
): Promise<void> {
  const file = new URL(`${name}.txt`, FOLDER);
  rmSync(file, { force: true });
  const started = await start().catch((reason: Error) => {
    if (process.env['CI'] === 'true') throw reason;
    mkdirSync(FOLDER, { recursive: true });
    const message = reason.message.split(/[,\n]/)[0];
    writeFileSync(file, `${subject} was not tested, for want of ${want}: ${message}\n${remedy}\n`);
    t.test(subject, { skip: `there is no ${want.replace(/^an? /, '')}` }, async () => {});
    return null;
  });
  if (started !== null) tests(started);
}
