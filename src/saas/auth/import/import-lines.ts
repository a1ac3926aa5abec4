export interface Line {
  /** Starts at 1. */
  number: number;
  /** The line without a byte order mark, or the reason why it cannot be read. */
  text: string | { reason: string };
  /** Bytes of the input up to the end of the line. */
  bytes: number;
}

const NEWLINE = 0x0a;

/** Rejects invalid UTF-8, because a silently replaced character could not be repaired by another import. */
const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Splits an input into lines. Buffers at most one chunk and `maxBytes` of a line. */
export async function* readLines(input: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Line> {
  let parts: Uint8Array[] = [];
  let length = 0;
  let number = 0;
  let bytes = 0;
  const append = (part: Uint8Array) => {
    bytes += part.length;
    length += part.length;
    if (length > maxBytes) parts = [];
    else parts.push(part);
  };
  const decode = (): Line['text'] => {
    if (length > maxBytes) return { reason: `is longer than ${maxBytes / 1024} KiB` };
    try {
      return utf8.decode(Buffer.concat(parts));
    } catch {
      return { reason: 'is not valid UTF-8' };
    }
  };
  const endLine = (): Line => {
    const text = decode();
    parts = [];
    length = 0;
    return { number: ++number, text, bytes };
  };
  for await (const chunk of input) {
    let start = 0;
    for (let at = chunk.indexOf(NEWLINE); at !== -1; at = chunk.indexOf(NEWLINE, start)) {
      append(chunk.subarray(start, at));
      bytes++;
      yield endLine();
      start = at + 1;
    }
    append(chunk.subarray(start));
  }
  if (length > 0) yield endLine();
}
