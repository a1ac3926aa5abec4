import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openDatabase } from '../../src/core/storage/sqlite/store.js';
import { compiled, type Program, startProgram } from '../kit/process.js';
import { temporaryFolder } from '../kit/tmp.js';

/** Backs up a store in use and starts a program on the copy. */

const SAAS = compiled('bin/saas-backend.js');
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

async function runBackup(t: Test, script: string, args: string[], cwd: string, env: Record<string, string>) {
  const program = startProgram(t, script, { args: ['backup', ...args], cwd, env });
  const code = await program.ended();
  return { code, text: program.lines.join('\n') };
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
    const backup = await runBackup(t, IDP, ['copy.db', '--json'], cwd, env);
    const during = acknowledged.length - before.length;
    isOver = true;
    await Promise.all(writers);
    const copy = join(cwd, 'copy.db');
    t.equal(backup.code, 0, backup.text);
    t.match(JSON.parse(backup.text), { file: 'copy.db', bytes: statSync(copy).size, milliseconds: Number });
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
    ['mongodb://u:secret@db.example/app', 'd.gz', /Run: mongodump --uri=<URI> --gzip --archive=d\.gz$/],
  ];
  await Promise.all(
    cases.map(async ([DATABASE_URI, file, says]) => {
      const { code, text } = await runBackup(t, SAAS, [file], cwd, { DATABASE_URI });
      t.equal(code, 1, file);
      t.match(text, says);
      t.match(text, /^saas-backend cannot back up the store that DATABASE_URI names: .+$/);
      t.notMatch(text, /\n|secret/, 'one line');
      if (!/taken|left/.test(file))
        t.notOk(existsSync(join(cwd, file)) || existsSync(join(cwd, `${file}.partial`)));
    }),
  );
  t.equal(readFileSync(join(cwd, 'taken.db'), 'utf8'), 'mine');
  t.notOk(existsSync(join(cwd, 'none.db')), 'the source is never created');
});

t.test('in production a backup requires the store and no secret', async (t) => {
  const cwd = temporaryFolder(t);
  (await openDatabase(join(cwd, 'app.db'))).close();
  const env = { NODE_ENV: 'production', DATABASE_URI: 'sqlite:app.db' };
  t.match(await runBackup(t, SAAS, ['copy.db'], cwd, env), { code: 0, text: /^copy\.db: 0\.0 MiB in / });
  t.notOk(existsSync(join(cwd, 'data')), 'and makes none up');
  const without = await runBackup(t, SAAS, ['copy.db'], cwd, { NODE_ENV: 'production' });
  t.match(without, { code: 1, text: /DATABASE_URI is not set/ });
});
