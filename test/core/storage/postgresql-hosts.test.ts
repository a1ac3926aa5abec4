/** What a host finds in PostgreSQL: views for joins, and foreign keys. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fastify, { type FastifyInstance } from 'fastify';
import pg from 'pg';
import t, { type Test } from 'tap';
import { collectionNames } from '../../../src/core/storage/inspect.js';
import { openStore } from '../../../src/core/storage/open.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { identityProvider, saasBackend } from '../../../src/index.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { type SubscriptionDocument, subscriptionCollection } from '../../../src/saas/billing/store.js';
import { PASSWORD, testOptions } from '../../kit/app.js';
import { saasPluginOptions } from '../../kit/host.js';
import { ADMIN_TOKEN, idpOptions } from '../../kit/idp.js';
import { compiled } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { onPostgres } from './postgres.js';

const NOW = Date.now();

const USER = {
  email: 'ada@example.test',
  passwordVersion: 1,
  emailVerified: true,
  sessionEpoch: 0,
  subscriptionStatus: 'active',
  subscriptionPlan: 'pro',
  createdAt: NOW,
};

const SUBSCRIPTION: SubscriptionDocument = {
  id: 'sub_1',
  ownerId: 'usr_1',
  status: 'active',
  plan: 'pro',
  quantity: 3,
  currentPeriodEnd: NOW + 1000,
  cancelAtPeriodEnd: false,
  startedAt: NOW,
  items: [],
  at: 0,
  statusAt: 0,
  heardAt: 0,
  rev: 1,
  createdAt: NOW,
  updatedAt: NOW,
};

/** The statements of docs/operate/database-joins.md. */
function documentedStatements(): string[] {
  const page = readFileSync(join(compiled('.'), '../docs/operate/database-joins.md'), 'utf8');
  const [, block = ''] = /```sql\n([\s\S]*?)```/.exec(page) ?? [];
  return block.split('\n\n');
}

