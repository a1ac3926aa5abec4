import t, { type Test } from 'tap';
import { onEngines } from '../../core/storage/engines.js';
import { mailSink, readMail } from '../../kit/mail.js';
import { post, spread, startAll } from '../../kit/saas-processes.js';

/** Requests with mailed codes at four processes at once, with the system clock. */

async function loginCodes(t: Test, databaseUri: string): Promise<void> {
  const sink = await mailSink(t);
  const { urls } = await startAll(t, { emailLogin: true, emailSmtpUrl: sink.url, databaseUri });
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

await onEngines((engine, fresh) => {
  t.test(`${engine}: four processes accept a mailed code once, and five wrong ones`, (t) =>
    loginCodes(t, fresh(t)),
  );
});
