/** Works with a delegation or a pushed request, in a process that kills itself (-9) at one of its calls to the store. */
import { createPushedAuthorization } from '../../src/oidc/authorize/pushed.js';
import { pushedRequestCollection } from '../../src/oidc/store.js';
import { openStore } from '../../src/storage/open.js';
import { fakeClock } from '../kit/clock.js';
import { killedAt } from '../kit/killed-at.js';
import { countedRandom } from '../kit/random.js';
import { IP, idOf, PERMISSION, PERSON, processOn } from './explored-delegations.js';

const [uri, step, moment, work, requestUri] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  string,
];
const store = await openStore(uri);
const [delegation] = await idOf(store);
const killed = killedAt(store, Number(step), moment);
const { exchange, delegations } = processOn(killed, 'worker');
const works: Record<string, () => Promise<unknown>> = {
  exchange: () => exchange(),
  end: () => delegations.endOwn(PERSON, delegation?.id ?? '', { ip: IP }),
  give: () => delegations.give(PERMISSION, IP),
  take: () =>
    createPushedAuthorization(pushedRequestCollection(killed), {
      ...{ clock: fakeClock(), random: countedRandom() },
    }).take('cid_1', requestUri),
};
await works[work]?.();
await store.close();
