import { performance } from 'node:perf_hooks';

/** A progress line on stderr. */
export interface Progress {
  /** @param total absent when the amount is unknown */
  show(done: number, total?: number): void;
  /** Clears the line. */
  end(): void;
}

const BAR_WIDTH = 24;

const REFRESH_INTERVAL_MS = 100;

/**
 * Writes nothing unless the stream is a terminal.
 *
 * @param unit the name of what is counted, and how its amount is written
 */
export function createProgress(
  unit: { name: string; write(count: number): string },
  stream: Pick<NodeJS.WriteStream, 'write' | 'isTTY'> = process.stderr,
  now: () => number = () => performance.now(),
): Progress {
  if (!stream.isTTY) return { show() {}, end() {} };
  const since = now();
  let last = Number.NEGATIVE_INFINITY;
  return {
    show(done, total) {
      const at = now();
      if (at - last < REFRESH_INTERVAL_MS) return;
      last = at;
      const rate = done / Math.max(0.001, (at - since) / 1000);
      const speed = `${unit.write(done)} ${unit.name}, ${unit.write(rate)}/s`;
      stream.write(
        `\r\x1b[K${total === undefined ? speed : `${bar(done, total)} ${speed}${eta(done, total, rate)}`}`,
      );
    },
    end: () => void stream.write('\r\x1b[K'),
  };
}

function bar(done: number, total: number): string {
  const part = Math.min(1, done / Math.max(1, total));
  const full = Math.round(part * BAR_WIDTH);
  return `[${'='.repeat(full)}${' '.repeat(BAR_WIDTH - full)}] ${Math.floor(part * 100)} %`;
}

function eta(done: number, total: number, rate: number): string {
  if (rate === 0 || done >= total) return '';
  const seconds = Math.ceil((total - done) / rate);
  return `, ${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')} left`;
}
