// The last lines of `npm test`: what was not tested, and how to change that.
import { readdirSync, readFileSync } from 'node:fs';

const folder = new URL('../../dist/skipped/', import.meta.url);
try {
  for (const name of readdirSync(folder))
    process.stdout.write(`\n${readFileSync(new URL(name, folder), 'utf8')}`);
} catch (error) {
  if (error.code !== 'ENOENT') throw error;
}
