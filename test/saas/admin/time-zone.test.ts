import t from 'tap';
import { readForm } from '../../kit/agent.js';
import { basic, type SaasApp, saasApp } from '../../kit/app.js';

/** Operators choose the time zone in which pages show times, for their browser. */

const PATH = '/admin/time-zone';
const headers = { authorization: basic() };

async function choose(app: SaasApp, zone: string) {
  const { fields } = readForm(`http://x${PATH}`, (await app.admin('GET', PATH)).text);
  return app.request('POST', PATH, { form: { ...fields, zone }, headers });
}

const timesOn = (text: string) =>
  [...text.matchAll(/<time datetime="([^"]+)" title="([^"]+)">([^<]+)</g)].map(([, ...found]) => found);

t.test('pages show times in UTC, and in the zone that the operator has chosen', async (t) => {
  const app = await saasApp(t);
  await app.signUp();
  const shown = async (cookie?: string) => {
    const { text } = await app.request('GET', '/admin/users', {
      headers: { ...headers, ...(cookie && { cookie }) },
    });
    return { text, time: timesOn(text)[0] };
  };
  const at = '2040-01-01T00:00:00.000Z';
  t.same((await shown()).time, [at, '1 January 2040 at 00:00:00 UTC', 'today, 00:00']);

  const { status, headers: answered } = await choose(app, 'America/New_York');
  t.equal(status, 303);
  const [cookie = ''] = answered['set-cookie']?.split(';') ?? [];
  const chosen = await shown(cookie);
  t.same(chosen.time, [at, '31 December 2039 at 19:00:00 America/New_York', 'today, 19:00']);
  t.match(chosen.text, 'Times: America&#x2F;New_York');
  app.clock.advance(6 * 3_600_000);
  t.equal((await shown(cookie)).time?.[2], 'yesterday, 19:00', 'there, the day ends later');
  t.equal((await shown()).time?.[2], 'today, 00:00');
});

t.test('other values are refused in the form, and ignored in a cookie', async (t) => {
  const app = await saasApp(t);
  await app.signUp();
  for (const zone of ['Europe/Atlantis', '', 'utc"><b>']) {
    t.equal((await choose(app, zone)).status, 400, zone);
    const cookie = `console_time_zone=${encodeURIComponent(zone)}`;
    const { status, text } = await app.request('GET', '/admin/users', { headers: { ...headers, cookie } });
    t.equal(status, 200);
    t.match(text, 'Times: UTC');
  }
  t.equal(
    (await app.request('POST', PATH, { form: { zone: 'UTC' }, headers })).status,
    403,
    'without a token',
  );
});
