/** The SQL that the programs print for PostgreSQL. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { openExistingStore } from '../../src/core/storage/open.js';
import { declareIdpCollections } from '../../src/idp/collections.js';
import { declareSaasCollections } from '../../src/saas/collections.js';
import { onPostgres } from '../core/storage/postgres.js';
import { runProgram } from '../kit/command-line.js';
import { temporaryFolder } from '../kit/tmp.js';

const PRODUCTS = [
  ['saas-backend', 'DATABASE_URI', 'saas', declareSaasCollections],
  ['idp', 'IDP_DATABASE_URI', 'idp', declareIdpCollections],
] as const;

const print = (product: 'saas-backend' | 'idp', args: string[], env: Record<string, string> = {}) =>
  runProgram(product, ['store', 'sql', ...args], env);

await onPostgres((postgres) => {
  for (const [product, variable, , declare] of PRODUCTS) {
    t.test(`a role that may not create tables uses what the SQL of ${product} has created`, async (t) => {
      const uri = new URL(postgres.fresh(t));
      const schema = uri.searchParams.get('schema') as string;
      const client = await postgres.client(t);
      const role = `${schema}_role`;
      await client.query(`CREATE ROLE ${role} LOGIN`);
      t.teardown(() => client.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`));
      uri.username = role;
      const env = { [variable]: uri.href };

      const first = await print(product, [], env);
      t.equal(first.code, 0, first.err);
      const everything = await print(product, ['--all'], env);
      t.equal(everything.out, first.out);
      t.match(
        first.out,
        new RegExp(`^BEGIN;\nCREATE SCHEMA IF NOT EXISTS "${schema}";\n[\\s\\S]*\nCOMMIT;\n$`),
      );
      await client.query(first.out);
      await client.query(`GRANT USAGE ON SCHEMA ${schema} TO ${role}`);
      await client.query(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${schema} TO ${role}`);
      t.match(await print(product, [], env), {
        code: 0,
        out: '',
        err: `The schema ${schema} lacks nothing.\n`,
      });
      await client.query(everything.out);
      const store = await openExistingStore(uri.href);
      declare(store);
      await store.ready();
      await store.close();

      const { rows } = await client.query<{ index: string }>(
        `SELECT quote_ident(indexname) AS index FROM pg_indexes
         WHERE schemaname = $1 AND indexdef LIKE 'CREATE INDEX %' ORDER BY indexname LIMIT 1`,
        [schema],
      );
      const index = rows[0]?.index as string;
      await client.query(`DROP INDEX ${schema}.${index}`);
      const { out } = await print(product, ['--json', 'NEW_URI'], { NEW_URI: uri.href });
      const missing = JSON.parse(out);
      t.match(missing, { schema, statements: [new RegExp(`^CREATE INDEX IF NOT EXISTS ${index} ON`)] });
      t.equal(missing.statements.length, 1, 'only what is missing');
    });
  }

  t.test('a database that cannot be read is reported without its password', async (t) => {
    const uri = new URL(postgres.fresh(t));
    uri.password = 'secret';
    uri.pathname = '/missing';
    const { code, out, err } = await print('saas-backend', [uri.href]);
    t.match({ code, out }, { code: 1, out: '' });
    t.match(err, /^saas-backend cannot read the database: .* Create the database, or correct its name/);
    t.notMatch(err, /secret/);
  });
});

t.test('all SQL is printed without a database', async (t) => {
  const file = join(temporaryFolder(t), 'uri');
  writeFileSync(file, 'postgres://127.0.0.1:1/app?schema=auth\n');
  for (const [product, variable, schema] of PRODUCTS) {
    const { code, out, err } = await print(product, ['--all']);
    t.match({ code, err }, { code: 0, err: '' });
    t.ok(out.includes(`CREATE SCHEMA IF NOT EXISTS "${schema}";\n`));
    const other = await print(product, ['--all', 'postgres://127.0.0.1:1/app?schema=auth']);
    t.equal(other.out, out.replaceAll(`"${schema}"`, '"auth"'));
    const fromFile = await print(product, ['--all'], { [`${variable}_FILE`]: file });
    t.equal(fromFile.out, other.out);
    t.match(await print(product, [], { [`${variable}_FILE`]: `${file}.old` }), {
      code: 1,
      err: /_FILE names a file that cannot be read \(ENOENT\)/,
    });
  }
});

t.test('a URI of another engine is refused', async (t) => {
  const file = `sqlite:${join(temporaryFolder(t), 'a.db')}`;
  const { code, err } = await print('idp', ['--all'], { IDP_DATABASE_URI: file });
  t.equal(code, 2);
  t.match(err, /argument 'uri' is a store URI of SQLite, which needs no SQL\. Give one of PostgreSQL/);
  t.match(await print('idp', []), { code: 2, err: /the environment variable IDP_DATABASE_URI is not set/ });
});
