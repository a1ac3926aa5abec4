import { execFile, spawn } from 'node:child_process';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import { basic } from '../../kit/app.js';
import { search } from '../../kit/idp.js';
import { COMMAND_SOURCE } from '../../kit/operator.js';
import { compiled } from '../../kit/process.js';
import { addResource, FILES } from '../../kit/resources.js';
import { withOrSkip } from '../../kit/skip.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { waitUntil } from '../../kit/wait.js';
import { startProvider } from './kit.js';

/** The files of docs/idp/revocations.md learn that tokens are revoked. */

const PAGE = readFileSync(join(compiled('.'), '../docs/idp/revocations.md'), 'utf8');
const GO = join(compiled('.'), '../test/campaign/relying-parties/go');
const run = promisify(execFile);

const blockOf = (language: string): string => PAGE.split(`\`\`\`${language}\n`)[1]?.split('```')[0] ?? '';

/** Programs that read the claims of a token from each line, and print whether it is refused. */
const MAINS = {
  python: `import json, sys
from revocations import Revocations
revocations = Revocations(sys.argv[1])
for line in sys.stdin:
    print("refused" if revocations.refuses(json.loads(line)) else "accepted", flush=True)
`,
  go: `package main
import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
)
func main() {
	list := Follow(context.Background(), os.Args[1], 30*time.Second)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var claims Claims
		if err := json.Unmarshal(lines.Bytes(), &claims); err != nil {
			panic(err)
		}
		if list.Refuses(claims) {
			fmt.Println("refused")
		} else {
			fmt.Println("accepted")
		}
	}
}
`,
};

async function follows(t: Test, program: string, ...given: string[]): Promise<void> {
  const { idp, issuer } = await startProvider(t);
  const files = await addResource(t, idp);
  const agents = await Promise.all([idp.mintAgent(), idp.mintAgent(), idp.mintAgent()]);
  const tokenOf = async ({ sub, password }: { sub: string; password: string }): Promise<string> => {
    const { body } = await idp.request('POST', '/token', {
      form: search({ grant_type: 'client_credentials', resource: FILES }),
      headers: { authorization: basic(sub, password) },
    });
    return Buffer.from(body.access_token.split('.')[1], 'base64url').toString();
  };
  const claims = await Promise.all(agents.map(tokenOf));
  const child = spawn(program, [...given, issuer], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.teardown(() => child.kill());
  const answers = createInterface(child.stdout)[Symbol.asyncIterator]();
  const isRefused = async (index: number): Promise<boolean> => {
    child.stdin.write(`${claims[index]}\n`);
    return (await answers.next()).value === 'refused';
  };
  const [first] = agents;
  await waitUntil('the list is known', async () => !(await isRefused(0)));
  await idp.admin('POST', `/v1/principals/${first?.sub}/disable`);
  await waitUntil('it is refused', () => isRefused(0));
  t.equal(await isRefused(1), false, 'another one');
  await files.permissions.allow(agents[1]?.sub ?? '', FILES, {}, COMMAND_SOURCE);
  await files.permissions.withdraw(agents[1]?.sub ?? '', files, COMMAND_SOURCE);
  await files.settled();
  await waitUntil('it is refused', () => isRefused(1));
  t.equal(await isRefused(2), false, 'another one');
}

await withOrSkip(
  {
    name: 'python',
    subject: 'An application in Python',
    want: 'a Python with its packages',
    remedy:
      'Install test/campaign/relying-parties/python/requirements.txt in a virtual environment, and set TEST_PYTHON to its python.',
  },
  async () => {
    const command = process.env['TEST_PYTHON'] ?? 'python3';
    await run(command, ['-c', 'import jwt, requests']);
    return command;
  },
  (command) =>
    t.test('a program in Python refuses what the list names', async (t) => {
      const folder = temporaryFolder(t);
      writeFileSync(join(folder, 'revocations.py'), blockOf('python'));
      writeFileSync(join(folder, 'main.py'), MAINS.python);
      await follows(t, command, join(folder, 'main.py'));
    }),
);

await withOrSkip(
  { name: 'go', subject: 'An application in Go', want: 'a Go toolchain', remedy: 'Install Go.' },
  () => run('go', ['version']),
  () =>
    t.test('a program in Go refuses what the list names', async (t) => {
      const cwd = temporaryFolder(t);
      for (const name of ['go.mod', 'go.sum']) copyFileSync(join(GO, name), join(cwd, name));
      writeFileSync(join(cwd, 'revocations.go'), blockOf('go'));
      writeFileSync(join(cwd, 'main.go'), MAINS.go);
      await run('go', ['build', '-v', '-o', 'api', '.'], { cwd });
      await follows(t, join(cwd, 'api'));
    }),
);
