import { addressOf } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Audit } from '../../core/ops/audit.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import type { Addresses } from './addresses.js';
import { isPossibleHandle } from './handles.js';
import { MAIL_REQUESTS, mailsTo } from './limits.js';
import type { PersonMails } from './mails.js';
import type { PrincipalCollection } from './store.js';

/** Links for forgotten passwords, which are sent only to the address of the account. */
export type Recovery = ReturnType<typeof createRecovery>;

export interface RecoveryDependencies {
  commit: CommitParts;
  audit: Pick<Audit, 'recordFailure'>;
  mails: Pick<PersonMails, 'passwordReset'>;
  addresses: Pick<Addresses, 'accountOf'>;
  throttle: Pick<Throttle, 'count' | 'tryCountKey'>;
  backgroundTasks: Pick<BackgroundTasks, 'run'>;
}

const RESETS = mailsTo('reset');

export function createRecovery(
  principals: Pick<PrincipalCollection, 'findOne' | 'changing'>,
  { commit, mails, addresses, throttle, backgroundTasks, audit }: RecoveryDependencies,
) {
  return {
    /**
     * Sends a link to an active person who has an e-mail address, after the response, which is the same for every name. It replaces the
     * previous mailed link, but not the link of an operator.
     * @param name a handle or an e-mail address
     * @throws RATE_LIMITED
     */
    async forgotPassword(name: string, source: RequestSource) {
      const { ip } = source;
      await throttle.count(MAIL_REQUESTS, ip);
      if (!isPossibleHandle(name)) return;
      backgroundTasks.run('password reset', async () => {
        const account = await addresses.accountOf(name);
        if (!(await throttle.tryCountKey(RESETS, account, ip))) return;
        const found = await principals.findOne({ handle: account });
        await audit.recordFailure({ event: 'password.forgotten', ip, ...(found && { subject: found.id }) });
        if (!found || addressOf(found) === undefined) return;
        // The operator may have mistyped it, and its owner has not proven the account.
        if (found.emailSetAt !== undefined && found.emailVerifiedAt === undefined) return;
        const { stored, mail } = mails.passwordReset(found, source);
        const { id, email = null } = found;
        const where = { id, email, kind: 'human', state: 'active' } as const;
        await commit([principals.changing(where, { set: stored }), mail]);
      });
    },
  };
}
