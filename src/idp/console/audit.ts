import type { FastifyTypebox } from '../../core/http/routes.js';
import { auditColumns, type NameOf, registerAuditList } from '../../shared/console-kit/audit.js';
import { nameOf } from './principals.js';
import type { ConsoleServices } from './sources.js';

/** Records on the page of what they are about. */
export const LISTED_RECORDS = 10;

/** The page about the subject of a record. */
export function subjectPath(subject: string): string | null {
  if (/^u_[0-9a-f]{32}$/.test(subject)) return `principals/${subject}`;
  return subject.startsWith('cid_') ? `clients/${subject}` : null;
}

export const AUDIT_COLUMNS = auditColumns(subjectPath);

/** The name of a principal or an application; records name operators already. */
export const createNameOf =
  ({ principals, clients }: Pick<ConsoleServices['sources'], 'principals' | 'clients'>): NameOf =>
  async (id) => {
    if (id.startsWith('cid_')) return (await clients.find(id))?.name ?? null;
    const principal = id.startsWith('u_') ? await principals.get(id) : null;
    return principal && nameOf(principal);
  };

/** The list of audit records. */
export async function auditPlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  const { audit, principals } = sources;
  registerAuditList(fastify, console, {
    audit,
    nameOf: createNameOf(sources),
    hint: 'A user name, or the ID of a principal or an application.',
    example: 'client.',
    /** Records refer to a principal by its ID or its user name. */
    async resolve(text) {
      const found = await principals.findByName(text);
      return { subjects: found ? [found.id, found.handle] : [text] };
    },
    pathOf: subjectPath,
  });
}
