import { SECOND } from '../../core/kernel/clock.js';

const MAX_TIMEOUT_MS = 10 * SECOND;

/** Problems of the option `hooks`, for the start. */
export function hooksProblems(hooks: unknown): string[] {
  if (typeof hooks !== 'object' || hooks === null) return ["'hooks' must be an object."];
  const { timeoutMs, ...functions } = hooks as Record<string, unknown>;
  const known = ['beforeRegister', 'afterLogin', 'accessTokenClaims', 'checkoutSession'];
  const isTimeout =
    timeoutMs === undefined ||
    (Number.isInteger(timeoutMs) && Number(timeoutMs) >= 1 && Number(timeoutMs) <= MAX_TIMEOUT_MS);
  return [
    ...Object.entries(functions).flatMap(([name, hook]) => {
      if (!known.includes(name)) return [`'hooks.${name}' is no hook; they are: ${known.join(', ')}.`];
      return hook === undefined || typeof hook === 'function' ? [] : [`'hooks.${name}' must be a function.`];
    }),
    ...(isTimeout ? [] : [`'hooks.timeoutMs' must be a whole number from 1 to ${MAX_TIMEOUT_MS}.`]),
  ];
}
