/**
 * A histogram whose series are found once and not for each value. The one of prom-client builds a key from all labels each
 * time, which costs a request as much as a tenth of its processing (docs/decisions/core/ops.md).
 */
export interface SeriesHistogram<L extends string> {
  /** Returns the function that records values of one series. It appears with its first value. */
  series(labels: Record<L, string>): (value: number) => void;
  /** The metric in the form in which a registry of prom-client reads it. */
  metric: { name: string; get(): Promise<object> };
}

interface Series {
  labels: Record<string, string>;
  /** For each bucket, and for larger values, the number of values in this bucket alone. */
  counts: number[];
  sum: number;
}

export function createSeriesHistogram<L extends string>({
  name,
  help,
  buckets,
}: {
  name: string;
  help: string;
  /** The upper bounds, ascending. */
  buckets: readonly number[];
}): SeriesHistogram<L> {
  /** By labels. */
  const known = new Map<string, Series>();

  const valuesOf = ({ labels, counts, sum }: Series) => {
    let count = 0;
    const cumulative = counts.map((own, index) => {
      count += own;
      return {
        metricName: `${name}_bucket`,
        labels: { le: buckets[index] ?? '+Inf', ...labels },
        value: count,
      };
    });
    return [
      ...cumulative,
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ];
  };

  return {
    series(labels) {
      const key = JSON.stringify(Object.entries(labels).sort());
      let found: Series | undefined;
      return (value) => {
        found ??= known.get(key);
        if (!found) {
          found = { labels, counts: Array(buckets.length + 1).fill(0), sum: 0 };
          known.set(key, found);
        }
        const { counts } = found;
        let index = 0;
        while (index < buckets.length && value > (buckets[index] as number)) index++;
        counts[index] = (counts[index] as number) + 1;
        found.sum += value;
      };
    },
    metric: {
      name,
      get: async () => ({
        name,
        help,
        type: 'histogram',
        aggregator: 'sum',
        values: [...known.values()].flatMap(valuesOf),
      }),
    },
  };
}
