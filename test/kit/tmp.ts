import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

/** An empty folder that is removed after the test. */
export function temporaryFolder(t: Pick<Test, 'teardown'>): string {
  const folder = mkdtempSync(join(tmpdir(), 'saas-backend-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
