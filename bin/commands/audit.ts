import type { Command } from 'commander';
import { purgeAudit } from '../../src/server/audit-purge.js';
import { type CommonOptions, examples } from '../command.js';
import { parseInteger } from '../options.js';
import type { Program } from '../program.js';
import { createProgress } from '../progress.js';
import { withStore } from '../store.js';
import { complain, say } from '../terminal.js';

const DESCRIPTION = `Delete old audit records now, for instance after the retention was shortened. A running server does the \
same every hour. The command can be repeated and interrupted at any time, and is recorded in the audit itself.`;

interface PurgeOptions extends CommonOptions {
  days?: number;
}

export function define(group: Command, program: Program): void {
  const { name } = program;
  const retention = name === 'idp' ? 'IDP_AUDIT_RETENTION_DAYS' : 'AUDIT_RETENTION_DAYS';
  group.addHelpText('after', examples(`${name} audit purge --days 90`));
  group
    .command('purge')
    .summary('Delete old audit records')
    .description(DESCRIPTION)
    .option('--days <number>', `Days to keep (default: ${retention}, or 365)`, parseInteger(1, 36_500, 90))
    .addHelpText('after', examples(`${name} audit purge`, `${name} audit purge --days 90 --json`))
    .action((options: PurgeOptions) => purge(program, options));
}

async function purge(program: Program, { days, json }: PurgeOptions): Promise<void> {
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const progress = createProgress({
    name: 'records deleted',
    write: (count) => count.toLocaleString('en-US'),
  });
  const close = async () => progress.end();
  await withStore(
    program,
    async () => ({ close }),
    async () => {
      const { signal } = stopping;
      const report = await purgeAudit(program.name, {
        days,
        warn: complain,
        onProgress: progress.show,
        signal,
      });
      progress.end();
      const count = report.removed.toLocaleString('en-US');
      say(json ? JSON.stringify(report) : `Deleted audit records older than ${report.days} days: ${count}`);
      if (report.isComplete) return;
      complain('Interrupted: older records remain.');
      process.exitCode = 130;
    },
  );
}
