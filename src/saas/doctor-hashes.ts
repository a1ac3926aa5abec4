import { countForeignHashes } from '../auth/foreign-hashes.js';
import { userCollection } from '../auth/store.js';
import { systemRandom } from '../kernel/secrets.js';
import { createPasswords } from '../passwords/hasher.js';
import type { Finding } from '../server/doctor.js';
import { holdsCollection } from '../storage/inspect.js';
import { openStore } from '../storage/open.js';

/** How many accounts of a store that is known to open still have a password hash of another system. */
export async function examineHashes(databaseUri: string): Promise<Finding[]> {
  if (!(await holdsCollection(databaseUri, 'users'))) return [];
  const store = await openStore(databaseUri);
  try {
    const counts = await countForeignHashes(userCollection(store), createPasswords(systemRandom));
    if (counts.size === 0) return [];
    const kinds = [...counts]
      .sort(([a], [b]) => a.localeCompare(b))
      .map(([family, count]) => `${family}: ${count}`);
    return [
      {
        level: 'warning',
        about: 'imported passwords',
        message: `still have foreign hashes (${kinds.join('; ')}); until they are replaced, every failed login does the work of all of these kinds`,
        remedy:
          'A login replaces the hash. Ask owners who have not signed in since the import to do so, or to choose a new password.',
      },
    ];
  } finally {
    await store.close();
  }
}
