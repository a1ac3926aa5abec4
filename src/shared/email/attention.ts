import { longTime } from '../../core/http/messages.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import type { Effect } from '../../core/ops/commit.js';
import { countOf, labelOf, type ProblemChange } from '../console-kit/attention.js';
import type { Outbox } from './outbox.js';

/** The mails to operators about a problem that has begun or ended, for the commit that stores it. */
export const createAttentionMails =
  ({
    outbox,
    to,
    urlOf,
    clock,
  }: {
    outbox: Pick<Outbox, 'mail'>;
    to: readonly string[];
    /** The address of a page of the console. */
    urlOf(path: string): string;
    clock: Clock;
  }) =>
  ({ kind, problem, since }: ProblemChange): Effect[] =>
    to.map((address) =>
      outbox.mail({
        key: `attention-${kind}:${problem.name}:${since}:${address}`,
        to: address,
        template: `attention-${kind}`,
        values: {
          problem: labelOf(problem),
          count: countOf(problem),
          since: longTime(since),
          link: urlOf(problem.path),
        },
        security: true,
        expiresAt: clock.now() + DAY,
      }),
    );
