/** The storage layer alone. `port-work.js <folder> <documents>…`; tasks get the number of documents as argument. */
import { join } from 'node:path';
import type { Collection, Store } from '../src/core/storage/collection.js';
import { openStore } from '../src/core/storage/open.js';
import { work } from './work.js';

/** Similar to a principal. */
interface Thing {
  id: string;
  handle: string;
  state: string;
  secretHash: string;
  createdAt: number;
  touchedAt: number;
}

const CALLERS = 64;
const [folder = '', ...sizes] = process.argv.slice(2);
const opened = new Map<number, Collection<Thing>>();
let inserted = 0;

const thing = (number: number): Thing => ({
  id: `thing_${number.toString().padStart(20, '0')}`,
  handle: `handle-${number}@agents.example`,
  state: 'active',
  secretHash: 'b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9',
  createdAt: number,
  touchedAt: number,
});

async function build(size: number): Promise<void> {
  const store: Store = await openStore(`sqlite:${join(folder, `${size}.db`)}`);
  const things = store.collection<Thing>('things', {
    unique: ['handle'],
    indexes: [['createdAt']],
    fields: ['state'],
    numbers: ['createdAt'],
  });
  const batch = Math.min(size, 5000);
  for (let from = 0; from < size; from += batch) {
    await Promise.all(Array.from({ length: batch }, (_, index) => things.insert(thing(from + index))));
    if (process.stderr.isTTY && size > batch) {
      process.stderr.write(`\r\x1b[Kport: ${from + batch} of ${size} documents`);
    }
  }
  opened.set(size, things);
}

const at = (size: number) => opened.get(size) as Collection<Thing>;
const any = (size: number) => thing(Math.floor(Math.random() * size));

async function expectOne(found: Promise<unknown>): Promise<void> {
  if ((await found) === null) throw new Error('a document is missing');
}

work(
  {
    build: () => Promise.all(sizes.map(Number).map(build)),
    insert: (size) => at(size).insert(thing(1e9 + inserted++)),
    update: (size) => {
      const { id } = any(size);
      return expectOne(at(size).updateOne({ id, state: 'active' }, { set: { touchedAt: Date.now() } }));
    },
    lookup: (size) => expectOne(at(size).findOne({ handle: any(size).handle })),
  },
  { insert: CALLERS, update: CALLERS, lookup: CALLERS },
);
