import Fastify from 'fastify';
import t from 'tap';
import { createOutageLog } from '../../../src/core/http/outage-log.js';
import { openDatabase } from '../../../src/core/storage/sqlite/store.js';
import { saasApp } from '../../kit/app.js';

interface Line {
  level: number;
  msg: string;
  failures?: number;
  total?: number;
  err?: unknown;
}

/** A log and its lines. */
function collectLog() {
  const lines: Line[] = [];
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) };
  return { log: Fastify({ logger: { stream } }).log, lines };
}

t.test('an outage of the store is one line with the error, counts and the end', async (t) => {
  const { log, lines } = collectLog();
  let tick = () => {};
  let isStopped = false;
  const outages = createOutageLog({
    now: () => 0,
    every(_period, run) {
      isStopped = false;
      tick = run;
      return () => {
        isStopped = true;
      };
    },
  });
  const fail = (count: number) => {
    for (let index = 0; index < count; index++) {
      const err = new Error('the disk is full');
      outages.record(log, { err, requestId: `req_${index}` }, 'The service is unavailable.');
    }
  };
  const taken = () =>
    lines.splice(0).map(({ level, msg, failures, total, err }) => ({
      level,
      msg,
      hasError: err !== undefined,
      ...(failures !== undefined && { failures }),
      ...(total !== undefined && { total }),
    }));
  const first = { level: 40, msg: 'The service is unavailable.', hasError: true };
  const further = {
    level: 40,
    msg: 'further requests failed because the store is not available',
    hasError: false,
  };

  fail(1000);
  t.same(taken(), [first]);
  tick();
  t.same(taken(), [{ ...further, failures: 999, total: 1000 }]);
  fail(5);
  tick();
  t.same(taken(), [{ ...further, failures: 5, total: 1005 }]);
  t.notOk(isStopped);
  tick();
  const end = { level: 30, msg: 'no request fails any more because of the store', hasError: false };
  t.same(taken(), [{ ...end, total: 1005 }]);
  t.ok(isStopped);

  fail(1);
  t.same(taken(), [first], 'the next outage begins anew');
  tick();
  t.same(taken(), [{ ...end, total: 1 }]);
});

t.test('requests that the store rejects share one line, and each has a 503', async (t) => {
  const lines: unknown[] = [];
  const app = await saasApp(t);
  const { accessToken: token } = await app.signUp();
  const { log } = app.server.fastify;
  log.warn = ((...line: unknown[]) => void lines.push(line)) as typeof log.warn;
  const file = await openDatabase(app.file);
  file.exec('BEGIN IMMEDIATE');
  const rename = () => app.request('PATCH', '/api/user/profile', { token, body: { name: 'Ada' } });
  const answers = await Promise.all([rename(), rename(), rename()]);
  t.same(
    answers.map(({ status }) => status),
    [503, 503, 503],
  );
  t.equal(lines.length, 1);
  file.exec('ROLLBACK');
  file.close();
  t.equal((await rename()).status, 200);
});
