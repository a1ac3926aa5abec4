import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type AuditRecord, createAudit } from '../../src/core/ops/audit.js';
import { openStore } from '../../src/core/storage/open.js';
import { fakeClock } from '../kit/clock.js';
import { runProgram } from '../kit/command-line.js';
import { compiled, startCommand, startProgram } from '../kit/process.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';

const DAY = 86_400_000;

/** A store with one record for each age in days. */
async function storeWithRecords(t: Test, ages: number[]): Promise<string> {
  const uri = `sqlite:${join(temporaryFolder(t), 'store.db')}`;
  const store = await openStore(uri);
  for (const age of ages) {
    const clock = fakeClock(Date.now() - age * DAY);
    const log = { error: () => t.fail('a record was lost') };
    const audit = createAudit(store, { clock, random: countedRandom(`age ${age}`), log });
    await audit.record({ event: 'login.succeeded', subject: `${age} days`, ip: '127.0.0.1' });
  }
  await store.close();
  return uri;
}

async function recordsIn(uri: string): Promise<AuditRecord[]> {
  const store = await openStore(uri);
  const { items } = await store.collection<AuditRecord>('audit').page({ sort: 'id', limit: 100 });
  await store.close();
  return items;
}

for (const [script, storeVariable, retentionVariable] of [
  ['saas-backend', 'DATABASE_URI', 'AUDIT_RETENTION_DAYS'],
  ['idp', 'IDP_DATABASE_URI', 'IDP_AUDIT_RETENTION_DAYS'],
] as const) {
  t.test(`${script} audit purge deletes records older than the retention, and records that`, async (t) => {
    const uri = await storeWithRecords(t, [400, 100, 40, 1]);
    const purge = (args: string[], env: Record<string, string> = {}) =>
      runProgram(script, ['audit', 'purge', ...args], { [storeVariable]: uri, ...env });
    t.match(await purge([]), { code: 0, out: 'Deleted audit records older than 365 days: 1\n' });
    const ninety = { [retentionVariable]: '90' };
    t.match(await purge([], ninety), { code: 0, out: 'Deleted audit records older than 90 days: 1\n' });
    const month = ['--days', '30', '--json'];
    t.same((await purge(month, ninety)).json, { removed: 1, days: 30, isComplete: true });
    t.same((await purge(month)).json, { removed: 0, days: 30, isComplete: true });
    const left = await recordsIn(uri);
    t.match(left, [
      { subject: '1 days' },
      { event: 'audit.purged', ip: 'cli', detail: 'records older than 365 days: 1' },
      { event: 'audit.purged', detail: 'records older than 90 days: 1' },
      { event: 'audit.purged', detail: 'records older than 30 days: 1' },
    ]);
    t.equal(left.length, 4, 'a purge that deletes nothing is not recorded');
    t.equal((await purge(['--days', '0'])).code, 2);
  });
}

