import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { DAY } from '../../core/kernel/clock.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { AuditView, toAuditView, writeActor } from '../../core/ops/audit.js';
import type { AuditQuery, AuditSearch } from '../../core/ops/audit-search.js';
import type { Console } from './console.js';
import { registerList } from './lists.js';
import { type Column, toMinute } from './tables.js';

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
  /** What people call a subject, an operator or an agent; null for everything without a name of its own. */
  nameOf: NameOf;
}

export type NameOf = (id: string) => Promise<string | null>;

/** A record with the names of whom it mentions. */
export interface NamedRecord extends AuditView {
  names: ReadonlyMap<string, string>;
}

/** The IDs in a detail. */
const IDS = /\b[a-z]{1,4}_[0-9a-f]{32}\b/g;

/** Finds each name once; the store answers look-ups that arrive together in one query. */
export async function withNames(records: readonly AuditView[], nameOf: NameOf): Promise<NamedRecord[]> {
  const mentioned = records.flatMap(({ subject, by, actor, detail }) => [
    ...[subject, by, actor?.sub, actor?.client],
    ...(detail?.match(IDS) ?? []),
  ]);
  const ids = [...new Set(mentioned)].filter((id) => typeof id === 'string');
  const found = await Promise.all(ids.map(async (id) => [id, await nameOf(id)] as const));
  const names = new Map(found.flatMap(([id, name]) => (name === null ? [] : [[id, name] as const])));
  return records.map((record) => ({ ...record, names }));
}

const namedIn = (names: ReadonlyMap<string, string>, id: string | null | undefined) =>
  id && (names.get(id) ?? id);

/** As {@link writeActor}, with names. */
export function writeNamedActor({ by, actor, names }: NamedRecord): string | null {
  const [sub, client] = [namedIn(names, actor?.sub), namedIn(names, actor?.client)];
  const shown = actor && { ...actor, ...(sub && { sub }), ...(client && { client }) };
  return writeActor({ by: namedIn(names, by) ?? null, ...(shown && { actor: shown }) });
}

/** The columns of audit records: on the page with names, and in CSV with IDs as well. */
export const auditColumns = (pathOf: AuditListOptions['pathOf']): readonly Column<NamedRecord>[] => [
  { label: 'Time', text: ({ at }) => at, kind: 'time' },
  { label: 'Event', text: ({ event, count }) => (count === null ? event : `${event} (${count} times)`) },
  {
    label: 'Subject',
    text: ({ subject, names }) => namedIn(names, subject) ?? null,
    csv: ({ subject }) => subject,
    href: ({ subject }) => pathOf(subject ?? ''),
  },
  { label: 'Name', text: ({ subject, names }) => names.get(subject ?? '') ?? null, only: 'csv' },
  {
    label: 'By',
    text: writeNamedActor,
  },
  { label: 'From', text: ({ ip }) => ip },
  { label: 'Detail', text: writeNamedDetail, csv: ({ detail }) => detail },
];

/** As {@link writeDetail}, with names in place of IDs; others are shortened. */
export function writeNamedDetail({ detail, names }: NamedRecord): string | null {
  const written = writeDetail(detail);
  return written?.replace(IDS, (id) => names.get(id) ?? `${id.slice(0, 12)}…${id.slice(-6)}`) ?? null;
}

/** The detail of a change as people read it: `plan: free → pro`, after what it is about. Every other detail is a text already. */
export function writeDetail(detail: string | null): string | null {
  const start = detail?.indexOf('{') ?? -1;
  const parsed = detail === null || start < 0 ? null : parseObject(detail.slice(start));
  if (detail === null || !parsed) return detail;
  const { before, after, ...more } = parsed;
  const changes = Object.entries((after ?? {}) as Record<string, unknown>).map(([name, value]) => {
    const old = (before as Record<string, unknown> | undefined)?.[name];
    return `${name}: ${writeValue(old)} → ${writeValue(value)}`;
  });
  const others = Object.entries(more).map(([name, value]) => `${name}: ${writeValue(value)}`);
  return detail.slice(0, start) + [...changes, ...others].join('; ');
}

/** Null for the words of an operator, which may begin like JSON. */
function parseObject(text: string): Record<string, unknown> | null {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return null;
  }
}

function writeValue(value: unknown): string {
  if (value === null || value === undefined || value === '') return 'none';
  if (Array.isArray(value)) return value.map(writeValue).join(', ') || 'none';
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

export function registerAuditList(
  fastify: FastifyTypebox,
  console: Console,
  { audit, hint, example, resolve, pathOf, nameOf }: AuditListOptions,
): void {
  registerList<NamedRecord>(fastify, console, {
    path: 'audit',
    title: 'Audit',
    search: {
      label: 'Subject or operator',
      hint,
      maxLength: 254,
      // Without an index, thousands of records would be read.
      isAsked: async (text) => (await resolve(text)).subject !== undefined,
    },
    filters: [
      { name: 'event', label: 'Event', type: 'text', hint: `Its beginning, like login.failed or ${example}` },
      { name: 'from', label: 'From', type: 'date', hint: 'The first day, in UTC.' },
      { name: 'until', label: 'Until', type: 'date', hint: 'The last day, in UTC.' },
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
      return { items: await withNames(items.map(toAuditView), nameOf), next, note };
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
