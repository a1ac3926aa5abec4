import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { HOUR, MINUTE } from '../../../src/core/kernel/clock.js';
import { createListedAudit } from '../../../src/core/ops/audit.js';
import { createTokenCache } from '../../../src/saas/auth/sessions/tokens.js';
import { type Account, PASSWORD, saasApp, storeOf } from '../../kit/app.js';
import { waitUntil } from '../../kit/wait.js';

const EXPORT = '/api/user/export';

/** Several pages of the audit log. */
const RECORDS = 2500;

t.test('an export needs the recent sign-in that its page needs', async (t) => {
  const app = await saasApp(t, { accessTokenTtl: 86_400 });
  const { accessToken: token } = await app.signUp();
  t.equal((await app.request('GET', EXPORT, { token })).status, 200);
  app.clock.advance(10 * MINUTE + 1);
  const stale = await app.request('GET', EXPORT, { token });
  t.match(stale, { status: 401, body: { error: { code: 'REAUTHENTICATION_REQUIRED' } } });
  const body = { password: PASSWORD };
  const renewed = await app.request('POST', '/api/auth/reauthenticate', { token, body });
  t.equal((await app.request('GET', EXPORT, { token: renewed.body.data.accessToken })).status, 200);
});

t.test('an account may be exported ten times an hour, from all addresses together', async (t) => {
  const app = await saasApp(t, { limits: true, accessTokenTtl: 86_400 });
  const [ada, bob] = [await app.signUp(), await app.signUp()];
  const ask = (token: string, from: string) => app.request('GET', EXPORT, { token, from });
  for (let count = 0; count < 10; count++) {
    t.equal((await ask(ada.accessToken, `203.0.113.${count}`)).status, 200);
  }
  const refused = await ask(ada.accessToken, '203.0.113.99');
  t.equal(refused.status, 429);
  t.match(refused.body, { success: false, error: { code: 'RATE_LIMITED' } });
  t.ok(Number(refused.headers['retry-after']) > 3000);
  t.equal((await ask(bob.accessToken, '203.0.113.99')).status, 200, 'others have a limit of their own');
  app.clock.advance(HOUR + 1000);
  const body = { password: PASSWORD };
  const { accessToken: token } = ada;
  const renewed = await app.request('POST', '/api/auth/reauthenticate', { token, body });
  t.equal(
    (await ask(renewed.body.data.accessToken, '203.0.113.99')).status,
    200,
    'an hour later it is free again',
  );
});

t.test(
  'an unread export blocks further exports of the same account until its connection closes',
  async (t) => {
    const app = await saasApp(t);
    const [ada, bob] = [await app.signUp(), await app.signUp()];
    const { clock, random } = app;
    const audit = createListedAudit(await storeOf(t, app), { clock, random, log: console });
    // Exceeds the buffers at both ends of a connection.
    const detail = 'x'.repeat(8000);
    const fill = async (subject: string, records: number) => {
      const record = { event: 'test', ip: '192.0.2.1', subject, detail };
      for (let count = 0; count < records; count += 250) {
        await Promise.all(Array.from({ length: 250 }, () => audit.record(record)));
      }
    };
    await fill(ada.id, RECORDS);
    await fill(bob.id, 250);
    const { hostname, port } = new URL(await app.listen());
    const request = ({ accessToken }: Account) =>
      `GET ${EXPORT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${accessToken}\r\n\r\n`;
    const greedy = connect(Number(port), hostname).on('error', () => {});
    t.teardown(() => greedy.destroy());
    greedy.write(request(ada).repeat(60) + request(bob));
    await once(greedy, 'data');
    greedy.pause();
    const ask = ({ accessToken: token }: Account) => app.request('GET', EXPORT, { token });
    const refused = await ask(ada);
    t.equal(refused.status, 429, 'a second one beside it is refused');
    t.equal(refused.headers['retry-after'], '10');
    t.equal((await ask(bob)).status, 200, 'a request that waits behind it blocks nothing');
    const health = await fetch(`http://${hostname}:${port}/health`);
    t.equal(health.status, 200, 'other clients are served');

    greedy.destroy();
    for (const [person, records] of [
      [ada, RECORDS],
      [bob, 250],
    ] as const) {
      let answer = await ask(person);
      await waitUntil('the end of the export', async () => {
        answer = await ask(person);
        return answer.status !== 429;
      });
      t.equal(answer.status, 200, 'the end of the connection ends its exports');
      t.equal(answer.body.data?.audit.length, records + 1, 'a list of many pages is whole');
    }
  },
);

t.test('the token cache is keyed by the token alone and bounded in bytes', async (t) => {
  let reads = 0;
  const read = createTokenCache((token) => {
    reads++;
    return token.startsWith('bad') ? null : { token };
  });
  for (const token of ['one', 'one', 'bad', 'bad']) read(token);
  t.equal(reads, 3, 'what is no token of ours is not kept');
  const long = (index: number) => String(index).padStart(4096, '0');
  for (let index = 0; index < 4000; index++) read(long(index));
  reads = 0;
  read(long(3999));
  read(long(3000));
  t.equal(reads, 0, 'the newest are kept');
  read(long(0));
  read('one');
  t.equal(reads, 2, 'the oldest are gone');
});
