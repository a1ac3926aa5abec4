import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { DAY } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { AuditView, toAuditView, writeActor } from '../../core/ops/audit.js';
import type { AuditQuery, AuditSearch } from '../../core/ops/audit-search.js';
import type { Console } from './console.js';
import { type Column, registerList, toMinute } from './lists.js';

/** The list of audit records, which both products have. */
export interface AuditListOptions {
  audit: AuditSearch;
  /** What the operator can enter as the subject, as a sentence. */
  hint: string;
  /** An example of the beginning of an event. */
  example: string;
  /** Which records a text means: those of a subject or those that contain one of several names. */
  resolve(text: string): Promise<Pick<AuditQuery, 'subject' | 'subjects' | 'about'>>;
  /** The page about the subject of a record. */
  pathOf(subject: string): string | null;
}

/** The columns of audit records. */
export const auditColumns = (pathOf: AuditListOptions['pathOf']): readonly Column<AuditView>[] => [
  { label: 'Time', text: ({ at }) => at, kind: 'time' },
  { label: 'Event', text: ({ event, count }) => (count === null ? event : `${event} (${count} times)`) },
  {
    label: 'Subject',
    text: ({ subject }) => subject,
    href: ({ subject }) => pathOf(subject ?? ''),
    kind: 'code',
  },
  { label: 'By', text: writeActor },
  { label: 'From', text: ({ ip }) => ip },
  { label: 'Detail', text: ({ detail }) => detail },
];

export function registerAuditList(
  fastify: FastifyTypebox,
  console: Console,
  { audit, hint, example, resolve, pathOf }: AuditListOptions,
): void {
  registerList<AuditView>(fastify, console, {
    path: 'audit',
    title: 'Audit',
    search: { label: 'Subject or operator', hint, maxLength: 254 },
    filters: [
      { name: 'event', label: 'Event', type: 'text', hint: `Its beginning, like login.failed or ${example}` },
      { name: 'from', label: 'From', type: 'date', hint: 'A day like 2026-01-31.' },
      { name: 'until', label: 'Until', type: 'date', hint: 'A day; it is included.' },
    ],
    columns: auditColumns(pathOf),
    item: AuditView,
    async read({ search, filters, after, limit }) {
      const { event, from, until } = filters;
      const { searchedUntil, items, next } = await audit.search({
        event,
        ...(search !== undefined && (await resolve(search))),
        from: startOf('from', from),
        until: until === undefined ? undefined : (startOf('until', until) ?? 0) + DAY,
        after,
        limit,
      });
      const reached = searchedUntil === undefined ? undefined : toMinute(toTimestamp(searchedUntil));
      const note = reached && `Searched back to ${reached}. The next page continues with older records.`;
      return { items: items.map(toAuditView), next, note };
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
