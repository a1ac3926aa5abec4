import type { Transform } from 'node:stream';
import { text } from 'node:stream/consumers';
import t from 'tap';

/** What `npm test` prints for output of tap that contains details a reader needs. */

const { default: Reporter } = (await import(new URL('../../test/reporter.mjs', import.meta.url).href)) as {
  default: new () => Transform;
};

const OUTPUT = `TAP version 14
1..5
# Subtest: dist/test/auth/login.test.js
    # Subtest: a login
        ok 1 - is possible
        not ok 2 - is told
          ---
          diff: |
            -"right"
            +"wro\u0000ng"
          at:
            fileName: test/auth/login.test.ts
            lineNumber: 7
          ...
        1..2
    not ok 1 - a login # time=3ms
    # Subtest: on MongoDB
        1..0
    ok 2 - on MongoDB # SKIP there is no mongod
    1..2
not ok 1 - dist/test/auth/login.test.js # time=1500ms
# Subtest: dist/test/auth/crash.test.js
    1..0
not ok 2 - dist/test/auth/crash.test.js # time=80ms
  ---
  exitCode: 3
  cause:
    code: ECONNRESET
    message: other side closed
  ...
# Subtest: dist/test/auth/fine.test.js
    ok 1 - holds
    1..1
ok 3 - dist/test/auth/fine.test.js # time=20ms
# Subtest: dist/test/ops/audit.test.js dist/test/ops/jobs.test.js dist/test/settings/settings.test.js
    ok 1 - holds
    1..1
ok 4 - dist/test/ops/audit.test.js dist/test/ops/jobs.test.js dist/test/settings/settings.test.js # time=2000ms
# Subtest: dist/test/auth/silent.test.js
    not ok 1 - says nothing
    1..1
not ok 5 - dist/test/auth/silent.test.js # time=20ms
`;

t.test('each failure is printed once with its reason, and the last line has the totals', async (t) => {
  const reporter = new Reporter();
  reporter.end(OUTPUT);
  const report = await text(reporter);
  t.match(report, /^FAILED +1\.5 s {2}test\/auth\/login\.test\.ts$/m);
  t.match(report, /^ok +0\.0 s {2}test\/auth\/fine\.test\.ts$/m);
  t.match(report, /^ok +2\.0 s {2}test\/ops: audit, jobs; test\/settings: settings$/m);
  t.match(
    report,
    /^not ok test\/auth\/login\.test\.ts > a login > is told\n {4}-"right"\n {4}\+"wro\ufffdng"\n\s+at test\/auth\/login\.test\.ts:7$/m,
  );
  t.match(
    report,
    /^not ok test\/auth\/crash\.test\.ts\n {4}because of: ECONNRESET other side closed\n {4}ended with exit code 3$/m,
  );
  t.match(report, /^not ok test\/auth\/silent\.test\.ts > says nothing$/m);
  t.notMatch(report, 'is possible');
  t.notMatch(report, '\u0000');
  t.match(report, /\n3 passed, 3 failed, 1 skipped \(\d+ s\)\n$/);
});
