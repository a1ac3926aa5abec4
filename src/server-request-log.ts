import type { FastifyBaseLogger } from 'fastify';

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
type Level = (typeof LEVELS)[number];
type Bindings = Parameters<FastifyBaseLogger['child']>[0];
type Line = (...line: unknown[]) => void;

/**
 * Lets the log of a request be made with its first line. Where `LOG_LEVEL` is above `info` hardly any request has one,
 * and making its log is a twentieth of what the shortest answers cost.
 */
export function logSparingly(log: FastifyBaseLogger): void {
  const { isLevelEnabled } = log as FastifyBaseLogger & { isLevelEnabled(level: Level): boolean };
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

    write(level: Level, line: unknown[]): void {
      if (this.#made || isLevelEnabled.call(log, level)) (this.made as Record<Level, Line>)[level](...line);
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
