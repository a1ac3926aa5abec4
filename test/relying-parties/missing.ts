import { mkdirSync, rmSync, writeFileSync } from 'node:fs';

/**
 * What a test needs and this machine may not have. Where it cannot be had the test is skipped, and the last lines of
 * `npm test` say so; with CI=true it fails.
 *
 * @param name of the file that those lines are kept in
 * @param sentence what was not tested, and what to do about it
 */
export async function unlessMissing<T>(
  name: string,
  sentence: string,
  find: () => Promise<T>,
): Promise<T | null> {
  const file = new URL(`../../skipped/${name}.txt`, import.meta.url);
  rmSync(file, { force: true });
  try {
    return await find();
  } catch (error) {
    if (process.env['CI'] === 'true') throw error;
    mkdirSync(new URL('.', file), { recursive: true });
    writeFileSync(file, `${sentence}\n`);
    return null;
  }
}
