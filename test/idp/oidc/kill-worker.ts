/** Does one of the works in a process that kills itself (-9) at one of its calls to the store. */
import { openStore } from '../../../src/core/storage/open.js';
import { killedAt } from '../../kit/killed-at.js';
import { WORKS } from './killed-works.js';

const [uri, step, moment, name, token] = process.argv.slice(2) as [string, string, string, string, string];
const store = await openStore(uri);
await WORKS[name as keyof typeof WORKS].run(killedAt(store, Number(step), moment), token);
await store.close();
