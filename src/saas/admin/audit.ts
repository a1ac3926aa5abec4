import type { Scope } from '../../core/http/scope.js';
import type { AuditSearch } from '../../core/ops/audit-search.js';
import { registerAuditList } from '../../shared/console-kit/audit.js';
import type { Console } from '../../shared/console-kit/console.js';
import type { ResolveUser } from './users.js';

const USER_ID = /^usr_\w+$/;

/** The list of audit records. Those of a user have an index, others are searched. */
export async function auditPagePlugin(
  scope: Scope,
  { console, audit, resolveUser }: { console: Console; audit: AuditSearch; resolveUser: ResolveUser },
): Promise<void> {
  registerAuditList(scope, console, {
    audit,
    hint: 'A user ID or e-mail address, or the name of an operator.',
    example: 'user.',
    async resolve(text) {
      // The records of a deleted account remain.
      const subject = USER_ID.test(text) ? text : await resolveUser(text);
      return subject === undefined ? { subjects: [text] } : { subject };
    },
    pathOf: (subject) => (USER_ID.test(subject) ? `users/${subject}` : null),
  });
}
