import { existsSync, readFileSync } from 'node:fs';

/** File descriptors reserved for the store, e-mail, the payment provider and the log. */
const RESERVED_DESCRIPTORS = 256;

const LIMITS = '/proc/self/limits';

/** The limit on open files and sockets (`ulimit -n`); `Infinity` if there is none. */
function descriptorLimit(): number {
  if (existsSync(LIMITS)) {
    const [, soft] = /^Max open files\s+(\d+)/m.exec(readFileSync(LIMITS, 'utf8')) ?? [];
    return soft === undefined ? Number.POSITIVE_INFINITY : Number(soft);
  }
  const { userLimits } = process.report.getReport() as {
    userLimits?: { open_files?: { soft?: number | string } };
  };
  const soft = userLimits?.open_files?.soft;
  return typeof soft === 'number' ? soft : Number.POSITIVE_INFINITY;
}

/** The configured number of connections, reduced to the available file descriptors. */
export function connectionLimit(configured: number, limit: number = descriptorLimit()): number {
  return Math.min(configured, Math.max(limit - RESERVED_DESCRIPTORS, Math.floor(limit / 2)));
}
