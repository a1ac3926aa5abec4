/** Limits processes to a share of a processor, with control groups of Linux, which takes root. */
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Where version 1 of control groups has its controller of processors, and version 2 all of them. */
const VERSION_1 = '/sys/fs/cgroup/cpu';
const VERSION_2 = '/sys/fs/cgroup';

/** Microseconds. A process that has used its share waits for at most as long. */
const PERIOD = 10_000;

/** Whether processes can be limited here. */
export function canLimitProcessors(): boolean {
  try {
    accessSync(existsSync(VERSION_1) ? VERSION_1 : join(VERSION_2, 'cgroup.subtree_control'), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Gives a process that share of one processor, until it ends; a primary's workers get as much each.
 *
 * @returns removes the limit once the processes have ended
 */
export function limitProcessors(pid: number, share: number): () => Promise<void> {
  const workers = childrenOf(pid);
  const groups = (workers.length > 0 ? workers : [pid]).map((each) =>
    createGroup(each, Math.round(share * PERIOD)),
  );
  return async () => {
    for (const group of groups) {
      while (readFileSync(join(group, 'cgroup.procs'), 'utf8') !== '') await sleep(2);
      rmdirSync(group);
    }
  };
}

/** The children of a process. @throws without /proc */
export function childrenOf(pid: number): number[] {
  return (readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').match(/\d+/g) ?? []).map(Number);
}

function createGroup(pid: number, quota: number): string {
  const isFirst = existsSync(VERSION_1);
  if (!isFirst) writeFileSync(join(VERSION_2, 'cgroup.subtree_control'), '+cpu');
  const group = join(isFirst ? VERSION_1 : VERSION_2, `saas-backend-bench-${pid}`);
  const set = (name: string, value: string | number) => writeFileSync(join(group, name), String(value));
  mkdirSync(group);
  if (isFirst) {
    set('cpu.cfs_period_us', PERIOD);
    set('cpu.cfs_quota_us', quota);
  } else {
    set('cpu.max', `${quota} ${PERIOD}`);
  }
  set('cgroup.procs', pid);
  return group;
}
