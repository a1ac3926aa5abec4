import closeWithGrace, { type CloseWithGraceAsyncCallback, type Options } from 'close-with-grace';

export const STOP_SIGNALS = ['SIGINT', 'SIGTERM'] as const;

/** It is not safe to handle them in JavaScript (Node's documentation of signals), and Deno throws. */
const FAULTS = ['SIGBUS', 'SIGFPE', 'SIGILL', 'SIGSEGV'] as const;

/**
 * Calls `stop` after a signal or an uncaught error, and ends the process then; a second signal ends it at once.
 *
 * @param options of close-with-grace
 */
export function stopGracefully(
  options: Options,
  stop: CloseWithGraceAsyncCallback,
): ReturnType<typeof closeWithGrace> {
  const { skip = [] } = options;
  // Deno also calls the listeners that are added while it delivers a signal: it would take the first one for the second.
  const deferred = 'Deno' in globalThis ? STOP_SIGNALS.filter((signal) => !skip.includes(signal)) : [];
  const closing = closeWithGrace({ ...options, skip: [...skip, ...deferred, ...FAULTS] }, stop);
  for (const signal of deferred) process.once(signal, () => setImmediate(closing.close));
  return closing;
}
