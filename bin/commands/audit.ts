import { InvalidArgumentError } from 'commander';
import { DAY, HOUR, MINUTE, SECOND, systemClock } from '../../src/core/kernel/clock.js';
import { type AuditRecord, toAuditView, writeActor } from '../../src/core/ops/audit.js';
import { purgeAudit } from '../../src/core/server/audit-purge.js';
import { readAuditOf } from '../../src/core/server/audit-reading.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { type Moment, parseInteger, readMoment } from '../options.js';
import type { Program } from '../program.js';
import { createProgress } from '../progress.js';
import { explaining } from '../store.js';
import { complain, say, style } from '../terminal.js';

const LIST = `List the audit records, the newest first, or from a time on with --since, the oldest first. The server may be \
running. The command changes nothing.

Times are UTC: 2030-01-31, 2030-01-31T12:00:00Z, or how long ago: 90s, 30m, 24h, 7d.`;

const PURGE = `Delete old audit records now, for instance after the retention was shortened. A running server does the \
same every hour. The command can be repeated and interrupted at any time, and is recorded in the audit itself.`;

interface ListOptions extends CommonOptions {
  since?: Moment;
  until?: Moment;
  event?: string;
  subject?: string;
  ip?: string;
  limit?: number;
  follow?: true;
}

interface PurgeOptions extends CommonOptions {
  days?: number;
}

const LISTED = 100;

export function define(group: CommandLine, program: Program): void {
  const { name } = program;
  const retention = name === 'idp' ? 'IDP_AUDIT_RETENTION_DAYS' : 'AUDIT_RETENTION_DAYS';
  group.examples(
    `${name} audit --follow`,
    `${name} audit --since 24h --event login.`,
    `${name} audit purge --days 90`,
  );
  group
    .command('list', { isDefault: true })
    .summary('List audit records (default)')
    .description(LIST)
    .option('-f, --follow', 'Print the last records and wait for new ones, until interrupted')
    .option('--since <time>', 'Only records from this time on, the oldest first', parseTime)
    .option('--until <time>', 'Only records before this time; a day is included', parseTime)
    .option('--event <text>', 'Only this event, or events that begin with the text: login.failed, login.')
    .option(
      '--subject <id>',
      'Only records about this user, principal or client, or changes by this operator',
    )
    .option('--ip <address>', 'Only records of this address or its block')
    .option(
      '--limit <number>',
      `Records to print (default: ${LISTED}; with --since all; with --follow the last 10)`,
      parseInteger(1, 99_999, LISTED),
    )
    .option('--json', 'Print one JSON object per line')
    .examples(
      `${name} audit`,
      `${name} audit --follow --json | jq -r .event`,
      `${name} audit --since 2030-01-01 --until 2030-01-31 --subject ${name === 'idp' ? 'u_0197' : 'usr_0197'}`,
      `${name} audit --since 24h --event login.failed --ip 203.0.113.7`,
    )
    .action((options: ListOptions, command: CommandLine) => list(program, options, command));
  group
    .command('purge')
    .summary('Delete old audit records')
    .description(PURGE)
    .option('--days <number>', `Days to keep (default: ${retention}, or 365)`, parseInteger(1, 36_500, 90))
    .examples(`${name} audit purge`, `${name} audit purge --days 90 --json`)
    .action((options: PurgeOptions) => purge(program, options));
}

const UNITS: Record<string, number> = { s: SECOND, m: MINUTE, h: HOUR, d: DAY };

function parseTime(text: string): Moment {
  const [, amount, unit = ''] = /^(\d{1,5})([smhd])$/.exec(text) ?? [];
  if (amount !== undefined)
    return { at: systemClock.now() - Number(amount) * (UNITS[unit] ?? 0), isDay: false };
  const moment = readMoment(text);
  if (moment && moment.at >= 0) return moment;
  throw new InvalidArgumentError('Use a time like 2030-01-31, 2030-01-31T12:00:00Z or 24h.');
}

async function list(program: Program, options: ListOptions, command: CommandLine): Promise<void> {
  const { since, until, event, subject, ip, follow = false, json } = options;
  if (follow && until) command.error('error: --follow waits for new records, so it takes no --until.');
  // A script whose variable is empty must not list everything.
  const empty = Object.entries({ event, subject, ip }).find(([, value]) => value === '');
  if (empty) command.error(`error: --${empty[0]} needs a value.`);
  const stopping = new AbortController();
  let isInterrupted = false;
  process.once('SIGINT', () => {
    isInterrupted = true;
    stopping.abort();
  });
  process.stdout.once('error', () => stopping.abort());
  const range = {
    from: since?.at,
    until: until && until.at + (until.isDay ? DAY : 0),
    event,
    subjects: subject === undefined ? undefined : [subject],
    ip,
    follow,
    limit: options.limit ?? (since || follow ? undefined : LISTED),
    signal: stopping.signal,
  };
  await readAuditOf(program.name, range, (records) => {
    for (const record of records) say(json ? JSON.stringify(toAuditView(record)) : line(record));
  }).catch(explaining(program));
  if (isInterrupted) process.exitCode = 130;
}

/** Widths of the columns, which cannot be known for records to come. */
const EVENT_WIDTH = 22;
const SUBJECT_WIDTH = 36;
const IP_WIDTH = 15;

function line(record: AuditRecord): string {
  const { at, event, subject, ip, detail, count, ...rest } = toAuditView(record);
  const by = writeActor(rest);
  const { bold, dim, red, plain } = style();
  const colour = /\.(failed|refused|rejected|reused|replayed|hit)$|-refused$/.test(event) ? red : bold;
  const more = [by && `by ${by}`, detail, count && `${count} times`].filter(Boolean).join('; ');
  const columns = [
    `${dim}${at}${plain}`,
    `${colour}${event.padEnd(EVENT_WIDTH)}${plain}`,
    (subject ?? '-').padEnd(SUBJECT_WIDTH),
    ip.padEnd(IP_WIDTH),
    more,
  ];
  // Names that operators chose may contain control characters of terminals.
  return columns
    .map((text, index) => (index < 2 ? text : text.replace(/\p{C}/gu, '?')))
    .join('  ')
    .trimEnd();
}

async function purge(program: Program, { days, json }: PurgeOptions): Promise<void> {
  const stopping = new AbortController();
  process.once('SIGINT', () => stopping.abort());
  const progress = createProgress({
    name: 'records deleted',
    write: (count) => count.toLocaleString('en-US'),
  });
  const { signal } = stopping;
  const report = await purgeAudit(program.name, { days, warn: complain, onProgress: progress.show, signal })
    .finally(progress.end)
    .catch(explaining(program));
  const count = report.removed.toLocaleString('en-US');
  say(json ? JSON.stringify(report) : `Deleted audit records older than ${report.days} days: ${count}`);
  if (report.isComplete) return;
  complain('Interrupted: older records remain.');
  process.exitCode = 130;
}
