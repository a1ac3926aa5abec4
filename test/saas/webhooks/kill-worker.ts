/** Does one of the works in a process that kills itself (-9) at one of its calls to the store. */
import { openStore } from '../../../src/core/storage/open.js';
import { killedAt } from '../../kit/killed-at.js';
import { accountsOn, WORKS } from './killed-works.js';

const [uri, step, moment, name] = process.argv.slice(2) as [string, string, string, string];
const work = WORKS[name];
if (!work) throw new Error(`There is no work '${name}'.`);
// The declared collections are ready before the first call that counts.
const store = await openStore(uri);
const accounts = await accountsOn(killedAt(store, Number(step), moment));
await work.run(accounts);
await store.close();
console.log('not killed');
process.exitCode = 2;

// Twenty lines are the least that a file has: the process ends with 2 if it made fewer calls than `step`.
