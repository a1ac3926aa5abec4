import { toTimestamp } from '../../../core/http/schemas.js';
import { httpErrors } from '../../../core/kernel/errors.js';
import { auditActor, type Operator } from '../../../core/ops/audit.js';
import { decideAndCommit } from '../../../core/ops/commit.js';
import type { ProfileChangeDependencies } from './profile-change.js';

/** A note of operators about a user. */
export interface UserNote {
  text: string;
  /** The operator. */
  by: string;
  /** ISO 8601 */
  at: string;
}

/**
 * Replaces the note of operators about a user; an empty one removes it. The audit does not repeat the text.
 * @param replaces `at` of the note as the operator has read it; absent if there was none
 * @throws NOT_FOUND; VERSION_CONFLICT if another operator has written one meanwhile
 */
export const createSetNote =
  ({ users, audit, commit, clock }: ProfileChangeDependencies) =>
  (
    id: string,
    { note = '', replaces }: { note?: string; replaces?: string },
    operator: Operator,
  ): Promise<void> =>
    decideAndCommit(commit, async () => {
      const user = await users.findOne({ id });
      if (!user || user.deletingAt !== undefined) throw httpErrors.NOT_FOUND();
      const { note: before, profileVersion = null } = user;
      const text = note.replaceAll('\r\n', '\n').trim();
      if (text === (before?.text ?? '')) return { result: undefined };
      if ((before && toTimestamp(before.at)) !== replaces) throw httpErrors.VERSION_CONFLICT();
      const at = Math.max(clock.now(), (before?.at ?? 0) + 1);
      const change =
        text === '' ? { unset: ['note'] as const } : { set: { note: { text, by: operator.name, at } } };
      const parts = [
        users.changing({ id, profileVersion, deletingAt: null }, { ...change, inc: { profileVersion: 1 } }),
        audit.entry({ event: 'user.noted', subject: id, ...auditActor(operator) }),
      ];
      return { parts, result: undefined };
    });
