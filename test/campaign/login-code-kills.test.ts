import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openStore } from '../../src/core/storage/open.js';
import { userCollection } from '../../src/saas/auth/store.js';
import { onMongod } from '../core/storage/mongod.js';
import { testOptions } from '../kit/app.js';
import { json, type KillableProgram, oneProcess, underKills } from '../kit/kills.js';
import { mailSink, readMail } from '../kit/mail.js';
import { temporaryFolder } from '../kit/tmp.js';
import { waitUntil } from '../kit/wait.js';

/** kill -9 of saas-backend while people sign in with mailed codes. */

function codes(t: Test, databaseUri = `sqlite:${join(temporaryFolder(t), 'saas.db')}`) {
  return t.test('a mailed code is used once, and its account is whole, after kill -9', async (t) => {
    const sink = await mailSink(t);
    const options = { ...testOptions(temporaryFolder(t)), databaseUri, emailSmtpUrl: sink.url };
    const victim = await oneProcess(t, 'test/kit/saas-server.js', {
      ...options,
      ...{ emailLogin: true, limits: false },
    });
    /** A mail whose delivery was killed is delivered again; other mails contain no code. */
    const codesFor = (email: string) =>
      sink.mails
        .filter(({ to }) => to.includes(email))
        .map((mail) => codeIn(readMail(mail).text))
        .filter((code) => code !== undefined);

    /** A code for an address; null if a kill may have prevented its mail. */
    const request = async (killable: KillableProgram, email: string) => {
      const [known, replaced] = [codesFor(email), killable.replaced()];
      const asked = await killable.ask(json('/api/auth/email-login', { email }));
      t.equal(asked.status, 202);
      // A repeated request has sent two mails, of which one has the wrong code.
      if (asked.sent > 1) return null;
      const newCode = () => codesFor(email).find((code) => !known.includes(code));
      await waitUntil('a mail or a kill', () => newCode() !== undefined || killable.replaced() > replaced);
      const code = newCode();
      return code === undefined ? null : { loginToken: asked.body.data.loginToken as string, code };
    };
    const redeem = (killable: KillableProgram, given: object) =>
      killable.ask(json('/api/auth/email-login/redeem', given));

    const used = new Set<string>();
    const unanswered = new Map<string, object>();
    const killable = await underKills(t, victim, async (killable, lane) => {
      for (let number = 0; !killable.isOver(); number++) {
        const email = `p${lane}-${number}@example.test`;
        const given = await request(killable, email);
        killable.count();
        if (!given) continue;
        const signedIn = await redeem(killable, given);
        used.add(email);
        if (signedIn.status === 200) {
          const { user, accessToken } = signedIn.body.data;
          t.match(user, { email, emailVerified: true });
          const headers = { authorization: `Bearer ${accessToken}` };
          const me = await killable.ask({ method: 'GET', path: '/api/auth/me', headers });
          t.equal(me.status, 200, 'the session is valid');
          t.equal((await redeem(killable, given)).body.error?.code, 'CODE_EXPIRED', 'a second time');
        } else {
          // The killed process has used the code, and may have signed in.
          t.ok(signedIn.sent > 1, `${signedIn.status} to the first request`);
          t.equal(signedIn.body.error.code, 'CODE_EXPIRED');
          unanswered.set(email, given);
        }
        killable.count();
      }
    });

    const store = await openStore(databaseUri);
    t.teardown(() => store.close());
    const users = userCollection(store);
    t.comment(`${used.size} codes, ${unanswered.size} without an answer`);
    for (const [email, given] of unanswered) {
      // Ten seconds after the crash, the same request completes what is missing.
      await waitUntil(
        `the account of ${email}`,
        async () =>
          (await users.findOne({ email })) !== null || (await redeem(killable, given)).status === 200,
      );
    }
    t.equal(await users.count(), used.size, 'each once, and no others');
    for (const email of used) {
      const user = await users.findOne({ email });
      t.match(user, { email, emailVerified: true });
    }
    const [email = ''] = [...used].slice(-1);
    const given = await request(killable, email);
    const again = await redeem(killable, given ?? {});
    t.equal(
      again.body.data?.user.id,
      (await users.findOne({ email }))?.id,
      'the next code opens the account',
    );
  });
}

const codeIn = (text: string): string | undefined => /^\w{4}-\w{4}(?=\r?$)/m.exec(text)?.[0];

codes(t);
await onMongod((server) => {
  t.test('on MongoDB', (t) => codes(t, server.fresh(t)));
});
