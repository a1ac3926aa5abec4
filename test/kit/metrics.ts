/** A strict parser of the text format of Prometheus, version 0.0.4. */

export interface Series {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export interface Exposition {
  /** The types by the names of the metrics. */
  types: Map<string, string>;
  series: Series[];
  /** The value of the series with exactly these labels. */
  value(name: string, labels?: Record<string, string>): number | undefined;
  /** The sum over the series with at least these labels. */
  sum(name: string, labels?: Record<string, string>): number;
}

const COMMENT = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)/y;
const SUFFIXES: Record<string, RegExp> = { histogram: /_(bucket|sum|count)$/, summary: /_(sum|count)$/ };

/** @throws for a line that Prometheus would reject, a metric without a type, and a series that occurs twice */
export function parseMetrics(text: string): Exposition {
  if (!text.endsWith('\n')) throw new Error('The last line does not end with a line feed.');
  const types = new Map<string, string>();
  const series: Series[] = [];
  const seen = new Set<string>();
  for (const line of text.split('\n').filter((one) => one !== '')) {
    if (line.startsWith('#')) {
      const [, kind, name = '', value = ''] = COMMENT.exec(line) ?? [];
      if (!kind) throw new Error(`not a comment: ${line}`);
      if (kind === 'HELP') continue;
      if (types.has(name)) throw new Error(`${name} occurs twice`);
      types.set(name, value);
      continue;
    }
    const [, name = '', labelText = '', number = ''] = SAMPLE.exec(line) ?? [];
    const value = number === '+Inf' ? Number.POSITIVE_INFINITY : Number(number);
    if (name === '' || (Number.isNaN(value) && !/^nan$/i.test(number)))
      throw new Error(`not a sample: ${line}`);
    const labels = parseLabels(labelText);
    const key = keyOf(name, labels);
    if (seen.has(key)) throw new Error(`${line} occurs twice`);
    seen.add(key);
    const isDeclared = [...types].some(
      ([metric, type]) => metric === name || metric === name.replace(SUFFIXES[type] ?? /$^/, ''),
    );
    if (!isDeclared) throw new Error(`${name} has no type`);
    series.push({ name, labels, value });
  }
  return {
    types,
    series,
    value: (name, labels = {}) =>
      series.find((one) => keyOf(one.name, one.labels) === keyOf(name, labels))?.value,
    sum: (name, labels = {}) =>
      series
        .filter((one) => one.name === name)
        .filter((one) => Object.entries(labels).every(([label, value]) => one.labels[label] === value))
        .reduce((sum, { value }) => sum + value, 0),
  };
}

function parseLabels(text: string): Record<string, string> {
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < text.length) {
    const at = LABEL.lastIndex;
    const [, name, value] = LABEL.exec(text) ?? [];
    if (name === undefined || value === undefined) throw new Error(`not labels: ${text.slice(at)}`);
    if (name in labels) throw new Error(`the label ${name} occurs twice`);
    labels[name] = value.replace(/\\(.)/g, (_all, char) => (char === 'n' ? '\n' : char));
  }
  return labels;
}

const keyOf = (name: string, labels: Record<string, string>) =>
  JSON.stringify([name, Object.entries(labels).sort(([one], [other]) => (one < other ? -1 : 1))]);
