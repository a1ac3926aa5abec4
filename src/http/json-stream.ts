import { finished, Readable } from 'node:stream';

/**
 * A JSON text that is never whole in memory. An async iterable of pages becomes one array, read page by page as the
 * client takes what came before. Properties that are `undefined` are left out.
 *
 * @param onEnd called once, before the client has the end, or when the stream is destroyed
 */
export function jsonStream(value: object, onEnd: () => void): Readable {
  let isOver = false;
  const end = () => {
    if (!isOver) onEnd();
    isOver = true;
  };
  const text = async function* () {
    yield* chunksOf(value);
    end();
  };
  const stream = Readable.from(text(), { objectMode: false });
  finished(stream, end);
  return stream;
}

async function* chunksOf(value: unknown): AsyncGenerator<string, void, undefined> {
  if (isPages(value)) {
    let separator = '';
    yield '[';
    for await (const page of value) {
      if (page.length === 0) continue;
      yield separator + JSON.stringify(page).slice(1, -1);
      separator = ',';
    }
    yield ']';
  } else if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
    let separator = '{';
    for (const [name, member] of Object.entries(value)) {
      if (member === undefined) continue;
      yield `${separator}${JSON.stringify(name)}:`;
      yield* chunksOf(member);
      separator = ',';
    }
    yield separator === '{' ? '{}' : '}';
  } else yield JSON.stringify(value);
}

const isPages = (value: unknown): value is AsyncIterable<readonly unknown[]> =>
  typeof value === 'object' && value !== null && Symbol.asyncIterator in value;
