/** Another process that removes expired documents: `node purge-worker.js <uri of the store>`. */

import { openStore } from '../../../src/core/storage/open.js';
import { createPurges } from '../../../src/idp/oidc/purge.js';
import { consentCollection, grantCollection, sessionCollection } from '../../../src/idp/oidc/store.js';

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
