import { mailboxOf } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Audit } from '../../core/ops/audit.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import { MAIL_REQUESTS, mailsTo } from './limits.js';
import type { PersonMails } from './mails.js';
import type { PrincipalCollection } from './store.js';

/** Links for forgotten passwords, which are sent only to the mailbox that the handle names. */
export type Recovery = ReturnType<typeof createRecovery>;

export interface RecoveryDependencies {
  commit: CommitParts;
  audit: Pick<Audit, 'recordFailure'>;
  mails: Pick<PersonMails, 'passwordReset'>;
  throttle: Pick<Throttle, 'count' | 'tryCountKey'>;
  backgroundTasks: Pick<BackgroundTasks, 'run'>;
}

const RESETS = mailsTo('reset');

export function createRecovery(
  principals: Pick<PrincipalCollection, 'findOne' | 'changing'>,
  { commit, mails, throttle, backgroundTasks, audit }: RecoveryDependencies,
) {
  return {
    /**
     * Sends a link if the handle is the e-mail address of an active person, after the response, which is the same for every
     * handle. It replaces the previous mailed link, but not the link of an operator. @throws RATE_LIMITED
     */
    async forgotPassword(handle: string, source: RequestSource) {
      const { ip } = source;
      await throttle.count(MAIL_REQUESTS, ip);
      const account = canonicalForm(handle);
      if (!isPossibleHandle(account)) return;
      backgroundTasks.run('password reset', async () => {
        if (!(await throttle.tryCountKey(RESETS, account, ip))) return;
        const found = await principals.findOne({ handle: account });
        await audit.recordFailure({
          event: 'password.forgotten',
          ip,
          ...(found && { subject: found.id }),
        });
        if (!found || mailboxOf(account) === undefined) return;
        const { stored, mail } = mails.passwordReset(found, source);
        const where = { id: found.id, kind: 'human', state: 'active' } as const;
        await commit([principals.changing(where, { set: stored }), mail]);
      });
    },
  };
}
