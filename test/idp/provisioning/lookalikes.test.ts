import t from 'tap';
import { canonicalHandle } from '../../../src/idp/provisioning/handles.js';
import { PASSWORD } from '../../kit/app.js';
import { claimsOf, type IdpApp, idpApp } from '../../kit/idp.js';
import { words } from '../../kit/words.js';

/** Handles and names that look like others. */

const register = (idp: IdpApp, handle: string, name?: string) =>
  idp.request('POST', '/v1/accounts', {
    body: { handle, password: PASSWORD, ...(name !== undefined && { name }) },
  });

/** Prints code points in the message of a failing test, because the texts look alike. */
const shown = (text: string) =>
  `${text} ${JSON.stringify(text).replace(/[^ -~]/gu, (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`)}`;

const INVALID = { code: 'VALIDATION_ERROR', details: [{ path: 'handle' }] };

t.test('a new handle has no invisible characters, symbols or special letter forms', async (t) => {
  for (const handle of words(`
    \u3164\u3164\u3164 \u2800\u2800\u2800 \u115f\u1160\u115f ad\u034fmin ad\ufe0fmin ad\u{e0100}min
    ad\u17b4min \u0301abc adm\u0069\u0307n ａｄｍｉｎ 𝐚𝐝𝐦𝐢𝐧 ⓐⓓⓜⓘⓝ aﬁb x²yz admin… ada‐lovelace ada․lovelace
    ada∕lovelace admin✓ admin👑`)) {
    t.throws(() => canonicalHandle(handle), INVALID, shown(handle));
  }
  const idp = await idpApp(t);
  const invalid = { status: 400, body: { error: 'invalid_request', details: [{ path: 'handle' }] } };
  t.match(await register(idp, 'admin👑'), invalid);
  for (const path of ['/v1/agents', '/v1/invites'])
    t.match(await idp.admin('POST', path, { handle: 'admin👑' }), invalid, path);
});

t.test('a new handle is written in one script', async (t) => {
  for (const handle of words(
    'аdmin admіn аda@example.test αdmin Ꭺdmin ada@exаmple.com иван@example.com გabc क১२ क12१ ሀabc',
  )) {
    const mixed = { ...INVALID, details: [{ message: 'must not mix scripts' }] };
    t.throws(() => canonicalHandle(handle), mixed, shown(handle));
  }
  for (const handle of words(`
    müller@example.test łukasz_1 nguyễn иван γιάννης հայկ שלום محمد٢ हिन्दी ไทยแลนด์ ភាសាខ្មែរ 한국어abc
    日本語カタカナひらがなabc 東京タワー 中文ㄅㄆabc أحمد-12`)) {
    t.doesNotThrow(() => canonicalHandle(handle), shown(handle));
  }
});

t.test('a name has a visible character and no needless invisible ones', async (t) => {
  const idp = await idpApp(t);
  const refused = [
    ...words('\u200b \u3164 \u2800 Ada\u200b Ada\u00ad Ad\u200dmin Ada\ufe0f Ada1\ufe0f Ada\u{e0041}'),
    '   ',
  ];
  for (const [index, name] of refused.entries()) {
    t.equal((await register(idp, `person${index}`, name)).status, 400, shown(name));
    t.equal(
      (await idp.admin('POST', '/v1/agents', { handle: `agent${index}`, name })).status,
      400,
      shown(name),
    );
    const client = { name, redirect_uris: ['https://app.example.test/cb'] };
    t.equal((await idp.admin('POST', '/v1/clients', client)).status, 400, shown(name));
  }
  const accepted = [
    ...words(`
      Zoë می\u200cخواهم क्\u200dष 👩\u200d👩\u200d👧 ❤\ufe0f 葛\u{e0100} 1\ufe0f\u20e3
      🏴\u{e0067}\u{e0062}\u{e007f}`),
    ...['Ada Lovelace', 'Иван Smith'],
  ];
  for (const [index, name] of accepted.entries()) {
    t.match(await register(idp, `person${index}`, name), { status: 201, body: { name } }, shown(name));
  }
});

t.test('only a valid e-mail address becomes the email claim', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const emailOf = async (handle: string) => {
    const who = await idp.makeHuman({ handle });
    const { body } = await idp.redeem(client, await idp.codeFor(client, who, { scope: 'openid email' }));
    const { email, email_verified: verified } = claimsOf(body.id_token);
    return { email, verified };
  };
  const none = { email: undefined, verified: undefined };
  for (const handle of words(`
    a"b@example.com a,b@example.com a<b>@example.com a..b@example.com .ab@example.com ab@-example.com
    ab@example ab@example.com. ab@exa_mple.com ab@203.0.113.7 ab@[203.0.113.7] ab@example.com/x
    müller@example.com ${'a'.repeat(65)}@example.com`)) {
    t.same(await emailOf(handle), none, handle);
  }
  for (const handle of ['a+b@example.com', "o'hara@example.co.uk", 'ada@münchen.example'])
    t.same(await emailOf(handle), { email: handle, verified: false });
});
