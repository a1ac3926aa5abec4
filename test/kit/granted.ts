import type { Clock } from '../../src/core/kernel/clock.js';
import type { Random } from '../../src/core/kernel/secrets.js';
import type { Audit, AuditLog } from '../../src/core/ops/audit.js';
import { createBackgroundTasks } from '../../src/core/ops/background-tasks.js';
import { createCommit } from '../../src/core/ops/commit.js';
import type { Store } from '../../src/core/storage/collection.js';
import type { Directory } from '../../src/idp/oidc/directory.js';
import { createGrantedAccess } from '../../src/idp/oidc/granted-access.js';
import { SILENT_AUDIT } from './effects.js';

/** What people have allowed, and how it ends, as one process has it; and what its services need besides. */
export function grantedIn(
  store: Store,
  { clock, random }: { clock: Clock; random: Random },
  {
    audit = SILENT_AUDIT,
    hasResources = false,
    findPrincipal = async () => null,
  }: { audit?: Audit; hasResources?: boolean; findPrincipal?: Directory['findPrincipal'] } = {},
) {
  const backgroundTasks = createBackgroundTasks({ error: () => undefined });
  const shared = { commit: createCommit(store), audit: audit as AuditLog, clock, random };
  const granted = createGrantedAccess(
    { store, backgroundTasks, ...shared },
    { resources: { hasAny: async () => hasResources }, findPrincipal, wake: () => undefined },
  );
  return { ...granted, ...shared, backgroundTasks };
}
