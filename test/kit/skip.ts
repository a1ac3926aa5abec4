import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import t from 'tap';

/** A file for each thing that is missing; `test/reporter.mjs` prints them after `npm test`. */
const FOLDER = new URL('../../skipped/', import.meta.url);

export interface Missing {
  /** Names the file. */
  name: string;
  /** What the tests would have been of. */
  subject: string;
  /** What is missing, with its article: `a mongod`. */
  want: string;
  /** One sentence: how to change that. */
  remedy: string;
}

/**
 * Runs tests with what an ordinary machine may lack, such as a database or a browser. Where it does not start they are
 * skipped, and that is told; with CI=true they fail.
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
    const told = reason.message.split(/[,\n]/)[0];
    writeFileSync(file, `${subject} was not tested, for want of ${want}: ${told}\n${remedy}\n`);
    t.test(subject, { skip: `there is no ${want.replace(/^an? /, '')}` }, async () => {});
    return null;
  });
  if (started !== null) tests(started);
}