t.test('audit lists records, the newest first or from a time on, by what they contain', async (t) => {
  const uri = `sqlite:${join(temporaryFolder(t), 'store.db')}`;
  const store = await openStore(uri);
  const clock = fakeClock(Date.UTC(2030, 0, 1));
  const log = { error: () => t.fail('a record was lost') };
  const audit = createAudit(store, { clock, random: countedRandom(), log });
  const entries = [
    { event: 'login.succeeded', subject: 'usr_1', ip: '203.0.113.7' },
    { event: 'login.failed', subject: 'usr_1', ip: '2001:db8:1:2::7' },
    { event: 'user.suspended', subject: 'usr_2', by: 'operator', ip: '203.0.113.7', detail: 'spam\x1b[31m' },
    { event: 'login.failed', ip: '2001:db8:1:2::/64', count: 40 },
  ];
  for (const entry of entries) {
    await audit.record(entry);
    clock.advance(DAY);
  }
  await store.close();
  const list = (...args: string[]) => runProgram('saas-backend', ['audit', ...args], { DATABASE_URI: uri });
  const linesOf = async (...args: string[]) => {
    const { code, out } = await list(...args, '--json');
    t.equal(code, 0, args.join(' '));
    return out
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
  };
  const events = async (...args: string[]) => {
    return (await linesOf(...args)).map(({ event, at }) => `${event} ${at.slice(8, 10)}`);
  };
  t.same(await events(), ['login.failed 04', 'user.suspended 03', 'login.failed 02', 'login.succeeded 01']);
  t.same(await events('list', '--limit', '1'), ['login.failed 04']);
  t.same(await events('--since', '2030-01-02'), ['login.failed 02', 'user.suspended 03', 'login.failed 04']);
  t.same(await events('--since', '2030-01-02', '--limit', '1'), ['login.failed 02']);
  t.same(
    await events('--until', '2030-01-02'),
    ['login.failed 02', 'login.succeeded 01'],
    'the day included',
  );
  t.same(await events('--until', '2030-01-02T00:00:00Z'), ['login.succeeded 01']);
  t.same(await events('--event', 'login.', '--subject', 'usr_1'), ['login.failed 02', 'login.succeeded 01']);
  t.same(await events('--subject', 'operator'), ['user.suspended 03'], 'an operator by name');
  t.same(await events('--ip', '2001:db8:1:2::7'), ['login.failed 04', 'login.failed 02'], 'and the block');
  t.match(
    (await list('--event', 'user.')).out,
    /^2030-01-03T00:00:00\.000Z {2}user\.suspended +usr_2 +203\.0\.113\.7 +by operator; spam\?\[31m\n$/,
  );
  t.match(await linesOf('--limit', '1'), [
    { event: 'login.failed', subject: null, ip: '2001:db8:1:2::/64', count: 40 },
  ]);
  for (const wrong of [
    ['--since', 'yesterday'],
    ['--since', '2030-01-01T12:00'],
    ['--limit', '0'],
    ['--event', ''],
    ['--follow', '--until', '1h'],
    ['lst'],
  ]) {
    t.equal((await list(...wrong)).code, 2, wrong.join(' '));
  }
});

t.test('audit --follow prints records of concurrent writers once, until it is interrupted', async (t) => {
  const uri = `sqlite:${join(temporaryFolder(t), 'store.db')}`;
  const store = await openStore(uri);
  t.teardown(() => store.close());
  const log = { error: () => t.fail('a record was lost') };
  const writers = ['one', 'two', 'three'].map((name) => ({
    name,
    audit: createAudit(store, { clock: { now: () => Date.now() }, random: countedRandom(name), log }),
  }));
  const write = (count: number, prefix: string) =>
    Promise.all(
      writers.map(async ({ name, audit }) => {
        for (let n = 0; n < count; n++) {
          await audit.record({ event: `${prefix}.${name}.${n}`, ip: '127.0.0.1' });
        }
      }),
    );
  await write(10, 'before');
  const program = startProgram(t, compiled('bin/saas-backend.js'), {
    args: ['audit', '--follow', '--json', '--limit', '1'],
    cwd: temporaryFolder(t),
    env: { DATABASE_URI: uri },
  });
  await program.printed(/before/);
  await write(100, 'after');
  await writers[0]?.audit.record({ event: 'end', ip: '127.0.0.1' });
  await program.printed(/"end"/);
  program.signal('SIGINT');
  t.equal(await program.ended(), 130);
  const events = program.lines.map((line) => JSON.parse(line).event as string);
  t.equal(events.filter((event) => event.startsWith('before.')).length, 1, 'the last one before the start');
  t.equal(events.filter((event) => event.startsWith('after.')).length, 300);
  t.equal(new Set(events).size, 302, 'none twice');
});

t.test('audit --follow ends when the reader of its output ends', async (t) => {
  const uri = await storeWithRecords(t, [1]);
  const script = compiled('bin/saas-backend.js');
  const shell = startCommand(t, '/bin/bash', {
    args: [
      '-c',
      `"${process.execPath}" "${script}" audit --follow --json | head -n 1; echo "code \${PIPESTATUS[0]}"`,
    ],
    cwd: temporaryFolder(t),
    env: { DATABASE_URI: uri },
  });
  await shell.printed(/login\.succeeded/);
  const store = await openStore(uri);
  t.teardown(() => store.close());
  const log = { error: () => t.fail('a record was lost') };
  const audit = createAudit(store, { clock: { now: () => Date.now() }, random: countedRandom(), log });
  await waitUntil('the command ends', async () => {
    await audit.record({ event: 'logout', ip: '127.0.0.1' });
    return shell.lines.includes('code 1');
  });
  t.equal(await shell.ended(), 0);
});
