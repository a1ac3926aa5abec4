/** Dex between the provider and an application: the example as it is shipped, and what docs/broker.md says of it. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { compiled, startProgram } from '../kit/process.js';
import { withOrSkip } from '../kit/skip.js';

const ROOT = join(compiled('.'), '..');
const EXAMPLE = join(ROOT, 'examples/dex-broker.mjs');
const run = promisify(execFile);

const missing = {
  name: 'dex',
  subject: 'Dex as a broker',
  want: 'a Dex',
  remedy: 'Make one with test/relying-parties/dex.sh <file>, and set TEST_DEX to that file.',
};

await withOrSkip(missing, findDex, (dex) => {
  t.test('people and agents sign in through Dex, which refuses a foreign key', async (t) => {
    const { stdout } = await run(process.execPath, [EXAMPLE, '--dex', dex]);
    for (const kind of ['human', 'agent']) {
      t.match(stdout, new RegExp(`^${kind} signed in: .*"kind":"${kind}"`, 'm'));
      t.match(stdout, new RegExp(`^${kind} refused with a foreign key: failed to verify id token`, 'm'));
    }
  });

  t.test('an agent signs in through a broker with the commands of docs/broker.md', async (t) => {
    const example = startProgram(t, EXAMPLE, { args: ['--dex', dex, '--stay'] });
    const [, url = ''] = await example.printed(/^sign in at (.+)/);
    const [, password = ''] = await example.printed(/^agent: scout@agents\.example (.+)/);
    const page = readFileSync(join(ROOT, 'docs/broker.md'), 'utf8');
    const commands = page.split('## An agent at a broker\n')[1]?.match(/```sh\n([\s\S]*?)```/)?.[1] ?? '';
    t.match(commands, 'curl');
    // Nobody listens at the application, so the last of them fails once it is there.
    const script = `cd "$(mktemp -d)"\n${commands}\nrm -r "$PWD"\necho "$arrived"`;
    const env = { PATH: process.env['PATH'], url, password };
    const { stdout } = await run('sh', ['-c', script], { env });
    t.match(stdout, /^http:\/\/127\.0\.0\.1\/callback\?code=/);
    t.equal(await example.terminate(), 0);
  });
});

async function findDex(): Promise<string> {
  const dex = process.env['TEST_DEX'] ?? 'dex';
  await run(dex, ['version']);
  return dex;
}
