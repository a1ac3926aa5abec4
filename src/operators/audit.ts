import type { Console } from '../console/console.js';
import { type Column, registerList, toMinute } from '../console/lists.js';
import { toTimestamp } from '../http/schemas.js';
import type { Scope } from '../http/scope.js';
import { DAY } from '../kernel/clock.js';
import { invalidFields } from '../kernel/errors.js';
import type { AuditRecord } from '../ops/audit.js';
import type { ConsoleSources } from './sources.js';

/** The page about the subject of a record. */
function subjectPath({ subject = '' }: AuditRecord): string | null {
  if (/^u_[0-9a-f]{32}$/.test(subject)) return `principals/${subject}`;
  return subject.startsWith('cid_') ? `clients/${subject}` : null;
}

export const AUDIT_COLUMNS: readonly Column<AuditRecord>[] = [
  { label: 'Time', text: ({ at }) => toTimestamp(at), kind: 'time' },
  { label: 'Event', text: ({ event, count }) => (count === undefined ? event : `${event} (${count} times)`) },
  { label: 'Subject', text: ({ subject }) => subject ?? null, href: subjectPath, kind: 'code' },
  { label: 'By', text: ({ by }) => by ?? null },
  { label: 'From', text: ({ ip }) => ip },
  { label: 'Detail', text: ({ detail }) => detail ?? null },
];

/** The list of audit records. */
export async function auditPlugin(
  scope: Scope,
  { console, sources: { audit, principals } }: { console: Console; sources: ConsoleSources },
): Promise<void> {
  /** The names by which records refer to an ID or a user name. */
  const namesOf = async (text: string): Promise<string[]> => {
    const found = await principals.findByHandle(text);
    return found ? [found.id, found.handle] : [text];
  };

  registerList(scope, console, {
    path: 'audit',
    title: 'Audit',
    search: {
      label: 'Subject or operator',
      hint: 'A user name, or the ID of a principal or an application.',
      maxLength: 254,
    },
    filters: [
      { name: 'event', label: 'Event', type: 'text', hint: 'Its beginning, like login.failed or client.' },
      { name: 'from', label: 'From', type: 'date' },
      { name: 'until', label: 'Until', type: 'date' },
    ],
    columns: AUDIT_COLUMNS,
    async read({ search, filters, after, limit }) {
      const { event, from, until } = filters;
      const { searchedUntil, ...page } = await audit.search({
        event,
        subjects: search === undefined ? undefined : await namesOf(search),
        from: startOf('from', from),
        until: until === undefined ? undefined : (startOf('until', until) ?? 0) + DAY,
        after,
        limit,
      });
      const reached = searchedUntil === undefined ? undefined : toMinute(toTimestamp(searchedUntil));
      const note = reached && `Searched back to ${reached}. The next page continues with older records.`;
      return { ...page, note };
    },
    empty: 'There are no records yet.',
  });
}

/** The first millisecond of a day. @throws VALIDATION_ERROR */
function startOf(path: string, day: string | undefined): number | undefined {
  if (day === undefined) return undefined;
  const time = Date.parse(day);
  if (!(time >= 0)) throw invalidFields({ path, message: 'must be a day like 2026-01-31' });
  return time;
}
