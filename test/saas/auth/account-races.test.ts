import t, { type Test } from 'tap';
import { onEngines } from '../../core/storage/engines.js';
import { PASSWORD } from '../../kit/app.js';
import { mailSink } from '../../kit/mail.js';
import { type Posted, post, spread, startAll } from '../../kit/saas-processes.js';
import { arrived, CHANGED, RESET } from './kit.js';

/** Fifty concurrent requests on four processes: one succeeds, the others get a 4xx. */

const MANY = 50;

const tally = (answers: Posted[]) => {
  const counts: Record<string, number> = {};
  for (const { status, body } of answers) {
    const name = body?.error?.code ?? status;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
};

async function races(t: Test, databaseUri: string): Promise<void> {
  const sink = await mailSink(t);
  const { urls } = await startAll(t, { emailSmtpUrl: sink.url, databaseUri });
  const [first] = urls as [string];
  const call = (path: string, body: object) => post(`${first}/api${path}`, body);
  const race = (path: string, bodyOf: (index: number) => object, token?: string) =>
    spread(urls, MANY, (url, index) => post(`${url}/api${path}`, bodyOf(index), token ? { token } : {}));
  const mail = async (subject: RegExp) => {
    for (;;) {
      const one = arrived(await sink.next());
      if (subject.test(one.subject)) return one;
    }
  };
  const signUp = async (email: string) =>
    (await call('/auth/register', { email, password: PASSWORD })).body.data;

  await t.test('concurrent registrations of one address create one account', async (t) => {
    const spellings = ['Same@Example.test', 'same@example.test', 'SAME@example.TEST'];
    const answers = await race('/auth/register', (index) => ({
      ...{ email: spellings[index % 3], password: PASSWORD },
    }));
    t.same(tally(answers), { 201: 1, EMAIL_TAKEN: MANY - 1 });
  });

  await t.test('concurrent refreshes of one token have one successor', async (t) => {
    const { refreshToken } = await signUp('refresh@example.test');
    const answers = await race('/auth/refresh', () => ({ refreshToken }));
    t.same(tally(answers), { 200: MANY });
    const successors = new Set(answers.map(({ body }) => body.data.refreshToken));
    t.equal(successors.size, 1, 'all get the same successor');
    const [successor] = [...successors];
    t.equal((await call('/auth/refresh', { refreshToken: successor })).status, 200, 'which goes on');
  });

  await t.test('concurrent resets by one link succeed once', async (t) => {
    const [email, before] = ['reset@example.test', await signUp('reset@example.test')];
    await call('/auth/forgot-password', { email });
    const { token } = await mail(RESET);
    const passwordOf = (index: number) => `the password of number ${index}`;
    const answers = await race('/auth/reset-password', (index) => ({ token, password: passwordOf(index) }));
    t.same(tally(answers), { 200: 1, INVALID_TOKEN: MANY - 1 });
    const winner = answers.findIndex(({ status }) => status === 200);
    const signIn = async (password: string) => (await call('/auth/login', { email, password })).status;
    t.equal(await signIn(passwordOf(winner)), 200);
    t.equal(await signIn(passwordOf((winner + 1) % MANY)), 401);
    const ended = await race('/auth/refresh', () => ({ refreshToken: before.refreshToken }));
    t.same(tally(ended), { INVALID_REFRESH_TOKEN: MANY }, 'sessions have ended in every process');
    await mail(CHANGED);
    t.equal(sink.mails.filter((one) => CHANGED.test(arrived(one).subject)).length, 1);
  });

  await t.test('concurrent deletions of one account delete it once', async (t) => {
    const { accessToken } = await signUp('gone@example.test');
    const answers = await race('/user/delete', () => ({ password: PASSWORD }), accessToken);
    const { 200: won, INVALID_CREDENTIALS = 0, RATE_LIMITED = 0, UNAUTHENTICATED = 0 } = tally(answers);
    t.equal(won, 1);
    t.equal(INVALID_CREDENTIALS + RATE_LIMITED + UNAUTHENTICATED, MANY - 1, JSON.stringify(tally(answers)));
    t.ok(await signUp('gone@example.test'));
  });
}

await onEngines((engine, fresh) => {
  t.test(`${engine}: races of accounts`, (t) => races(t, fresh(t)));
});
