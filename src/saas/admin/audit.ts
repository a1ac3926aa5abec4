import { isOrganizationId } from '../../core/http/identity.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { registerAuditList } from '../../shared/console-kit/audit.js';
import type { AdminServices } from './services.js';

const USER_ID = /^usr_\w+$/;

/** The list of audit records. Those of a user have an index, others are searched. */
export async function auditPagePlugin(
  fastify: FastifyTypebox,
  { console, audit, resolveUser, nameOf }: AdminServices,
): Promise<void> {
  registerAuditList(fastify, console, {
    audit,
    hint: 'The ID of a user or an organization, or an e-mail address. After by: what this operator has done.',
    example: 'user.',
    async resolve(text) {
      if (text.startsWith('by:')) {
        const operator = text.slice('by:'.length).trim();
        return { by: USER_ID.test(operator) ? operator : ((await resolveUser(operator)) ?? operator) };
      }
      if (isOrganizationId(text)) return { about: text };
      // The records of a deleted account remain.
      const subject = USER_ID.test(text) ? text : await resolveUser(text);
      return subject === undefined ? { subjects: [text] } : { subject };
    },
    pathOf: (subject) => (USER_ID.test(subject) ? `users/${subject}` : null),
    nameOf,
  });
}
