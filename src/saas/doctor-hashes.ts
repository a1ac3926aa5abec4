import { countForeignHashes } from '../auth/foreign-hashes.js';
import type { Users } from '../auth/store.js';
import { systemRandom } from '../kernel/secrets.js';
import { createPasswords } from '../passwords/hasher.js';
import type { Finding } from '../server/doctor.js';
import { readCollection } from '../storage/inspect.js';

/** How many accounts of a store that is known to open still have a password hash of another system. */
export async function examineHashes(databaseUri: string): Promise<Finding[]> {
  const passwords = createPasswords(systemRandom);
  const counts = await readCollection(databaseUri, 'users', (users: Pick<Users, 'page'>) =>
    countForeignHashes(users, passwords),
  );
  if (counts === null || counts.size === 0) return [];
  const kinds = [...counts]
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([family, count]) => `${family}: ${count}`);
  return [
    {
      level: 'warning',
      about: 'imported passwords',
      message: `still have imported hashes (${kinds.join('; ')}); until they are replaced, every failed login takes as long as all of these algorithms together`,
      remedy:
        'A login replaces the hash. Ask owners who have not signed in since the import to do so, or to choose a new password.',
    },
  ];
}
