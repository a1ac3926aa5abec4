import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { ENV, pack } from '../../kit/applications.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { blocksOf } from '../../package/documents/blocks.js';

/** A coding agent that does only what docs/skill/SKILL.md says, from an empty folder. */

const run = promisify(execFile);

t.test('the skill makes an application with sign-up, a protected route, a plan and tests', async (t) => {
  const archive = await pack(t);
  const parent = temporaryFolder(t);
  const printed: string[] = [];
  let cwd = parent;
  for (const { language, text } of blocksOf('docs/skill/SKILL.md')) {
    const [, file] = /^\/\/ (my-app\/\S+)\n/.exec(text) ?? [];
    if (file) writeFileSync(join(parent, file), text);
    else if (language === 'sh') {
      const options = { cwd, env: { ...ENV, SAAS_BACKEND: archive }, maxBuffer: 2 ** 26 };
      const running = run('sh', ['-exc', text], options);
      const { stdout } = await running.catch(({ stdout, stderr }) => {
        throw new Error(`a command failed:\n${stdout.slice(-3000)}\n${stderr.slice(-3000)}`);
      });
      printed.push(stdout);
      // The shell of an agent stays where a command has led.
      if (text.startsWith('cd my-app\n')) cwd = join(parent, 'my-app');
    }
  }
  const [created = '', tested = '', , verified] = printed;
  t.match(JSON.parse(created), { framework: 'fastify', installed: true });
  t.match(tested, /pass 4\n[\s\S]*fail 0\n/);
  t.match(verified, /pass 5\n[\s\S]*fail 0\n/);
});
