import type { Audit } from '../../src/core/ops/audit.js';
import type { Effect } from '../../src/core/ops/commit.js';

/** For parts of a test that store nothing of what follows from a change. */
export const NO_EFFECT: Effect = { writes: [], afterCommit: () => undefined };

/** An audit that stores nothing. */
export const SILENT_AUDIT: Audit = {
  entry: () => NO_EFFECT,
  record: async () => undefined,
  recordFailure: async () => undefined,
};
