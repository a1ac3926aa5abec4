import t, { type Test } from 'tap';
import { onMongod } from '../../core/storage/mongod.js';
import { basic, PASSWORD } from '../../kit/app.js';
import { mailSink, readMail } from '../../kit/mail.js';
import { compiled, startProgram } from '../../kit/process.js';
import { PROCESSES, type Processes, post, spread, startAll } from '../../kit/saas-processes.js';
import { waitUntil } from '../../kit/wait.js';

/** Accounts in four processes on one store, with the system clock. */

const me = async (url: string, token: string) =>
  (await fetch(`${url}/api/auth/me`, { headers: { authorization: `Bearer ${token}` } })).status;

/** Concurrent guesses, counted by all processes together. */
async function guesses(t: Test, { programs, urls, options }: Processes): Promise<void> {
  const [url] = urls as [string];
  /** Attempts without an outcome, which may stay counted. */
  let unanswered = 0;
  /** Repeats a login that ends with 503, as clients do: on a busy machine, the store may not respond in time. */
  const login = (email: string, password: string) => async (at: string) => {
    let status = 503;
    await waitUntil('the outcome of a login', async () => {
      status = (await post(`${at}/api/auth/login`, { email, password })).status;
      if (status === 503) unanswered++;
      return status !== 503;
    });
    return status;
  };

  await t.test('concurrent logins with the right password are accepted', async (t) => {
    const person = { email: 'right@example.test', password: PASSWORD };
    t.equal((await post(`${url}/api/auth/register`, person)).status, 201);
    const statuses = await spread(urls, 40, login(person.email, PASSWORD));
    t.same(new Set(statuses), new Set([200]));
  });

  await t.test(
    'ten wrong passwords from one address are evaluated, whether the account knows it or not',
    async (t) => {
      const person = { email: 'known@example.test', password: PASSWORD };
      t.equal((await post(`${url}/api/auth/register`, person)).status, 201);
      t.equal(await login(person.email, PASSWORD)(url), 200);
      for (const email of [person.email, 'unknown@example.test']) {
        unanswered = 0;
        const statuses = await spread(urls, 100, login(email, 'not the password'));
        const evaluated = statuses.filter((status) => status === 401).length;
        // On a slow machine an eleventh guess is evaluated after a minute.
        const least = 10 - unanswered;
        t.ok(evaluated >= least && evaluated <= 11, `${email}: ${evaluated} of at least ${least} evaluated`);
        t.equal(statuses.filter((status) => status === 429).length, statuses.length - evaluated);
      }
    },
  );

  await t.test('counted failures survive a restart', async (t) => {
    await Promise.all(programs.map((program) => program.kill()));
    const args = [JSON.stringify(options)];
    const again = await startProgram(t, compiled('test/kit/saas-server.js'), { args }).url();
    const statuses = await spread([again], 20, login('unknown@example.test', 'not the password'));
    t.ok(statuses.filter((status) => status === 401).length <= 1, 'the delays go on');
  });
}

t.test('four processes share login throttling on one SQLite file', async (t) =>
  guesses(t, await startAll(t)),
);

/** Requests with mailed codes, at all processes at once. */
async function loginCodes(t: Test, more: { databaseUri?: string } = {}): Promise<void> {
  const sink = await mailSink(t);
  const { urls } = await startAll(t, { emailLogin: true, emailSmtpUrl: sink.url, ...more });
  const [url] = urls as [string];
  const request = async () => {
    const asked = await post(`${url}/api/auth/email-login`, { email: 'ada@example.test' });
    let code: string | undefined;
    while (code === undefined) code = /^\w{4}-\w{4}(?=\r?$)/m.exec(readMail(await sink.next()).text)?.[0];
    return { loginToken: asked.body.data.loginToken as string, code };
  };
  /** The outcomes of 50 requests, of which those that end with 503 are not repeated. */
  const redeem = async (given: { loginToken: string; code: string }) => {
    const answers = await spread(urls, 50, (at) => post(`${at}/api/auth/email-login/redeem`, given));
    const count = (status: number, code?: string) =>
      answers.filter((answer) => answer.status === status && answer.body.error?.code === code).length;
    return { signedIn: count(200), wrong: count(401, 'INVALID_CODE'), expired: count(401, 'CODE_EXPIRED') };
  };

  for (const state of ['a new address', 'an account']) {
    const { signedIn, wrong, expired } = await redeem(await request());
    t.same({ signedIn, wrong }, { signedIn: 1, wrong: 0 }, state);
    t.ok(expired >= 40, `${state}: ${expired} came too late`);
  }
  const given = await request();
  const { signedIn, wrong } = await redeem({ ...given, code: 'ABCD-EFGH' });
  t.equal(signedIn, 0);
  t.ok(wrong <= 5, `${wrong} wrong codes compared`);
  t.equal((await redeem(given)).signedIn, 0, 'too late');
}

