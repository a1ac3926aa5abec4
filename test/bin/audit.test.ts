import { join } from 'node:path';
import t, { type Test } from 'tap';
import { type AuditRecord, createAudit } from '../../src/ops/audit.js';
import { openStore } from '../../src/storage/open.js';
import { fakeClock } from '../kit/clock.js';
import { compiled, startProgram } from '../kit/process.js';
import { countedRandom } from '../kit/random.js';
import { temporaryFolder } from '../kit/tmp.js';

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
    const purge = async (args: string[], env: Record<string, string> = {}) => {
      const program = startProgram(t, compiled(`package/bin/${script}.js`), {
        args: ['audit', 'purge', ...args],
        cwd: temporaryFolder(t),
        env: { [storeVariable]: uri, ...env },
      });
      return { code: await program.ended(), text: program.lines.join('\n') };
    };
    t.same(await purge([]), { code: 0, text: 'Deleted audit records older than 365 days: 1' });
    t.same(await purge([], { [retentionVariable]: '90' }), {
      code: 0,
      text: 'Deleted audit records older than 90 days: 1',
    });
    const last = await purge(['--days', '30', '--json'], { [retentionVariable]: '90' });
    t.same(JSON.parse(last.text), { removed: 1, days: 30, isComplete: true });
    t.same(JSON.parse((await purge(['--days', '30', '--json'])).text), {
      removed: 0,
      days: 30,
      isComplete: true,
    });
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
