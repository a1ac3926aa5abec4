import { mailboxOf } from '../../core/http/mailboxes.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type Random, sha256 } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { BackgroundTasks } from '../../core/ops/background-tasks.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { linkUrl, newLinkToken } from './first-operator.js';
import { canonicalForm, isPossibleHandle } from './handles.js';
import { MAIL_REQUESTS, mailsTo } from './limits.js';
import { type PersonMails, RESET_LINK_LIFETIME_MS } from './mails.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** Links for forgotten passwords, which are sent only to the mailbox that the handle names. */
export type Recovery = ReturnType<typeof createRecovery>;

export interface RecoveryDependencies {
  commit: CommitParts;
  audit: Pick<Audit, 'recordFailure'>;
  mails: Pick<PersonMails, 'passwordReset'>;
  throttle: Pick<Throttle, 'count' | 'tryCountKey'>;
  backgroundTasks: Pick<BackgroundTasks, 'run'>;
  issuer(): string;
  clock: Clock;
  random: Random;
}

const RESETS = mailsTo('reset');

export function createRecovery(
  principals: Pick<PrincipalCollection, 'findOne' | 'changing'>,
  { commit, mails, throttle, backgroundTasks, issuer, audit, clock, random }: RecoveryDependencies,
) {
  const sendReset = async (person: PrincipalDocument, source: RequestSource): Promise<void> => {
    const { id } = person;
    const token = newLinkToken(id, random);
    const link = {
      url: linkUrl(issuer(), token),
      hash: sha256(token),
      expiresAt: clock.now() + RESET_LINK_LIFETIME_MS,
    };
    await commit([
      principals.changing(
        { id, kind: 'human', state: 'active' },
        { set: { mailedLinkHash: link.hash, mailedLinkExpiresAt: link.expiresAt } },
      ),
      mails.passwordReset(person, link, source),
    ]);
  };

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
        if (found && mailboxOf(account) !== undefined) await sendReset(found, source);
      });
    },
  };
}
