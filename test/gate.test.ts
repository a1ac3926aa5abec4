import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import t from 'tap';

/** What runs the tests: the list of sections, the reporter and the watchdog. */

const ROOT = new URL('../../', import.meta.url);

interface Section {
  name: string;
  run: string;
  tests?: string[];
  repeats?: string[];
}
interface Sections {
  SECTIONS: Section[];
  NO_CHECKS: string[];
  testFiles(): string[];
}
interface Output {
  start(file: string): void;
  fail(reason: string): void;
  ended: Promise<void>;
}
interface Reporter {
  Report: new (
    total: number,
    print: (text: string) => void,
  ) => {
    follow(stream: PassThrough): Output;
    summarize(): { failed: number; results: { file: string; ok: boolean }[] };
  };
  END: string;
}
interface Watchdog {
  reportFolder(): { folder: string; env: Record<string, string> };
  stacksOf(pid: number, folder: string): Promise<string>;
}
const load = (path: string): Promise<unknown> => import(new URL(path, ROOT).href);
const { SECTIONS, NO_CHECKS, testFiles } = (await load('.ci/sections.mjs')) as Sections;
const { Report, END } = (await load('test/reporter.mjs')) as Reporter;
const { reportFolder, stacksOf } = (await load('.ci/watchdog.mjs')) as Watchdog;

t.test('every script and every test file belongs to one section of the gate or the campaign', async (t) => {
  const { scripts } = JSON.parse(readFileSync(new URL('package.json', ROOT), 'utf8'));
  const once = (names: string[]) => t.same(names.toSorted(), [...new Set(names)].sort());
  once(SECTIONS.map(({ name }) => name));

  // Sections with several shards or engines name their script again.
  const named = SECTIONS.flatMap(({ run }) =>
    [...run.matchAll(/\bnpm (?:run )?([\w:]+)/g)].map(([, name]) => name),
  );
  const checks = new Set(named.filter((name) => name !== 'ci' && !NO_CHECKS.includes(`${name}`)));
  once([...checks, ...NO_CHECKS] as string[]);
  t.same([...checks, ...NO_CHECKS].toSorted(), Object.keys(scripts).sort());

  const files = testFiles();
  const owned = SECTIONS.flatMap(({ tests = [] }) => tests);
  once(owned);
  for (const file of [...owned, ...SECTIONS.flatMap(({ repeats = [] }) => repeats)])
    t.ok(files.includes(file), file);
  for (const { name, tests, repeats, run } of SECTIONS)
    if (tests || repeats) {
      const [, script = ''] = /npm run (test:\w+)/.exec(run) ?? [];
      t.ok(`${run} ${scripts[script]}`.match(new RegExp(`--suite "?${name}`)), `${name} runs its files`);
    }
});

/** Output of two test files of one process. */
const OUTPUT = `TAP version 14
# Subtest: a login
    ok 1 - is possible
    not ok 2 - is told
      ---
      diff: |
        -"right"
        +"wro\u0000ng"
      at:
        fileName: dist/test/gate.test.js
        lineNumber: 1
        columnNumber: 1
      ...
    1..2
not ok 1 - a login # time=3ms
# Subtest: on MongoDB
    1..0
ok 2 - on MongoDB # SKIP there is no mongod
# Subtest: ${END}
    1..0
ok 3 - ${END.trim()} # time=1ms
ok 4 - ${END}{"file":"dist/test/saas/auth/login.test.js","ms":1500,"processor":1}
ok 5 - holds
ok 6 - ${END}{"file":"dist/test/saas/auth/fine.test.js","ms":20,"processor":1}
# Subtest: crashes
    1..0
not ok 7 - crashes # time=80ms
  ---
  cause:
    code: ECONNRESET
    message: other side closed
  ...
`;

t.test(
  'each failure is printed once with its file, its reason and the command that repeats it',
  async (t) => {
    let printed = '';
    const report = new Report(3, (text) => {
      printed += text;
    });
    const stream = new PassThrough();
    const output = report.follow(stream);
    for (const name of ['login', 'fine', 'crash']) output.start(`dist/test/saas/auth/${name}.test.js`);
    stream.end(OUTPUT);
    await output.ended;
    output.fail('ended with exit code 3');
    const { failed, results } = report.summarize();

    t.equal(failed, 3);
    t.match(results, [{ ok: false }, { ok: true }, { ok: false, file: 'dist/test/saas/auth/crash.test.js' }]);
    t.match(printed, /^FAILED +1\.5 s {2}test\/saas\/auth\/login\.test\.ts$/m);
    t.match(printed, /^ok +0\.0 s {2}test\/saas\/auth\/fine\.test\.ts$/m);
    t.match(
      printed,
      /^not ok test\/saas\/auth\/login\.test\.ts > a login > is told\n {4}-"right"\n {4}\+"wro\ufffdng"\n\s+at test\/gate\.test\.ts:1$/m,
    );
    t.match(
      printed,
      /^not ok test\/saas\/auth\/crash\.test\.ts > crashes\n {4}because of: ECONNRESET other side closed$/m,
    );
    t.match(printed, /^not ok test\/saas\/auth\/crash\.test\.ts > ended with exit code 3$/m);
    t.match(
      printed,
      'node test/run.mjs dist/test/saas/auth/login.test.js dist/test/saas/auth/crash.test.js\n',
    );
    t.notMatch(printed, 'is possible');
    t.notMatch(printed, '\u0000');
    t.match(printed, /\n2 passed, 3 failed, 1 skipped \(\d+ s\)\n$/);
  },
);

t.test('the stacks of a process that does not end name its function', async (t) => {
  const { folder, env } = reportFolder();
  const busy = spawn(
    process.execPath,
    ['-e', 'function waitForever() { console.log(1); for (;;); } waitForever()'],
    { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] },
  );
  t.teardown(() => busy.kill('SIGKILL'));
  await once(busy.stdout, 'data');
  if (process.platform === 'linux') t.match(await stacksOf(busy.pid as number, folder), 'waitForever');
});
