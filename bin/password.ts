import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { fail } from './terminal.js';

/** No password is longer, whatever its encoding. */
const MOST_BYTES = 4096;

/** Asks twice on the terminal, without showing what is typed. */
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
  return fail(1, 'These were two different passwords.');
}

/** The whole of a stream but the end of its line. */
export async function readPassword(input: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of input) {
    bytes += chunk.length;
    if (bytes > MOST_BYTES) fail(1, 'This is too long for a password.');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}
