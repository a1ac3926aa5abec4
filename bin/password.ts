import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { withoutByteOrderMark } from '../src/core/kernel/text.js';
import { fail } from './terminal.js';

/** Longer than any valid password in any encoding. */
const MAX_INPUT_BYTES = 4096;

/** Asks twice on the terminal and does not echo the input. */
export async function askPassword(): Promise<string> {
  const silence = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: process.stdin, output: silence, terminal: true });
  lines.once('SIGINT', () => fail(130, ''));
  const ask = async (prompt: string) => {
    process.stderr.write(prompt);
    const answer = await lines.question('');
    process.stderr.write('\n');
    return answer;
  };
  try {
    const password = await ask('Password: ');
    if ((await ask('Again: ')) === password) return password;
  } finally {
    lines.close();
  }
  return fail(1, 'The passwords do not match.');
}

/** Reads a stream to its end, without the line break there. */
export async function readPassword(input: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of input) {
    bytes += chunk.length;
    if (bytes > MAX_INPUT_BYTES) fail(1, 'The input is too long for a password.');
    chunks.push(chunk);
  }
  return withoutByteOrderMark(Buffer.concat(chunks).toString('utf8')).replace(/\r?\n$/, '');
}
