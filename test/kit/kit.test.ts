import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import nodemailer from 'nodemailer';
import t from 'tap';
import { Agent } from './agent.js';
import { saasApp } from './app.js';
import { fakeClock } from './clock.js';
import { mailSink } from './mail.js';
import { startProgram } from './process.js';
import { countedRandom } from './random.js';
import { temporaryFolder } from './tmp.js';

t.test('the clock advances only when it is moved', async (t) => {
  const clock = fakeClock(1000);
  t.equal(clock.now(), 1000);
  clock.advance(5);
  t.equal(clock.now(), 1005);
  clock.set(7);
  t.equal(clock.now(), 7);
});

t.test('test randomness is deterministic for a seed', async (t) => {
  const [one, same, other] = [countedRandom(), countedRandom(), countedRandom('another')];
  const first = one.bytes(32);
  t.equal(first.length, 32);
  t.same(same.bytes(32), first);
  t.notSame(other.bytes(32), first);
  t.notSame(one.bytes(32), first);
  t.equal(one.calls, 2);
});

t.test('the mail sink receives what Nodemailer sends', async (t) => {
  const sink = await mailSink(t);
  const transport = nodemailer.createTransport(sink.url);
  const early = sink.next();
  for (const subject of ['one', 'two']) {
    await transport.sendMail({ from: 'a@example.test', to: 'b@example.test', subject, text: 'body' });
  }
  const mail = await early;
  t.equal(mail.from, 'a@example.test');
  t.same(mail.to, ['b@example.test']);
  t.match(mail.raw, /^Subject: one\r$/m);
  t.match((await sink.next()).raw, /^Subject: two\r$/m);
  t.equal(sink.mails.length, 2);
});

t.test('the agent keeps cookies, fills in forms and does not leave its site', async (t) => {
  const seen: string[] = [];
  const server = createServer(async (request, response) => {
    const body = (await request.toArray()).join('');
    seen.push(`${request.method} ${request.url} ${request.headers.cookie ?? '-'} ${body}`.trim());
    if (request.method === 'POST') {
      const headers = {
        location: 'https://client.example/cb?code=1',
        'set-cookie': 'sid=; Max-Age=0; Path=/',
      };
      response.writeHead(303, headers).end();
    } else if (request.url === '/start') {
      response.writeHead(302, {
        location: '/form',
        'set-cookie': ['sid=s1; Path=/; HttpOnly', 'deep=1; Path=/x'],
      });
      response.end();
    } else {
      response.end(`<form method="post" action="/form?step=2">
        <input type="hidden" name="ticket" value="a&amp;b&#x2F;c"><input name="email">
        <input type="checkbox" name="no" value="1"><button name="do" value="allow">Yes</button>
        <button name="do" value="deny">No</button></form>`);
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const agent = new Agent({ origin });
  const page = await agent.open(`${origin}/start`);
  t.equal(page.url, `${origin}/form`);
  t.same(page.form(), {
    method: 'post',
    action: `${origin}/form?step=2`,
    fields: { ticket: 'a&b/c', email: '', do: 'allow' },
  });
  const end = await agent.submit(page, { email: 'me@example.test' });
  t.equal(end.status, 303);
  t.equal(end.location, 'https://client.example/cb?code=1');
  t.same(agent.cookies('/x'), { deep: '1' }, 'the session cookie was deleted');
  t.same(seen, [
    'GET /start -',
    'GET /form sid=s1',
    'POST /form?step=2 sid=s1 ticket=a%26b%2Fc&email=me%40example.test&do=allow',
  ]);
});

t.test('started programs report their address, stop on request and can be killed', async (t) => {
  const script = join(temporaryFolder(t), 'program.mjs');
  writeFileSync(
    script,
    `import { createServer } from 'node:http';
     process.once('SIGTERM', () => process.exit(7));
     const server = createServer((_, response) => response.end(process.env.WORD + process.argv[2]));
     server.listen(0, '127.0.0.1', () =>
       console.log(JSON.stringify({ msg: 'Server listening at http://127.0.0.1:' + server.address().port })));`,
  );
  const start = () => startProgram(t, script, { args: ['!'], env: { WORD: 'hello' } });
  const [polite, killed] = [start(), start()];
  t.equal(await (await fetch(await polite.url())).text(), 'hello!');
  t.equal(await polite.terminate(), 7);
  await killed.url();
  await killed.kill();
  await t.rejects(killed.printed(/never/), /ended with null/);
});

t.test('one call starts an application', async (t) => {
  const app = await saasApp(t);
  const { email, accessToken } = await app.signUp({ name: 'Ada' });
  const me = await app.request('GET', '/api/auth/me', { token: accessToken });
  t.equal(me.status, 200);
  t.match(me.body.data.user, { email, name: 'Ada' });
  const health = await fetch(`${await app.listen()}/api/health`);
  t.equal(health.status, 200);
});
