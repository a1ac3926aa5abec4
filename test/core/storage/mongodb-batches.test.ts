/** Calls of some turns of the event loop that share a command to MongoDB. */
import { EventEmitter, once } from 'node:events';
import { setImmediate as endOfTurn } from 'node:timers/promises';
import type { mongodb } from '@fastify/mongodb';
import t, { type Test } from 'tap';
import { CallBatcher } from '../../../src/core/storage/call-batcher.js';
import { type Collection, StoreUnavailable, UniqueViolation } from '../../../src/core/storage/collection.js';
import type { Call, MongoCollection } from '../../../src/core/storage/mongodb/connection.js';
import { createInserts } from '../../../src/core/storage/mongodb/inserts.js';
import { toStages } from '../../../src/core/storage/mongodb/query.js';
import { createUpdates } from '../../../src/core/storage/mongodb/updates.js';
import { openStore } from '../../../src/core/storage/open.js';
import { RequestBudget } from '../../../src/core/storage/request-budget.js';
import { type Thing, thing, things } from './kit.js';
import { type Mongod, onMongod } from './mongod.js';

await onMongod((server) => {
  t.test('look-ups of one turn share a query', async (t) => {
    const { all, store, client, commands } = await observed(t, server);
    const ids = Array.from({ length: 50 }, (_, index) => String(index));
    await Promise.all(ids.map((id) => all.insert(thing(id))));

    commands.length = 0;
    const wanted = [...ids, ...ids, 'missing'];
    const found = await Promise.all(wanted.map((id) => all.findOne({ id })));
    t.strictSame(
      found.map((one) => one?.id ?? null),
      [...ids, ...ids, null],
    );
    t.not(found[0], found[50], 'each caller gets an object of its own');
    const emails = ['9', '1', 'missing', '1'].map((name) => `${name}@example.com`);
    const owners = await Promise.all(emails.map((email) => all.findOne({ email })));
    t.strictSame(
      owners.map((one) => one?.id),
      ['9', '1', undefined, '1'],
    );
    t.strictSame(commands.splice(0), ['find', 'find'], 'by a unique field, too');

    await Promise.all(Array.from({ length: 100 }, (_, index) => all.findOne({ id: String(index) })));
    t.strictSame(commands, ['find', 'find'], 'at most 64 ids each');

    const early = all.findOne({ id: '1' });
    await once(client, 'commandStarted');
    t.equal((await all.findOne({ id: '2' }))?.id, '2', 'a call after the query was sent gets one of its own');
    await early;

    await store.close();
    await t.rejects(all.findOne({ id: '1' }), StoreUnavailable);
    await t.rejects(all.findOne({ id: '1' }), StoreUnavailable, 'each time');
  });

  t.test('inserts, and changes by ID, of one turn share a command', async (t) => {
    const { all, commands } = await observed(t, server);
    const ids = Array.from({ length: 100 }, (_, index) => String(index));
    await Promise.all(ids.map((id) => all.insert(thing(id, { free: { id } }))));
    t.strictSame(commands.splice(0), ['insert', 'insert'], 'at most 64 documents each');
    t.strictSame((await all.findOne({ id: '70' }))?.free, { id: '70' });

    commands.length = 0;
    const change = { set: { group: 'a' }, inc: { count: 1 } };
    const changed = await Promise.all(ids.map((id) => all.changeOne({ id, group: null }, change)));
    t.ok(changed.every((isChanged) => isChanged));
    t.strictSame(commands, ['update', 'update'], 'at most 64 each');

    commands.length = 0;
    const again = { set: { group: 'b' } };
    const unmatched = await Promise.all(ids.map((id) => all.changeOne({ id, group: null }, again)));
    t.notOk(unmatched.some((isChanged) => isChanged));
    t.strictSame(commands, ['update', 'update'], 'also those that match nothing');
    t.equal(await all.count({ group: 'a' }), 100);
  });

  t.test('a rejected insert does not affect those that share its command', async (t) => {
    const { all } = await observed(t, server);
    await all.insert(thing('old'));
    const inserts = [
      thing('first'),
      thing('old', { email: 'new@example.com' }),
      thing('second', { email: 'old@example.com' }),
      thing('twin'),
      thing('twin', { email: 'other@example.com' }),
      thing('last'),
    ];
    const results = await Promise.allSettled(inserts.map((one) => all.insert(one)));
    const fields = results.map((result) =>
      result.status === 'rejected' ? violatedField(result.reason) : '',
    );
    t.strictSame(fields, ['', 'id', 'email', '', 'id', '']);
    const { items } = await all.page({ sort: 'id', limit: 10 });
    t.strictSame(
      items.map(({ id }) => id),
      ['first', 'last', 'old', 'twin'],
    );
    t.equal((await all.findOne({ id: 'old' }))?.email, 'old@example.com');
  });

  t.test(
    'commits that only insert share a transaction, and a refused one does not affect the others',
    async (t) => {
      const { all, store, commands } = await observed(t, server);
      const others = store.collection<{ id: string }>('others');
      const inserting = (id: string) => store.commit([all.inserting(thing(id)), others.inserting({ id })]);
      await all.insert(thing('old'));
      await others.insert({ id: 'first' });

      commands.length = 0;
      const ids = Array.from({ length: 50 }, (_, index) => String(index));
      const outcomes = await Promise.all(ids.map(inserting));
      t.ok(outcomes.every(({ committed }) => committed));
      t.strictSame(commands, ['insert', 'insert', 'commitTransaction']);
      t.equal(await others.count(), 51);

      const results = await Promise.allSettled(['new', 'old', 'twin', 'twin', 'last'].map(inserting));
      const fields = results.map((result) =>
        result.status === 'rejected' ? violatedField(result.reason) : '',
      );
      t.equal(fields[1], 'id');
      t.strictSame(fields.toSorted(), ['', '', '', 'id', 'id'], 'and one of the twins');
      t.equal(await others.findOne({ id: 'old' }), null);
      t.equal(await others.count(), 54);
    },
  );
});

