export interface Line {
  /** From 1. */
  number: number;
  /** Without the byte order mark that some programs begin a file with; or why it cannot be read. */
  text: string | { reason: string };
  /** Bytes of the input up to its end. */
  bytes: number;
}

const NEWLINE = 0x0a;

/** Says so of other bytes: what is replaced in silence could not be repaired by another import. */
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** The lines of a text, of which never more than one chunk and `limit` bytes are kept. */
export async function* readLines(input: AsyncIterable<Uint8Array>, limit: number): AsyncGenerator<Line> {
  let kept: Uint8Array[] = [];
  let length = 0;
  let number = 0;
  let bytes = 0;
  const keep = (part: Uint8Array) => {
    bytes += part.length;
    length += part.length;
    if (length > limit) kept = [];
    else kept.push(part);
  };
  const read = (): Line['text'] => {
    if (length > limit) return { reason: `is longer than ${limit / 1024} KiB` };
    try {
      return utf8.decode(Buffer.concat(kept));
    } catch {
      return { reason: 'is not valid UTF-8' };
    }
  };
  const end = (): Line => {
    const text = read();
    kept = [];
    length = 0;
    return { number: ++number, text, bytes };
  };
  for await (const chunk of input) {
    let start = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, start)) {
      keep(chunk.subarray(start, at));
      bytes++;
      yield end();
      start = at + 1;
    }
    keep(chunk.subarray(start));
  }
  if (length > 0) yield end();
}