t.test('four processes accept a mailed code once, and five wrong ones, on one SQLite file', async (t) =>
  loginCodes(t),
);

await onMongod((server) => {
  t.test('four processes share login throttling on one MongoDB', async (t) =>
    guesses(t, await startAll(t, { databaseUri: server.fresh(t) })),
  );

  t.test('four processes accept a mailed code once, and five wrong ones, on one MongoDB', async (t) =>
    loginCodes(t, { databaseUri: server.fresh(t) }),
  );
});

t.test('four processes share accounts and sessions on one SQLite file', async (t) => {
  const { programs, urls, options } = await startAll(t);
  const [url] = urls as [string];
  const person = { email: 'same@example.test', password: PASSWORD };

  await t.test('concurrent registrations of one address create one account', async (t) => {
    const answers = await spread(urls, 48, (url) => post(`${url}/api/auth/register`, person));
    t.equal(answers.filter(({ status }) => status === 201).length, 1);
    t.equal(answers.filter(({ status }) => status === 409).length, 47);
  });

  await t.test('concurrent refreshes of one token have one successor', async (t) => {
    const { refreshToken } = (await post(`${url}/api/auth/login`, person)).body.data;
    const answers = await spread(urls, 48, (url) => post(`${url}/api/auth/refresh`, { refreshToken }));
    t.same(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.equal(new Set(answers.map(({ body }) => body.data.refreshToken)).size, 1);
    for (const { body } of answers) t.equal(await me(url, body.data.accessToken), 200);
  });

  await t.test('a logout is effective in every process at once', async (t) => {
    const { accessToken, refreshToken } = (await post(`${url}/api/auth/login`, person)).body.data;
    t.same(await spread(urls, PROCESSES, (url) => me(url, accessToken)), [200, 200, 200, 200]);
    t.equal((await post(`${url}/api/auth/logout`, { refreshToken, scope: 'global' })).status, 200);
    t.same(await spread(urls, PROCESSES, (url) => me(url, accessToken)), [401, 401, 401, 401]);
  });

  await t.test('a change of settings reaches every process', async (t) => {
    const admin = { authorization: basic(), 'x-requested-with': 'test', 'content-type': 'application/json' };
    const close = async (maintenanceMode: boolean, version: number) => {
      const body = JSON.stringify({ maintenanceMode, version });
      const { status } = await fetch(`${url}/admin/api/settings`, { method: 'PATCH', headers: admin, body });
      t.equal(status, 200);
    };
    const isClosed = async (url: string) => (await me(url, 'nobody')) === 503;
    for (const [isOn, version] of [
      [true, 0],
      [false, 1],
    ] as const) {
      await close(isOn, version);
      // The delay is tested with an injected clock; here, only that the change arrives.
      for (const url of urls)
        await waitUntil(`maintenance mode ${isOn}`, async () => (await isClosed(url)) === isOn);
    }
  });

  await t.test('no session is lost when a process is killed', async (t) => {
    const { refreshToken } = (await post(`${url}/api/auth/login`, person)).body.data;
    const rotated = (await post(`${url}/api/auth/refresh`, { refreshToken })).body.data;
    await Promise.all(programs.map((program) => program.kill()));
    const args = [JSON.stringify(options)];
    const again = await startProgram(t, compiled('test/kit/saas-server.js'), { args }).url();
    t.equal(await me(again, rotated.accessToken), 200);
    const repeated = await post(`${again}/api/auth/refresh`, { refreshToken });
    t.equal(repeated.body.data.refreshToken, rotated.refreshToken, 'a lost answer can be asked for again');
  });
});
