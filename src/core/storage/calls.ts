/** Calls to a database server: with a timeout, within the budget of the request, tracked until they end. */
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { StoreUnavailable } from './collection.js';
import { currentBudget, withoutBudget } from './request-budget.js';

/** A call fails after this time, even if the driver is still trying. */
export const CALL_TIMEOUT_MS = 5000;

/** The pause after a failure of what runs beside the calls. */
const RETRY_MS = 1000;

/** What a store does beside its calls. */
export class Background {
  #hasEnded = false;

  /** Repeats a step until it returns that nothing is left. */
  async repeat(step: () => Promise<boolean>): Promise<void> {
    while (!this.#hasEnded) {
      try {
        if (!(await withoutBudget(step))) return;
      } catch {
        // The calls report why the database fails, and need nothing of what is done here.
        await sleep(RETRY_MS, undefined, { ref: false });
      }
    }
  }

  end(): void {
    this.#hasEnded = true;
  }
}

/** The running calls of one store. */
export class RunningCalls {
  readonly #calls = new Set<Promise<unknown>>();
  #closing: Promise<void> | undefined;

  /**
   * Runs a call.
   *
   * @param toError translates its errors
   * @throws StoreUnavailable once the store is closed
   */
  async run<R>(begin: () => Promise<R>, toError = (error: unknown) => error): Promise<R> {
    if (this.#closing) throw new StoreUnavailable('the store is closed');
    const call = begin();
    this.#calls.add(call);
    try {
      return await call;
    } catch (error) {
      throw toError(error);
    } finally {
      this.#calls.delete(call);
    }
  }

  /** Waits for running calls, then releases the connection. */
  close(release: () => Promise<void>): Promise<void> {
    this.#closing ??= Promise.allSettled(this.#calls).then(release);
    return this.#closing;
  }
}

/**
 * Waits until `begin` has called one of its functions or, at the latest, until the end of the request's budget (without a
 * request: the call timeout). A call of a request without any time left does not begin. One promise and one timer, because
 * every call of a request waits here.
 *
 * @param timeoutError called at the end of the time; creates the error of the call
 */
export function waitFor<R>(
  begin: (resolve: (result: R) => void, reject: (error: unknown) => void) => void,
  timeoutError: (hasBegun: boolean) => unknown,
): Promise<R> {
  const budget = currentBudget();
  const timeoutMs = budget ? budget.leftMs() : CALL_TIMEOUT_MS;
  if (timeoutMs <= 0) return Promise.reject(timeoutError(false));
  return new Promise((resolve, reject) => {
    const endWait = budget?.beginWait();
    const timer = setTimeout(() => {
      endWait?.();
      budget?.spend();
      reject(timeoutError(true));
    }, timeoutMs);
    const end = () => {
      clearTimeout(timer);
      endWait?.();
    };
    begin(
      (result) => {
        end();
        resolve(result);
      },
      (error) => {
        end();
        reject(error);
      },
    );
  });
}

/** Returns a function that tells how long the call that begins now may still take. */
export function timeLeft(): () => number {
  const budget = currentBudget();
  if (budget) return () => budget.leftMs();
  const until = performance.now() + CALL_TIMEOUT_MS;
  return () => until - performance.now();
}

/** The error of a call of `waitFor` whose effect is unknown once it has begun. */
export const noResponse = (engine: string, mayHaveTakenEffect: boolean): StoreUnavailable =>
  new StoreUnavailable(`${engine}: no response within ${CALL_TIMEOUT_MS / 1000} seconds`, {
    mayHaveTakenEffect,
  });

/** Longer than the election of a replica set with default settings, which is some 15 seconds, or the promotion of a standby. */
const MAX_START_MS = 30_000;

/** Repeats a step while the database starts, or elects its primary. Each attempt has lasted as long as a call may. */
export async function onceStarted<R>(
  step: () => Promise<R>,
  isStarting: (error: unknown) => boolean,
): Promise<R> {
  const until = performance.now() + MAX_START_MS;
  for (;;) {
    try {
      return await step();
    } catch (error) {
      if (!isStarting(error) || performance.now() >= until) throw error;
    }
  }
}

/** How long a call has taken that began at this time. */
export const latencyOf = (startedAt: number): string => `${Math.ceil(performance.now() - startedAt)} ms`;
