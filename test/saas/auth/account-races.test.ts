import t, { type Test } from 'tap';
import { type Mongod, onMongod } from '../../core/storage/mongod.js';
import { type Answer, PASSWORD, parseJson, testOptions } from '../../kit/app.js';
import { mailSink } from '../../kit/mail.js';
import { compiled, startProgram } from '../../kit/process.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { arrived, CHANGED, RESET, VERIFY } from './kit.js';

/** Fifty concurrent requests, on one to four processes: one succeeds, the others get a 4xx. */

const MANY = 50;

interface Race {
  /** Uses the processes in turn. */
  call(path: string, body: object, token?: string): Promise<{ status: number; body: Answer['body'] }>;
  tokenIn(subject: RegExp): Promise<string>;
  /** The number of e-mails of a kind so far. */
  count(subject: RegExp): number;
  /** Waits for the next e-mail of a kind. */
  mail(subject: RegExp): Promise<unknown>;
}

async function start(t: Test, processes: number, databaseUri?: string): Promise<Race> {
  const sink = await mailSink(t);
  const options = {
    ...testOptions(temporaryFolder(t)),
    ...(databaseUri && { databaseUri }),
    emailSmtpUrl: sink.url,
    logLevel: 'info',
  };
  const programs = Array.from({ length: processes }, () =>
    startProgram(t, compiled('test/kit/saas-server.js'), { args: [JSON.stringify(options)] }),
  );
  const urls = await Promise.all(programs.map((program) => program.url()));
  let calls = 0;
  const mail = async (subject: RegExp) => {
    for (;;) {
      const one = arrived(await sink.next());
      if (subject.test(one.subject)) return one;
    }
  };
  return {
    async call(path, body, token) {
      const response = await fetch(`${urls[calls++ % urls.length]}/api${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(token && { authorization: `Bearer ${token}` }) },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: parseJson(await response.text()) };
    },
    mail,
    tokenIn: async (subject) => (await mail(subject)).token,
    count: (subject) => sink.mails.filter((one) => subject.test(arrived(one).subject)).length,
  };
}

const all = <T>(act: (index: number) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: MANY }, (_, index) => act(index)));

const tally = (answers: { status: number; body: Answer['body'] }[]) => {
  const counts: Record<string, number> = {};
  for (const { status, body } of answers) {
    const name = body?.error?.code ?? status;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
};

async function races(t: Test, { call, tokenIn, count, mail }: Race): Promise<void> {
  const signIn = (email: string, password: string) => call('/auth/login', { email, password });
  const signUp = async (email: string) =>
    (await call('/auth/register', { email, password: PASSWORD })).body.data;

  await t.test('concurrent registrations of one address create one account', async (t) => {
    const spellings = ['Same@Example.test', 'same@example.test', 'SAME@example.TEST'];
    const answers = await all((index) =>
      call('/auth/register', { email: spellings[index % 3], password: PASSWORD }),
    );
    t.same(tally(answers), { 201: 1, EMAIL_TAKEN: MANY - 1 });
  });

  await t.test('concurrent refreshes of one token have one successor', async (t) => {
    const { refreshToken } = await signUp('refresh@example.test');
    const answers = await all(() => call('/auth/refresh', { refreshToken }));
    t.same(tally(answers), { 200: MANY });
    const successors = new Set(answers.map(({ body }) => body.data.refreshToken));
    t.equal(successors.size, 1, 'all get the same successor');
    const [successor] = [...successors];
    t.equal((await call('/auth/refresh', { refreshToken: successor })).status, 200, 'which goes on');
  });

  await t.test('concurrent resets by one link succeed once', async (t) => {
    const [email, before] = ['reset@example.test', await signUp('reset@example.test')];
    await call('/auth/forgot-password', { email });
    const token = await tokenIn(RESET);
    const passwordOf = (index: number) => `the password of number ${index}`;
    const answers = await all((index) =>
      call('/auth/reset-password', { token, password: passwordOf(index) }),
    );
    t.same(tally(answers), { 200: 1, INVALID_TOKEN: MANY - 1 });
    const winner = answers.findIndex(({ status }) => status === 200);
    t.equal((await signIn(email, passwordOf(winner))).status, 200);
    t.equal((await signIn(email, passwordOf((winner + 1) % MANY))).status, 401);
    const { status } = await call('/auth/refresh', { refreshToken: before.refreshToken });
    t.equal(status, 401, 'sessions have ended in every process');
    await mail(CHANGED);
    t.equal(count(CHANGED), 1);
  });

  await t.test('concurrent confirmations by one link, each with a new password, succeed once', async (t) => {
    const [email, before] = ['confirm@example.test', await signUp('confirm@example.test')];
    await call('/auth/resend-verification', { email });
    const token = await tokenIn(VERIFY);
    const notices = count(CHANGED);
    const passwordOf = (index: number) => `the password of number ${index}`;
    const answers = await all((index) => call('/auth/verify-email', { token, password: passwordOf(index) }));
    t.same(tally(answers), { 200: 1, INVALID_TOKEN: MANY - 1 });
    const winner = answers.findIndex(({ status }) => status === 200);
    t.equal((await signIn(email, passwordOf(winner))).status, 200);
    t.equal((await signIn(email, PASSWORD)).status, 401, 'the password of the registration has ended');
    const { status } = await call('/auth/refresh', { refreshToken: before.refreshToken });
    t.equal(status, 401, 'sessions have ended in every process');
    await mail(CHANGED);
    t.equal(count(CHANGED), notices + 1);
  });

  await t.test(
    'concurrent changes to one address and registrations of it give it to one account',
    async (t) => {
      const rivals = ['one@example.test', 'two@example.test', 'three@example.test'];
      for (const email of rivals) {
        const { accessToken } = await signUp(email);
        await call('/user/email', { email: 'wanted@example.test', password: PASSWORD }, accessToken);
      }
      const tokens: string[] = [];
      for (const _ of rivals) tokens.push(await tokenIn(VERIFY));
      const person = { email: 'wanted@example.test', password: PASSWORD };
      const answers = await all((index) =>
        index % 2
          ? call('/auth/register', person)
          : call('/auth/verify-email', { token: tokens[index % 3], password: PASSWORD }),
      );
      const won = answers.filter(({ status }) => status < 300);
      t.equal(won.length, 1);
      const { EMAIL_TAKEN = 0, INVALID_TOKEN = 0 } = tally(answers);
      t.equal(EMAIL_TAKEN + INVALID_TOKEN, MANY - 1, 'the others get an error code');
      t.equal((await signIn(person.email, PASSWORD)).status, 200);
    },
  );

  await t.test('concurrent password changes of one account succeed once', async (t) => {
    const { accessToken } = await signUp('change@example.test');
    const answers = await all((index) =>
      call(
        '/user/password',
        { currentPassword: PASSWORD, newPassword: `number ${index} it is` },
        accessToken,
      ),
    );
    const { 200: won, INVALID_CREDENTIALS = 0, RATE_LIMITED = 0, UNAUTHENTICATED = 0 } = tally(answers);
    t.equal(won, 1);
    t.equal(INVALID_CREDENTIALS + RATE_LIMITED + UNAUTHENTICATED, MANY - 1, JSON.stringify(tally(answers)));
  });

  await t.test('concurrent deletions of one account delete it once', async (t) => {
    const { accessToken } = await signUp('gone@example.test');
    const answers = await all(() => call('/user/delete', { password: PASSWORD }, accessToken));
    const { 200: won, INVALID_CREDENTIALS = 0, RATE_LIMITED = 0, UNAUTHENTICATED = 0 } = tally(answers);
    t.equal(won, 1);
    t.equal(INVALID_CREDENTIALS + RATE_LIMITED + UNAUTHENTICATED, MANY - 1, JSON.stringify(tally(answers)));
    t.equal((await call('/auth/register', { email: 'gone@example.test', password: PASSWORD })).status, 201);
  });
}

for (const processes of [1, 4]) {
  t.test(`SQLite, ${processes} process(es)`, async (t) => races(t, await start(t, processes)));
}

await onMongod((server: Mongod) => {
  t.test('MongoDB, 4 processes', async (t) => races(t, await start(t, 4, server.fresh(t))));
});
