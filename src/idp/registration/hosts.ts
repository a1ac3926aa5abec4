/** Lists of hosts, in which `*.example.com` stands for the hosts below `example.com`. */

const HOST = /^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*$/;

/** Why a text is no entry of such a list; `undefined` if it is one. */
export function hostPatternProblem(pattern: string): string | undefined {
  return HOST.test(pattern.toLowerCase())
    ? undefined
    : `'${pattern}' is not a host: use a name like app.example.com or *.example.com, without a scheme or a path`;
}

/** @param host as the URL parser returns it */
export function matchesHost(host: string, patterns: readonly string[]): boolean {
  return patterns.some((pattern) => {
    const lower = pattern.toLowerCase();
    return lower.startsWith('*.') ? host.endsWith(lower.slice(1)) : host === lower;
  });
}

/** Which hosts may name themselves as clients. */
export interface HostPolicy {
  /** Absent: all of them. */
  allowed: readonly string[] | undefined;
  denied: readonly string[];
}

export const isAllowedHost = (host: string, { allowed, denied }: HostPolicy): boolean =>
  !matchesHost(host, denied) && (allowed === undefined || matchesHost(host, allowed));
