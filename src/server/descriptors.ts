import { existsSync, readFileSync } from 'node:fs';

/** Descriptors that stay free for the store, mails, the payment provider and the log. */
const RESERVED = 256;

const LIMITS = '/proc/self/limits';

/** How many files and sockets this process may have open at once (`ulimit -n`); `Infinity` where there is no limit. */
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

/** The connections that a server may have open without running out of descriptors. */
export function connectionLimit(configured: number, limit: number = descriptorLimit()): number {
  return Math.min(configured, Math.max(limit - RESERVED, Math.floor(limit / 2)));
}
