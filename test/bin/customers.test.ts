import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { runProgram } from '../kit/command-line.js';
import { compiled } from '../kit/process.js';
import { stripeApi } from '../kit/stripe.js';
import { World } from '../kit/stripe-simulator.js';
import { temporaryFolder } from '../kit/tmp.js';

/** The guides that bring customers of Stripe, with sample data of the systems that they come from. */

const guide = (name: string) => readFileSync(join(compiled('.'), '../docs', name), 'utf8');

/** An account of Stripe with an active subscription for each customer, and a folder with a store. */
async function seller(t: Test, customers: Record<string, object>) {
  const world = new World(1, Math.floor(Date.now() / 1000));
  const api = await stripeApi(world);
  t.teardown(() => api.close());
  for (const [id, more] of Object.entries(customers)) {
    api.customers.set(id, { id, object: 'customer', metadata: {}, ...more });
    Object.assign(world.subscribe(id, '', false), { status: 'active', price: 'price_pro', trialEnd: null });
  }
  const cwd = temporaryFolder(t);
  const env = { DATABASE_URI: 'sqlite:app.db', PAYMENT_SECRET_KEY: 'sk_test_1', PAYMENT_API_URL: api.url };
  const command = async (args: string[], stdin = '') => runProgram('saas-backend', args, env, { cwd, stdin });
  const planOf = async (email: string) =>
    (await command(['user', 'show', email, '--json'])).json.subscription.plan;
  return { cwd, command, planOf };
}

t.test('from Better Auth with its plugin for Stripe', async (t) => {
  const { cwd, command, planOf } = await seller(t, { cus_Ada: {}, cus_Bob: {} });
  const db = await openDatabase(join(cwd, 'better-auth.db'));
  // As the migration of the plugin leaves the tables.
  db.exec(`
    create table "user" ("id" text not null primary key, "name" text not null, "email" text not null unique,
      "emailVerified" integer not null, "image" text, "createdAt" date not null, "updatedAt" date not null,
      "stripeCustomerId" text);
    create table "account" ("id" text not null primary key, "accountId" text not null, "providerId" text not null,
      "userId" text not null references "user" ("id"), "accessToken" text, "password" text,
      "createdAt" date not null, "updatedAt" date not null);
    insert into "user" values ('a', 'Ada', 'ada@example.test', 1, null, '2024-05-06T07:08:09.123Z', '2024-05-06', 'cus_Ada');
    insert into "user" values ('b', 'Bob', 'bob@example.test', 0, null, '2024-05-07T07:08:09.123Z', '2024-05-06', null);
  `);
  const page = guide('saas/migrate-better-auth.md');
  const [, sql = ''] = /(select json_object[\s\S]*?)\n *SQL\n/.exec(page) ?? [];
  const [, line = ''] = /SQLite `('customerId', [^`]*)`/.exec(page) ?? [];
  t.match(line, /stripeCustomerId/);
  const rows = db.prepare(sql.replace("'name', u.name,", `'name', u.name, ${line}`)).all();
  db.close();
  const lines = rows.map((row) => Object.values(row as object)[0]).join('\n');
  t.match(await command(['user', 'import', '-', '--dry-run'], lines), {
    code: 0,
    out: /2 would be new, 0 .* 0 refused/,
  });
  t.match(await command(['user', 'import', '-'], lines), {
    code: 0,
    out: /2 new, 0 already there, 0 refused/,
  });
  t.match(await command(['user', 'import', '-'], lines), {
    code: 0,
    out: /0 new, 2 already there, 0 refused/,
  });
  const taken = '{"email":"eve@example.test","customerId":"cus_Ada"}';
  for (const args of [['--dry-run'], []])
    t.match(await command(['user', 'import', '-', ...args], taken), {
      code: 1,
      err: 'line 1: customerId belongs to another account\n',
    });
  t.equal((await command(['billing', 'resync'])).code, 0);
  t.same([await planOf('ada@example.test'), await planOf('bob@example.test')], ['pro', 'free']);
});

t.test('from Supabase with the metadata of its example for Stripe', async (t) => {
  const id = '9f1c2f3a-7b65-4c11-9d2e-0a1b2c3d4e5f';
  const { command, planOf } = await seller(t, { cus_Ada: { metadata: { supabaseUUID: id } } });
  const line = JSON.stringify({ id, email: 'ada@example.test', emailVerified: true });
  await command(['user', 'import', '-'], line);
  const [, args = ''] = /^ *saas-backend (billing import .*)$/m.exec(guide('saas/migrate-supabase.md')) ?? [];
  t.match(args, /supabaseUUID/);
  const dry = await command([...args.split(' '), '--dry-run']);
  t.match(dry, { code: 0, out: /1 customers: 1 would be linked/ });
  t.match(await command(args.split(' ')), {
    code: 0,
    out: /cus_Ada → 9f1c2f3a-.* \(by metadata\), 1 subscriptions\n/,
  });
  t.equal(await planOf('ada@example.test'), 'pro');
  t.match((await command(['audit', 'list'])).out, /customer\.linked .*cus_Ada/);
});

t.test('from a plain account of Stripe: by address, and the rest by a file', async (t) => {
  const { command, planOf } = await seller(t, {
    cus_Ada: { email: 'ada@example.test' },
    cus_Bob: { email: 'bob@work.example.test' },
  });
  const people = ['ada', 'bob'].map((name) =>
    JSON.stringify({ email: `${name}@example.test`, emailVerified: true }),
  );
  await command(['user', 'import', '-'], people.join('\n'));
  const first = await command(['billing', 'import', '--by-email', '--json']);
  t.match(first.json, {
    customers: 2,
    linked: 1,
    missing: 1,
    results: [{ outcome: 'missing' }, { by: 'email' }],
  });
  const file = '{"customerId":"cus_Bob","email":"bob@example.test"}\n';
  t.match(await command(['billing', 'import', '-'], file), { code: 0, out: /1 customers: 1 linked/ });
  t.same([await planOf('ada@example.test'), await planOf('bob@example.test')], ['pro', 'pro']);
  for (const [input, code, text] of [
    ['{"customerId":"cus_1"}', 1, /^line 1: must be like/],
    ['{"customerId":"cus_1","userId":"a","email":"b"}', 1, /^line 1: must be like/],
    ['nonsense', 1, /^line 1: must be like/],
    ['{"customerId":"cus_1","userId":"nobody"}', 1, /^$/],
  ] as const)
    t.match(await command(['billing', 'import', '-'], input), { code, err: text }, input);
});
