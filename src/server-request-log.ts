import type { FastifyBaseLogger } from 'fastify';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
type Level = (typeof LEVELS)[number];
type Bindings = Parameters<FastifyBaseLogger['child']>[0];
type Line = (...line: unknown[]) => void;

/** What pino knows beyond what Fastify asks of a log, which may be another one. */
interface Levelled {
  isLevelEnabled(level: Level): boolean;
}

/** Whether a line of this level is written at all, so that it need not be laid out for nobody. */
export const isHeard = (log: FastifyBaseLogger, level: Level): boolean =>
  (log as Partial<Levelled>).isLevelEnabled?.(level) ?? true;

/**
 * Lets the log of a request be made with its first line. Where `LOG_LEVEL` is above `info` hardly any request has one,
 * and making its log is a twentieth of what the shortest answers cost.
 */
export function logSparingly(log: FastifyBaseLogger): void {
  const make = log.child;

  class RequestLog {
    readonly #bindings: Bindings;
    #made: FastifyBaseLogger | undefined;

    constructor(bindings: Bindings) {
      this.#bindings = bindings;
    }

    get made(): FastifyBaseLogger {
      this.#made ??= make.call(log, this.#bindings, {});
      return this.#made;
    }

    isLevelEnabled(level: Level): boolean {
      return isHeard(this.#made ?? log, level);
    }

    write(level: Level, line: unknown[]): void {
      if (this.isLevelEnabled(level)) (this.made as Record<Level, Line>)[level](...line);
    }
  }

  for (const level of LEVELS) {
    const value = function (this: RequestLog, ...line: unknown[]) {
      this.write(level, line);
    };
    // Also hosts put methods of their own in their place.
    Object.defineProperty(RequestLog.prototype, level, { value, writable: true });
  }
  // Whatever else somebody asks of a log.
  const others = new Proxy(log, {
    get(_log, name, { made }: RequestLog) {
      const value = Reflect.get(made, name);
      return typeof value === 'function' ? value.bind(made) : value;
    },
    set: (_log, name, value, { made }: RequestLog) => Reflect.set(made, name, value),
  });
  Object.setPrototypeOf(RequestLog.prototype, others);

  // A route with a level or serializers of its own has them in what is made at once, and so has the child of a child.
  log.child = function (bindings, options = {}) {
    return this !== log || Object.keys(options).length > 0
      ? make.call(this, bindings, options)
      : (new RequestLog(bindings) as unknown as FastifyBaseLogger);
  };
}
