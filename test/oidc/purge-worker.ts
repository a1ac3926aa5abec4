/** Another process that removes expired documents: `node purge-worker.js <uri of the store>`. */
import { createPurges } from '../../src/oidc/purge.js';
import { consentCollection, grantCollection, sessionCollection } from '../../src/oidc/store.js';
import { openStore } from '../../src/storage/open.js';

const store = await openStore(process.argv[2] ?? '');
const { 'grant-purge': purge } = createPurges({
  grants: grantCollection(store),
  sessions: sessionCollection(store),
  consents: consentCollection(store),
  directory: { findClient: async () => null, isDeleted: async () => true },
  clock: { now: () => Date.now() },
});
await store.ready();
console.log('begins');
await purge?.run({ term: 1, signal: new AbortController().signal });
await store.close();