await onPostgres((postgres) => {
  async function opened(t: Test) {
    const uri = postgres.fresh(t);
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const schema = new URL(uri).searchParams.get('schema') as string;
    return { uri, store, schema, client: await postgres.client(t) };
  }

  t.test('a table of the host refers to users, and one query joins it with the views', async (t) => {
    const { store, schema, client } = await opened(t);
    const [users, subscriptions] = [userCollection(store), subscriptionCollection(store)];
    await users.insert({ id: 'usr_1', name: 'Ada', ...USER });
    const granted = { suspendedAt: NOW, grant: { plan: 'team', since: NOW, until: NOW + 1000 } };
    await users.insert({ id: 'usr_2', ...USER, email: 'eve@example.test', ...granted });
    await subscriptions.insert(SUBSCRIPTION);
    const views = await client.query(`SELECT * FROM ${schema}.user_view ORDER BY id`);
    const ada = { id: 'usr_1', email: 'ada@example.test', name: 'Ada', created_at: new Date(NOW) };
    const rest = { email_verified: true, suspended: false };
    const plan = { subscription_plan: 'pro', subscription_status: 'active' };
    const eve = { id: 'usr_2', email: 'eve@example.test', name: null, suspended: true };
    t.strictSame(views.rows, [
      { ...ada, ...rest, ...plan, granted_plan: null, granted_until: null },
      { ...ada, ...rest, ...plan, ...eve, granted_plan: 'team', granted_until: new Date(NOW + 1000) },
    ]);
    t.match((await client.query(`SELECT * FROM ${schema}.subscription_view`)).rows, [
      {
        owner_id: 'usr_1',
        quantity: '3',
        current_period_end: new Date(NOW + 1000),
        trial_end: null,
        cancel_at_period_end: false,
      },
    ]);

    const [table = '', query = '', ...others] = documentedStatements();
    t.strictSame(others, []);
    // Without `search_path`, which PgBouncer does not keep for a connection.
    const here = (text: string) =>
      text.replaceAll('saas.', `${schema}.`).replaceAll('projects', `${schema}.projects`);
    await client.query(here(table));
    const insert = here("INSERT INTO projects (owner_id, title) VALUES ($1, 'A')");
    await client.query(insert, ['usr_1']);
    await t.rejects(client.query(insert, ['usr_3']), { code: '23503' });
    const joined = await client.query(here(query));
    t.strictSame(joined.rows, [
      {
        title: 'A',
        email: 'ada@example.test',
        subscription_plan: 'pro',
        current_period_end: new Date(NOW + 1000),
      },
    ]);

    await users.updateOne({ id: 'usr_1' }, { set: { email: 'lovelace@example.test' } });
    t.strictSame(await store.commit([users.deleting({ id: 'usr_1' })]), { committed: true });
    t.strictSame(
      (await client.query(here('SELECT 1 FROM projects'))).rows,
      [],
      'it is deleted with its owner',
    );
  });

  t.test(
    'an account to which a table of the host refers is closed, and deleted once it can be',
    async (t) => {
      const { uri, store, schema, client } = await opened(t);
      const lines: string[] = [];
      const options = saasPluginOptions(t, { databaseUri: uri });
      const start = async () => {
        const host = fastify({ logger: { stream: { write: (line: string) => void lines.push(line) } } });
        t.teardown(() => host.close());
        await host.register(saasBackend, options);
        await host.ready();
        return host;
      };
      const host = await start();
      /** The job runs at the start of a process. */
      const restart = async (running: FastifyInstance) => {
        await running.close();
        options.clock.advance(61_000);
        return start();
      };
      const post = (path: string, payload: object, headers = {}) =>
        host.inject({ method: 'POST', url: `/api${path}`, payload, headers });
      const register = async (name: string) => {
        const given = { email: `${name}@example.test`, password: PASSWORD };
        const { user, accessToken } = (await post('/auth/register', given)).json().data;
        return { id: user.id as string, headers: { authorization: `Bearer ${accessToken}` } };
      };
      const [ada, eve] = [await register('ada'), await register('eve')];
      await client.query(
        `CREATE TABLE ${schema}.notes (owner text CONSTRAINT notes_owner REFERENCES ${schema}.users)`,
      );
      await client.query(`INSERT INTO ${schema}.notes VALUES ($1)`, [ada.id]);

      const refused = await post('/user/delete', { password: PASSWORD }, ada.headers);
      t.match(refused.json(), { error: { code: 'STILL_REFERENCED' } });
      t.equal(refused.statusCode, 409);
      t.equal((await host.inject({ url: '/api/auth/me', headers: ada.headers })).statusCode, 401, 'closed');
      const reported = /violates foreign key constraint \\"notes_owner\\".*ON DELETE CASCADE/;
      t.equal(lines.filter((line) => reported.test(line)).length, 1);
      t.notMatch(lines.join(), ada.id, 'the log has no IDs of users');

      const users = userCollection(store);
      await users.updateOne({ id: eve.id }, { set: { suspendedAt: NOW, deletingAt: NOW + 1 } });
      const second = await restart(host);
      await waitUntil('the other account', async () => (await users.count()) === 1);
      await waitUntil('the report', async () => lines.filter((line) => reported.test(line)).length === 2);
      await client.query(`DROP TABLE ${schema}.notes`);
      await restart(second);
      await waitUntil('the deletion', async () => (await users.count()) === 0);
    },
  );

  t.test("both products work on the host's pool, and leave it open", async (t) => {
    const uri = new URL(postgres.fresh(t));
    const schema = uri.searchParams.get('schema') as string;
    uri.search = '';
    const pool = new pg.Pool({ connectionString: uri.href });
    t.teardown(() => pool.end());
    const schemas = { saas: schema, idp: `${schema}_idp` };
    t.teardown(() => pool.query(`DROP SCHEMA IF EXISTS ${schemas.saas}, ${schemas.idp} CASCADE`));
    const host = fastify();
    t.teardown(() => host.close());
    const { host: _, port: __, logLevel: ___, databaseUri: ____, ...saas } = testOptions(temporaryFolder(t));
    const { host: h, port: p, logLevel: l, databaseUri: u, ...idp } = idpOptions(temporaryFolder(t));
    await host.register(saasBackend, { ...saas, env: false, pg: { pool, schema: schemas.saas } });
    const mounted = { prefix: '/idp', publicUrl: 'https://app.example.test/idp' };
    await host.register(identityProvider, {
      ...idp,
      ...mounted,
      env: false,
      pg: { pool, schema: schemas.idp },
    });

    const json = { 'content-type': 'application/json' };
    for (const [url, payload, headers] of [
      ['/api/auth/register', { email: 'ada@example.test', password: PASSWORD }, json],
      [
        '/idp/v1/agents',
        { handle: 'agent@example.test' },
        { ...json, authorization: `Bearer ${ADMIN_TOKEN}` },
      ],
    ] as const)
      t.equal((await host.inject({ method: 'POST', url, payload, headers })).statusCode, 201, url);
    await host.close();
    const users = await pool.query(`SELECT email FROM ${schemas.saas}.user_view`);
    t.strictSame(users.rows, [{ email: 'ada@example.test' }]);
    const agents = await pool.query(`SELECT handle FROM ${schemas.idp}.principal_view WHERE kind = 'agent'`);
    t.strictSame(agents.rows, [{ handle: 'agent@example.test' }]);

    const refused = async (options: object, message: RegExp) => {
      const other = fastify();
      t.teardown(() => other.close());
      await t.rejects(async () => other.register(saasBackend, { ...saas, env: false, ...options }), message);
    };
    await refused({ pg: undefined }, /'pg' is neither a fastify\.pg nor an object with the pool of the host/);
    await refused({ pg: { pool, schema: 'a b' } }, /'pg\.schema' consists of lower-case letters/);
    await refused({ pg: { pool }, databaseUri: 'sqlite::memory:' }, /'pg' and 'databaseUri' are both given/);
  });

  t.test(
    'a view gets new columns at its end, and an older version leaves a newer one as it is',
    async (t) => {
      const { uri, store, schema, client } = await opened(t);
      await principalCollection(store).count();
      t.strictSame(await collectionNames(uri), ['principals'], 'views are no collections');
      const columns = async () =>
        (await client.query(`SELECT * FROM ${schema}.principal_view`)).fields.map(({ name }) => name);
      const all = await columns();
      t.strictSame(all.slice(0, 2), ['id', 'handle']);
      await client.query(`DROP VIEW ${schema}.principal_view`);
      await client.query(
        `CREATE VIEW ${schema}.principal_view AS SELECT id, handle FROM ${schema}.principals`,
      );
      await reopened(t, uri);
      t.strictSame(await columns(), all);
      await client.query(`DROP VIEW ${schema}.principal_view`);
      const newer =
        "SELECT id, handle, kind, doc->>'name' AS name, state, now() AS created_at, now() AS email_verified_at, true AS is_operator, doc->>'email' AS email, 1 AS later";
      await client.query(`CREATE VIEW ${schema}.principal_view AS ${newer} FROM ${schema}.principals`);
      await reopened(t, uri);
      t.equal((await columns()).at(-1), 'later');
    },
  );
});

async function reopened(t: Test, uri: string): Promise<void> {
  const store = await openStore(uri);
  t.teardown(() => store.close());
  await principalCollection(store).count();
}
