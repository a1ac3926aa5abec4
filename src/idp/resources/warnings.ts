import type { JobLog } from '../../core/ops/jobs.js';
import type { Finding } from '../../core/server/doctor.js';
import { MAX_RESOURCES, type ResourceService } from './service.js';
import type { ResourceDocument } from './store.js';

/** What open sign-up means for the APIs, for the start log and `doctor`. */
export function signUpWarnings(
  resources: readonly Pick<ResourceDocument, 'identifier' | 'admitsSelfRegistered'>[],
): Finding[] {
  const findings: Finding[] = [];
  const named = (isAdmitted: boolean) =>
    resources
      .filter(({ admitsSelfRegistered = false }) => admitsSelfRegistered === isAdmitted)
      .map(({ identifier }) => identifier)
      .join(', ');
  const [open, closed] = [named(true), named(false)];
  if (open !== '')
    findings.push({
      level: 'warning',
      about: 'idp resource',
      message: `anyone who signs up gets access tokens with every scope for ${open}`,
      remedy: 'Use idp resource update <uri> --self-registered no, or IDP_DISABLE_SIGNUP=1.',
    });
  if (closed !== '')
    findings.push({
      level: 'ok',
      about: 'idp resource',
      message: `people and agents who registered themselves get no access token for ${closed}`,
    });
  return findings;
}

/** Logs at the start what open sign-up means for the APIs. */
export async function logSignUpWarnings(
  { list }: ResourceService,
  log: Pick<JobLog, 'info' | 'warn'>,
): Promise<void> {
  const { items } = await list(undefined, MAX_RESOURCES);
  for (const { level, about, message, remedy } of signUpWarnings(items)) {
    if (level === 'warning') log.warn(`${about}: ${message}. ${remedy}`);
    else log.info(`${about}: ${message}.`);
  }
}
