import type { Audit } from '../../src/core/ops/audit.js';
import { NO_EFFECT } from '../../src/core/ops/commit.js';

export { NO_EFFECT };

/** An audit that stores nothing. */
export const SILENT_AUDIT: Audit = {
  entry: () => NO_EFFECT,
  record: async () => undefined,
  recordFailure: async () => undefined,
  failureEntry: () => NO_EFFECT,
};