t.test('a batch waits for more calls only as long as it expects them', (t) => {
  let now = 0;
  const batcher = new CallBatcher(() => now, 64);
  t.ok(batcher.shouldSend(1), 'a single call is sent at the end of its turn');
  t.notOk(batcher.shouldSend(10), 'further calls may be on their way');
  t.ok(batcher.shouldSend(10), 'the last turn has added none');
  t.notOk(batcher.shouldSend(1), 'less than half of the previous batch');
  t.ok(batcher.shouldSend(64), 'as many as one command takes');
  t.notOk(batcher.shouldSend(1));
  now += 5;
  t.ok(batcher.shouldSend(2), 'five milliseconds at most');
  batcher.shouldSend(64);
  const turns = Array.from({ length: 17 }, () => batcher.shouldSend(1));
  t.equal(turns.indexOf(true), 16, 'sixteen turns at most');
  t.end();
});

t.test('without the write concern, no write of a command is acknowledged', async (t) => {
  const error = Object.assign(new Error('waiting for replication timed out'), {
    writeErrors: [{ index: 1 }],
    result: { getWriteConcernError: () => ({ code: 64 }) },
  });
  const collection = { bulkWrite: () => Promise.reject(error) };
  const call: Call = (step) => step(collection as unknown as MongoCollection);
  const insert = createInserts(call);
  const update = createUpdates(call);
  const change = toStages<Thing>({ id: 'a' }, { set: { group: 'a' } }, []);
  const results = await Promise.allSettled([
    insert({ _id: 'a' }),
    insert({ _id: 'b' }),
    update({ filter: { _id: 'a' }, update: change }),
    update({ filter: { _id: 'b' }, update: change }),
  ]);
  t.strictSame(
    results.map((result) => (result.status === 'rejected' ? result.reason : undefined)),
    [error, error, error, error],
  );
});

t.test('a rejected insert is not repeated for a request whose time has ended', async (t) => {
  const duplicate = Object.assign(new Error('duplicate key'), { writeErrors: [{ index: 1, code: 11000 }] });
  let repeated = 0;
  const commands = new EventEmitter();
  const collection = {
    bulkWrite: async () => {
      commands.emit('sent');
      await once(commands, 'respond');
      throw duplicate;
    },
    insertOne: async () => {
      repeated++;
      throw duplicate;
    },
  };
  const insert = createInserts((step) => step(collection as unknown as MongoCollection));
  const other = insert({ _id: 'a' });
  const ended = new RequestBudget(1).run(() => insert({ _id: 'b' }));
  await Promise.all([once(commands, 'sent'), t.rejects(ended, StoreUnavailable)]);
  commands.emit('respond');
  await other;
  await endOfTurn();
  t.equal(repeated, 0);
});

t.test('a server that counts updates otherwise leaves their outcome unknown', async (t) => {
  const collection = { bulkWrite: async () => ({ matchedCount: 1, upsertedCount: 1 }) };
  const update = createUpdates((step) => step(collection as unknown as MongoCollection));
  const results = await Promise.allSettled(
    ['a', 'b'].map((_id) =>
      update({ filter: { _id }, update: toStages<Thing>({ id: _id }, { set: { group: 'a' } }, []) }),
    ),
  );
  for (const result of results) {
    t.match(result, { reason: { name: 'StoreUnavailable', mayHaveTakenEffect: true } });
  }
});

/** An empty store, whose commands from now on are recorded. */
async function observed(t: Test, server: Mongod) {
  const uri = server.fresh(t);
  const client: mongodb.MongoClient = server.client(t, { monitorCommands: true });
  const store = await openStore({
    mongo: { client, db: client.db(new URL(uri).pathname.slice(1)) },
    prefix: 'ours_',
  });
  t.teardown(() => store.close());
  const all: Collection<Thing> = things(store);
  await store.ready();
  const commands: string[] = [];
  client.on('commandStarted', ({ commandName }) => commands.push(commandName));
  return { all, store, client, commands };
}

function violatedField(error: unknown): string {
  return error instanceof UniqueViolation ? error.field : String(error);
}
