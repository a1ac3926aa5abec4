/** Changes or uses a passkey in a process that kills itself (-9) at one of its calls to the store, given by its arguments. */
import { openStore } from '../../../src/core/storage/open.js';
import { killedAt } from '../../kit/killed-at.js';
import { serviceOn } from '../../saas/auth/explored-service.js';
import { FROM, reportingService } from './kit.js';

export interface Work {
  uri: string;
  action: 'add' | 'remove' | 'sign-in' | 'sign-up';
  account: string;
  /** Of the passkey. */
  id: string;
  form: string;
  credential: string;
  step: number;
  moment: string;
}

const { uri, action, account, id, form, credential, step, moment } = JSON.parse(
  process.argv[2] ?? '{}',
) as Work;
const store = await openStore(uri);
const wrapped = killedAt(store, step, moment);
const service = reportingService(wrapped);
const created = { form, credential, name: 'Laptop' };
const { passkey } = serviceOn(wrapped, `${action}${moment}${step}`);
await store.ready();
if (action === 'add') await service.add(account, created, FROM);
else if (action === 'remove') await service.remove(account, id, FROM, { keepsOne: true });
else if (action === 'sign-in') await service.verify({ form, credential }, async (found) => found, FROM);
else {
  const given = { id: account, email: `${account}@example.test`, locale: undefined };
  const stored = {
    add: async () => void (await service.add(account, created, FROM)),
    remove: () => service.forget(account),
  };
  await passkey.register(given, stored, FROM);
}
await store.close();
