import { type Localized, message } from '../../core/http/messages.js';
import { type Clock, HOUR, SECOND } from '../../core/kernel/clock.js';
import type { CommitPart, CommitParts } from '../../core/ops/commit.js';
import type { Job } from '../../core/ops/jobs.js';
import { nullIfTaken, type Store } from '../../core/storage/collection.js';

/** What needs attention: on the overview, and once when it begins and when it ends also as what `effects` returns. */

export interface Problem {
  /** Its label is the sentence `attention.<name>`. */
  name: string;
  count: number;
  /** Whether counting ended at `count`. */
  isPart?: boolean;
  /** The page that shows and mends it, relative to the root of the console. */
  path: string;
}

/** A problem that was not there at the run before, or that is not there any more. */
export interface ProblemChange {
  kind: 'began' | 'ended';
  problem: Problem;
  /** When the job noticed it: Unix time in milliseconds. */
  since: number;
}

/** A problem that the operators know of. */
interface ProblemState {
  /** The name. */
  id: string;
  path: string;
  since: number;
}

export const attentionCollection = (store: Store) =>
  store.collection<ProblemState>('attention', { numbers: ['since'] });

export const labelOf = ({ name }: Pick<Problem, 'name'>): Localized => message(`attention.${name}`);

export const countOf =
  ({ count, isPart }: Problem): Localized =>
  ({ locale }) =>
    `${count.toLocaleString(locale)}${isPart === true ? '+' : ''}`;

/** `E-mails that were not sent: 3`. */
export const sentenceOf =
  (problem: Problem): Localized =>
  (catalogue) =>
    `${labelOf(problem)(catalogue)}: ${countOf(problem)(catalogue)}`;

/** More problems than there are. */
const MAX_KNOWN = 100;

/**
 * Compares the problems with those of the run before. The interval is the least time between two messages about the same problem,
 * so that one that comes and goes does not send more.
 */
export function createAttentionJob(
  { store, commit, clock }: { store: Store; commit: CommitParts; clock: Clock },
  {
    read,
    effects,
  }: {
    read(): Promise<readonly Problem[]>;
    /** What follows from a change, for its commit: of several processes, one makes it. */
    effects(change: ProblemChange): Promise<readonly CommitPart[]>;
  },
): Job {
  const states = attentionCollection(store);
  return {
    everySeconds: HOUR / SECOND,
    async run() {
      const { items: known } = await states.page({ sort: 'id', limit: MAX_KNOWN });
      const problems = await read();
      for (const problem of problems) {
        if (known.some(({ id }) => id === problem.name)) continue;
        const { name: id, path } = problem;
        const since = clock.now();
        const following = await effects({ kind: 'began', problem, since });
        await commit([states.inserting({ id, path, since }), ...following]).catch(nullIfTaken);
      }
      for (const { id, path, since } of known) {
        if (problems.some(({ name }) => name === id)) continue;
        const problem = { name: id, count: 0, path };
        const following = await effects({ kind: 'ended', problem, since });
        await commit([states.deleting({ id, since }), ...following]);
      }
    },
  };
}
