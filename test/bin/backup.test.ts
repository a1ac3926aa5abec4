import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { runProgram } from '../kit/command-line.js';
import { compiled, type Program, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Backs up a store in use and starts a program on the copy. */

const IDP = compiled('bin/idp.js');
const TOKEN = 'admin-Vb8nQw3eRt6yUi9oPa2sDf5gHj7kLz1x';

function startIdp(t: Test, cwd: string, database: string): Program {
  const env = { IDP_DATABASE_URI: `sqlite:${database}`, IDP_ADMIN_TOKEN: TOKEN, LOG_LEVEL: 'info' };
  return startProgram(t, IDP, { args: ['serve', '-port', '0'], cwd, env });
}

/** Creates an agent and returns the status. */
async function mint(url: string, handle: string): Promise<number> {
  const answer = await fetch(`${url}/v1/agents`, {
    method: 'POST',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
    body: JSON.stringify({ handle }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

t.test(
  'a backup under write load contains all acknowledged writes, and a program starts on it',
  async (t) => {
    const cwd = temporaryFolder(t);
    const program = startIdp(t, cwd, 'idp.db');
    const url = await program.url();
    const acknowledged: string[] = [];
    let isOver = false;
    let enough = () => {};
    const begun = new Promise<void>((resolve) => {
      enough = resolve;
    });
    const writers = Array.from({ length: 8 }, async (_, writer) => {
      for (let count = 0; !isOver; count++) {
        const handle = `agent-${writer}-${count}@example.test`;
        t.equal(await mint(url, handle), 201, handle);
        if (acknowledged.push(handle) === 400) enough();
      }
    });
    await begun;

    const before = [...acknowledged];
    const env = { IDP_DATABASE_URI: 'sqlite:idp.db' };
    const command = startProgram(t, IDP, { args: ['backup', 'copy.db', '--json'], cwd, env });
    const code = await command.ended();
    const printed = command.lines.join('\n');
    const during = acknowledged.length - before.length;
    isOver = true;
    await Promise.all(writers);
    const copy = join(cwd, 'copy.db');
    t.equal(code, 0, printed);
    t.match(JSON.parse(printed), { file: 'copy.db', bytes: statSync(copy).size, milliseconds: Number });
    t.ok(during > 0, 'writing went on');
    t.equal(statSync(copy).mode & 0o777, 0o600);
    t.notOk(existsSync(`${copy}.partial`));

    const db = await openDatabase(copy);
    t.strictSame({ ...(db.prepare('PRAGMA integrity_check').get() as object) }, { integrity_check: 'ok' });
    const rows = db.prepare('SELECT handle FROM principals').all() as { handle: string }[];
    db.close();
    const copied = new Set(rows.map(({ handle }) => handle));
    t.strictSame(
      before.filter((handle) => !copied.has(handle)),
      [],
    );
    t.equal(await program.terminate(), 0);

    const restored = startIdp(t, cwd, 'copy.db');
    t.equal(await mint(await restored.url(), before[0] as string), 409, 'it knows who is in the copy');
    t.equal(await restored.terminate(), 0);
  },
);

const backup = (file: string, env: Record<string, string>, cwd: string) =>
  runProgram('saas-backend', ['backup', file], env, { cwd });

t.test('a backup never overwrites a file, and failures print one sentence', async (t) => {
  const cwd = temporaryFolder(t);
  const db = await openDatabase(join(cwd, 'app.db'));
  db.close();
  writeFileSync(join(cwd, 'taken.db'), 'mine');
  writeFileSync(join(cwd, 'text.db'), 'no database at all, but some text'.repeat(100));
  writeFileSync(join(cwd, 'left.db.partial'), 'of a backup that was killed');
  const cases: [uri: string, file: string, says: RegExp][] = [
    ['sqlite:app.db', 'taken.db', /taken\.db exists\. Choose another file/],
    ['sqlite:app.db', 'left.db', /left\.db\.partial exists\. Choose another file, or move/],
    ['sqlite:app.db', 'no/such/folder.db', /cannot create .* ENOENT\. Choose a file in an existing folder/],
    ['sqlite:none.db', 'a.db', /there is no file .*none\.db/],
    ['sqlite:text.db', 'b.db', /not a database\. Choose another file/],
    ['sqlite::memory:', 'c.db', /an in-memory store is lost when its program stops/],
    ['mongodb://u:secret@db.example/app', 'd.gz', /Run: mongodump --uri=<URI> --gzip --archive=d\.gz\n$/],
  ];
  for (const [DATABASE_URI, file, says] of cases) {
    const { code, err } = await backup(file, { DATABASE_URI }, cwd);
    t.equal(code, 1, file);
    t.match(err, says);
    t.match(err, /^saas-backend cannot back up the store that DATABASE_URI names: .+\n$/);
    t.notMatch(err, 'secret');
    if (!/taken|left/.test(file))
      t.notOk(existsSync(join(cwd, file)) || existsSync(join(cwd, `${file}.partial`)));
  }
  t.equal(readFileSync(join(cwd, 'taken.db'), 'utf8'), 'mine');
  t.notOk(existsSync(join(cwd, 'none.db')), 'the source is never created');
});

t.test('in production a backup requires the store and no secret', async (t) => {
  const cwd = temporaryFolder(t);
  (await openDatabase(join(cwd, 'app.db'))).close();
  const env = { NODE_ENV: 'production', DATABASE_URI: 'sqlite:app.db' };
  t.match(await backup('copy.db', env, cwd), { code: 0, out: /^copy\.db: 0\.0 MiB in / });
  t.notOk(existsSync(join(cwd, 'data')), 'and makes none up');
  const record = join(cwd, 'app.db-backup');
  const { finishedAt } = JSON.parse(readFileSync(record, 'utf8'));
  t.ok(Math.abs(Date.now() - finishedAt) < 60_000, 'the server learns when it was finished');
  rmSync(record);
  mkdirSync(record);
  const unrecorded = await backup('again.db', env, cwd);
  t.match(unrecorded, {
    code: 0,
    err: /^The backup is complete, but its time cannot be recorded beside .*app\.db: /,
  });
  const without = await backup('copy.db', { NODE_ENV: 'production' }, cwd);
  t.match(without, { code: 1, err: /DATABASE_URI is not set/ });
});
