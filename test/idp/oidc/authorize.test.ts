import { createHash } from 'node:crypto';
import t, { type Test } from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { grantIdOf } from '../../../src/idp/oidc/grant-tokens.js';
import { createRefusals } from '../../../src/idp/oidc/refusals.js';
import { grantCollection } from '../../../src/idp/oidc/store.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { type Answer, auditOf, basic, PASSWORD } from '../../kit/app.js';
import {
  authorizePath,
  CALLBACK,
  codeIn,
  comparable,
  ISSUER,
  idpApp,
  idpStore,
  type Parameters,
  postedBy,
  type RegisteredClient,
  VERIFIER,
} from '../../kit/idp.js';
import { enterConsole, makeOperator } from '../../kit/operator.js';
import { words } from '../../kit/words.js';

const isRefused = (t: Test, { status, headers, text }: Answer, message: string) => {
  t.equal(status, 400, message);
  t.equal(headers['location'], undefined);
  t.equal(headers['set-cookie'], undefined);
  t.notMatch(text, /<form|evil/);
};

const queryOf = ({ headers }: Answer) =>
  Object.fromEntries(new URL(headers['location'] as string).searchParams);

t.test('an unregistered redirect_uri is answered with an error page and never redirected to', async (t) => {
  const idp = await idpApp(t);
  const agent = await idp.mintAgent();
  const registered = 'https://app.example.test/cb';
  const clients = [
    await idp.createClient({ redirect_uris: registered }),
    await idp.createClient({ redirect_uris: [registered], public: true }),
  ];
  const others = [
    ...words(`${registered}/ ${registered}?x=1 ${registered}#f ${registered}/../evil ${registered}evil
      https://app.example.test/c https://app.example.test/CB HTTPS://APP.example.test/cb /cb
      https://app.example.test:443/cb https://app.example.test/%63b http://app.example.test/cb
      https://app.example.test@evil.test/cb https://app.example.test\\@evil.test/cb //app.example.test/cb
      https://app.example.test.evil.test/cb https://appaexample.test/cb http://127.0.0.1/cb
      javascript:alert(1)//https://app.example.test/cb data:text/html,evil`),
    ...[`${registered} `, ` ${registered}`, `${registered}\n`, `${registered}\0`],
    ...['https://app.exam\nple.test/cb', '', undefined],
  ];
  for (const client of clients) {
    t.equal((await idp.authorize(client, agent)).status, 302);
    for (const uri of others) {
      const message = JSON.stringify(uri) ?? 'missing';
      isRefused(t, await idp.authorize(client, agent, { redirect_uri: uri }), message);
      const page = await idp.request('GET', authorizePath(client, { redirect_uri: uri }), {
        headers: { accept: 'text/html' },
      });
      isRefused(t, page, message);
      t.match(page.headers['content-type'], /^text\/html/);
    }
  }
});

t.test('an unknown client and a repeated parameter are never redirected', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  for (const id of [undefined, '', 'cid_0', `${client.id}x`, ' ', '__proto__', 'constructor', '{"$ne":""}']) {
    isRefused(t, await idp.authorize(client, agent, { client_id: id }), `client_id=${id}`);
  }
  for (const twice of ['client_id', 'redirect_uri', 'state', 'scope', 'prompt', 'request']) {
    const answer = await idp.request('GET', `${authorizePath(client)}&${twice}=1&${twice}=2`);
    isRefused(t, answer, `${twice} twice`);
    t.equal(answer.body.error, 'invalid_request');
  }
  isRefused(t, await idp.request('GET', `${authorizePath(client, { state: '' })}&state=1`), 'one empty');
  // RFC 8707 §2 allows several resources, which are ignored while none is registered, and unknown parameters are ignored even when repeated.
  for (const twice of ['resource', 'unknown', '__proto__']) {
    const answer = await idp.request('GET', `${authorizePath(client)}&${twice}=1&${twice}=2`);
    t.match(answer, { status: 200, text: '<form' }, `${twice} twice`);
  }
});

t.test('only a public client may use another port, and only on a loopback address', async (t) => {
  const idp = await idpApp(t);
  const agent = await idp.mintAgent();
  const uris = [
    'http://127.0.0.1/cb?a=1',
    'http://[::1]:7000/cb',
    'http://localhost:8000/cb',
    'http://127.0.0.2/cb',
  ];
  const accepted = async (client: RegisteredClient, uri: string) =>
    (await idp.authorize(client, agent, { redirect_uri: uri })).status === 302;

  const native = await idp.createClient({
    redirect_uris: [...uris, 'https://app.example.test/cb'],
    public: true,
  });
  for (const uri of [
    ...uris,
    'http://127.0.0.1:0/cb?a=1',
    'http://127.0.0.1:51004/cb?a=1',
    'http://[::1]/cb',
    'http://[::1]:51004/cb',
    'http://localhost/cb',
    'http://localhost:51004/cb',
  ]) {
    t.ok(await accepted(native, uri), uri);
  }
  for (const uri of words(`
    http://127.0.0.1:51004/cb http://127.0.0.1:51004/cb?a=2 http://127.0.0.1:51004/cb?a=1&b
    http://127.0.0.1:51004/other?a=1 http://127.0.0.1:x/cb?a=1 http://127.0.0.1:/cb?a=1
    http://127.0.0.1:123456/cb?a=1 http://127.0.0.1:99999/cb?a=1 http://127.0.0.1:80:80/cb?a=1
    http://127.0.0.1.evil.test/cb?a=1 http://127.0.0.1:51004@evil.test/cb?a=1
    http://127.0.0.1:51004.evil.test/cb?a=1 http://127.0.0.2:51004/cb http://127.1/cb?a=1
    http://[::1]:51004@evil.test/cb http://localhost.evil.test/cb https://localhost:51004/cb
    https://app.example.test:51004/cb`)) {
    t.notOk(await accepted(native, uri), uri);
  }

  const confidential = await idp.createClient({ redirect_uris: uris });
  t.ok(await accepted(confidential, 'http://[::1]:7000/cb'));
  t.notOk(await accepted(confidential, 'http://[::1]:7001/cb'));
  t.notOk(await accepted(confidential, 'http://127.0.0.1:51004/cb?a=1'));
});

t.test('all other errors go to the application with its state and our issuer', async (t) => {
  const idp = await idpApp(t);
  const [web, native] = [await idp.createClient(), await idp.createClient({ public: true })];
  const agent = await idp.mintAgent();
  const challenge = sha256(VERIFIER);
  const table: [Parameters, string, RegisteredClient?][] = [
    [{ response_type: undefined }, 'invalid_request'],
    [{ response_type: '' }, 'invalid_request'],
    [{ response_type: 'token' }, 'unsupported_response_type'],
    [{ response_type: 'code token' }, 'unsupported_response_type'],
    [{ response_type: 'CODE' }, 'unsupported_response_type'],
    [{ response_mode: 'fragment' }, 'invalid_request'],
    [{ response_mode: 'query.jwt' }, 'invalid_request'],
    [{ request: 'eyJhbGciOiJub25lIn0.e30.' }, 'request_not_supported'],
    [{ request_uri: 'https://evil.test/' }, 'request_uri_not_supported'],
    [{ code_challenge: challenge, code_challenge_method: 'plain' }, 'invalid_request'],
    [{ code_challenge: challenge, code_challenge_method: undefined }, 'invalid_request'],
    [{ code_challenge: challenge, code_challenge_method: 's256' }, 'invalid_request'],
    [{ code_challenge: challenge.slice(1), code_challenge_method: 'S256' }, 'invalid_request'],
    [{ code_challenge: `${challenge}=`, code_challenge_method: 'S256' }, 'invalid_request'],
    [{ code_challenge: '', code_challenge_method: 'S256' }, 'invalid_request'],
    [{ code_challenge_method: 'S256' }, 'invalid_request'],
    [{ code_challenge: undefined, code_challenge_method: undefined }, 'invalid_request', native],
    [{ prompt: 'none login' }, 'invalid_request'],
    [{ scope: 's'.repeat(1025) }, 'invalid_request'],
    [{ nonce: 'n'.repeat(513) }, 'invalid_request'],
  ];
  const state = `<script>"'&\r\n é😀 +%`;
  for (const [more, error, client = web] of table) {
    const answer = await idp.authorize(client, agent, { ...more, state });
    const message = `${JSON.stringify(more)}`;
    t.equal(answer.status, 302, message);
    t.ok(answer.headers['location']?.startsWith(`${CALLBACK}?error=`), message);
    const { error_description: description, ...rest } = queryOf(answer);
    t.strictSame(rest, { error, state, iss: ISSUER }, message);
    // RFC 6749 §4.1.2.1: no quotation mark, no backslash, ASCII only.
    t.match(description, /^[\x20\x21\x23-\x5b\x5d-\x7e]+$/);
    t.equal(answer.headers['cache-control'], 'no-store');
  }
  const long = await idp.authorize(web, agent, { state: 's'.repeat(2049) });
  t.equal(queryOf(long)['error'], 'invalid_request');
  const most = { state: 's'.repeat(2048), nonce: 'n'.repeat(512), scope: `openid ${'s'.repeat(1017)}` };
  t.ok(queryOf(await idp.authorize(web, agent, most))['code'], 'the limits themselves are allowed');
});

t.test('the error for a request object is sent in the response mode that the object names', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const objectWith = (payload: unknown) =>
    `eyJhbGciOiJub25lIn0.${Buffer.from(JSON.stringify(payload)).toString('base64url')}.`;
  const posted = await idp.authorize(client, agent, { request: objectWith({ response_mode: 'form_post' }) });
  t.equal(posted.status, 200);
  t.match(posted.text, /name="error" value="request_not_supported"/);
  for (const request of [
    objectWith({}),
    objectWith({ response_mode: ['form_post'] }),
    objectWith({ response_mode: 'fragment' }),
    objectWith(null),
    'x',
    'x.y.z',
    'eyJhbGciOiJub25lIn0.bm8ganNvbg.',
  ]) {
    const answer = await idp.authorize(client, agent, { request });
    t.match(answer.headers['location'], /[?&]error=request_not_supported/, request);
  }
  const outside = { request: objectWith({ response_mode: 'form_post' }), response_mode: 'query' };
  t.match((await idp.authorize(client, agent, outside)).headers['location'], /error=request_not_supported/);
});

t.test('with form_post the browser posts the response to the application', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const agent = await idp.mintAgent();
  const state = `<script>"'&\r\n é😀 +%`;
  const answer = await idp.authorize(client, agent, { response_mode: 'form_post', state });
  t.equal(answer.status, 200);
  t.equal(answer.headers['location'], undefined);
  t.equal(answer.headers['cache-control'], 'no-store');
  const { action, values } = postedBy(answer.text);
  t.equal(action, CALLBACK);
  t.strictSame({ ...values, code: undefined }, { code: undefined, state, iss: ISSUER });
  t.match(await idp.redeem(client, values['code'] ?? ''), { status: 200 });

  const policy = answer.headers['content-security-policy'] ?? '';
  const [, script = ''] = /<script>(.*?)<\/script>/s.exec(answer.text) ?? [];
  const source = `'sha256-${createHash('sha256').update(script).digest('base64')}'`;
  t.match(policy, `default-src 'none'; script-src ${source}; style-src 'sha256-`);
  t.notMatch(policy, 'form-action', 'the application may send the person on to any address');
  t.match(policy, "frame-ancestors 'none'");
  t.equal(answer.text.match(/<script/g)?.length, 1, 'the state adds none');

  const refused = await idp.authorize(client, agent, { response_mode: 'form_post', max_age: 'x', state });
  t.match(postedBy(refused.text), {
    action: CALLBACK,
    values: { error: 'invalid_request', state, iss: ISSUER },
  });
  const wrong = await idp.authorize(client, { ...agent, password: 'wrong' }, { response_mode: 'form_post' });
  t.equal(wrong.status, 401);

  const native = await idp.createClient({ redirect_uris: 'com.example.app:/cb' });
  const more = { response_mode: 'form_post', redirect_uri: 'com.example.app:/cb' };
  const unpostable = await idp.authorize(native, agent, more);
  t.equal(unpostable.status, 302);
  t.match(unpostable.headers['location'], /^com\.example\.app:\/cb\?error=invalid_request&/);
});

t.test('Basic is answered with 302, which keeps the registered query and adds state and iss', async (t) => {
  const idp = await idpApp(t);
  const agent = await idp.mintAgent();
  const registered = 'https://app.example.test/cb?tenant=a%20b&plan=theirs';
  const client = await idp.createClient({ redirect_uris: registered });
  for (const state of ['xyz', `a b+c&d=é😀%"<>#\r\nSet-Cookie: x=1`, 'ー'.repeat(600)]) {
    const answer = await idp.authorize(client, agent, { state });
    t.equal(answer.status, 302);
    const location = answer.headers['location'] as string;
    const added = /^&code=(ac_[\w-]{75})&state=([^&]*)&iss=([^&]*)$/.exec(location.slice(registered.length));
    t.ok(location.startsWith(registered));
    t.equal(decodeURIComponent(added?.[2] ?? ''), state);
    t.equal(decodeURIComponent(added?.[3] ?? ''), ISSUER);
    t.equal(answer.text, '');
    t.equal(answer.headers['set-cookie'], undefined);
    t.match(answer.headers, { 'cache-control': 'no-store', vary: 'Authorization, Cookie, Accept' });
  }
  t.notOk('state' in queryOf(await idp.authorize(client, agent)), 'no state, none echoed');
  const html = await idp.request('GET', authorizePath(client), {
    headers: { authorization: basic(agent.handle, agent.password), accept: 'text/html' },
  });
  t.equal(html.status, 302, 'whatever Accept says');
});

t.test('wrong, unknown, disabled and malformed credentials get the same 401, byte for byte', async (t) => {
  const idp = await idpApp(t);
  const [client, agent, human] = [await idp.createClient(), await idp.mintAgent(), await idp.makeHuman()];
  const gone = await idp.mintAgent();
  await principalCollection(await idpStore(t, idp)).updateOne(
    { id: gone.sub },
    { set: { state: 'disabled' } },
  );
  const encode = (text: string | Buffer) => `Basic ${Buffer.from(text).toString('base64')}`;
  const { handle, password } = agent;
  const refused = [
    basic(handle, 'wrong password'),
    basic(handle, `${password}x`),
    basic(handle, `agp_${'x'.repeat(43)}`),
    basic(human.handle, 'wrong password'),
    basic(human.handle, `agp_${'x'.repeat(43)}`),
    basic('nobody@example.test', PASSWORD),
    basic('nobody@example.test', password),
    basic(gone.handle, gone.password),
    basic(client.id, client.secret),
    basic(handle, ''),
    basic('', password),
    basic('', ''),
    encode(handle),
    encode(`${handle}\0:${password}`),
    encode(`${handle}:${password}\0`),
    encode(Buffer.from(`${handle}:p\xe4ssword`, 'latin1')),
    'Basic',
    'Basic ',
    'Basic !!!!',
    `Basic ${handle}:${password}`,
    `Basic x, ${basic(handle, password)}`,
    `Bearer ${password}`,
    'Digest username="x"',
    '',
  ];
  const answers: Answer[] = [];
  for (const authorization of refused) {
    answers.push(await idp.request('GET', authorizePath(client), { headers: { authorization } }));
  }
  const [first, ...others] = answers.map(comparable);
  t.match(answers[0], {
    status: 401,
    headers: {
      'www-authenticate': 'Basic realm="idp", charset="UTF-8"',
      'cache-control': 'no-store',
      vary: 'Authorization, Cookie, Accept',
    },
    body: { error: 'invalid_credentials' },
  });
  for (const other of others) t.strictSame(other, first);
  const page = { headers: { accept: 'text/html' } };
  const pages = await Promise.all(
    [basic(handle, 'wrong'), basic('nobody', PASSWORD), 'Basic !'].map((authorization) =>
      idp.request('GET', authorizePath(client), { headers: { ...page.headers, authorization } }),
    ),
  );
  const [firstPage, ...otherPages] = pages.map(comparable);
  for (const other of otherPages) t.strictSame(other, firstPage);

  const grants = grantCollection(await idpStore(t, idp));
  t.equal(await grants.count(), 0, 'no code was made');
});

t.test(
  'Basic credentials split at the first colon, with a case-insensitive scheme and a normalized handle',
  async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const password = 'pass:word: with ünïcode 😀';
    await idp.request('POST', '/v1/accounts', { body: { handle: 'Ålesund@example.test', password } });
    for (const scheme of ['Basic', 'basic', 'BASIC', 'Basic ']) {
      for (const handle of ['ålesund@example.test', 'Ålesund@EXAMPLE.test', 'A\u030alesund@example.test']) {
        const authorization = basic(handle, password).replace('Basic', scheme);
        const answer = await idp.request('GET', authorizePath(client), { headers: { authorization } });
        t.equal(answer.status, 302, `${scheme} ${handle}`);
      }
    }
  },
);

t.test(
  'IDP_BASIC_LOGIN decides whether people may use Basic, and a refusal does not reveal whether the password is right',
  async (t) => {
    for (const basicLogin of ['all', 'agents'] as const) {
      const idp = await idpApp(t, { basicLogin });
      const [client, agent, human] = [await idp.createClient(), await idp.mintAgent(), await idp.makeHuman()];
      t.equal((await idp.authorize(client, agent)).status, 302);
      const right = await idp.authorize(client, human);
      if (basicLogin === 'all') t.equal(right.status, 302);
      else {
        const wrong = await idp.authorize(client, { ...human, password: 'wrong password' });
        t.equal(wrong.status, 401);
        t.strictSame(comparable(right), comparable(wrong));
      }
    }
  },
);

t.test('without credentials the answer is a form, not a Basic challenge', async (t) => {
  const idp = await idpApp(t);
  const { status, headers, text } = await idp.authorize(await idp.createClient());
  t.equal(status, 200);
  t.equal(headers['www-authenticate'], undefined);
  t.match(headers, { 'cache-control': 'no-store', vary: 'Authorization, Cookie, Accept' });
  t.match(text, /<form method="post" action="&#x2F;authorize&#x2F;login">/);
  t.notMatch(text, /<script|\son\w+=/i);
});

t.test('Basic from a browser is refused without a code and without a challenge', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const cookie = String((await idp.authorize(client)).headers['set-cookie']).split(';', 1)[0] as string;
  const authorization = basic(agent.handle, agent.password);
  const browsers: Record<string, string>[] = [
    ...['none', 'same-origin', 'same-site', 'cross-site'].map((site) => ({ 'sec-fetch-site': site })),
    ...['navigate', 'no-cors'].map((mode) => ({ 'sec-fetch-mode': mode })),
    ...['document', 'iframe', 'image', 'script', 'object'].map((dest) => ({ 'sec-fetch-dest': dest })),
    { origin: 'https://evil.test' },
    { origin: 'null' },
    { cookie: '__Host-idp-session=x' },
    { cookie: `${cookie}; __Host-idp-session=x` },
  ];
  for (const headers of browsers) {
    for (const credentials of [authorization, basic(agent.handle, 'wrong'), 'Basic !']) {
      const answer = await idp.request('GET', authorizePath(client), {
        headers: { ...headers, authorization: credentials },
      });
      t.match(answer, { status: 400, body: { error: 'browser_basic' } }, JSON.stringify(headers));
      t.equal(answer.headers['www-authenticate'], undefined);
      t.equal(answer.headers['location'], undefined);
    }
  }
  t.equal(await grantCollection(await idpStore(t, idp)).count(), 0);

  const programs = [
    ...[{}, { 'sec-fetch-mode': 'cors' }, { 'sec-fetch-dest': 'empty' }, { cookie: 'other=1' }],
    // The agent was sent here by the application without credentials, and now repeats the request with them.
    { cookie },
  ];
  for (const headers of programs) {
    const answer = await idp.request('GET', authorizePath(client), {
      headers: { ...headers, authorization },
    });
    t.equal(answer.status, 302, JSON.stringify(headers));
  }
  const url = (await idp.listen()) + authorizePath(client);
  const answer = await fetch(url, { headers: { authorization }, redirect: 'manual' });
  t.equal(answer.status, 302, "Node's own fetch");
});

t.test('a client lists the kinds that may sign in; others are denied at the application', async (t) => {
  const idp = await idpApp(t);
  const [agent, human] = [await idp.mintAgent(), await idp.makeHuman()];
  for (const [kind, allowed, denied] of [
    ['agent', agent, human],
    ['human', human, agent],
  ] as const) {
    const client = await idp.createClient({ principal_kinds: [kind] });
    t.ok(await idp.codeFor(client, allowed));
    const answer = await idp.authorize(client, denied, { state: 's' });
    t.match(queryOf(answer), { error: 'access_denied', state: 's', iss: ISSUER });
    t.notOk('code' in queryOf(answer));
  }
});

t.test('POST /authorize equals the same request by GET, and unknown parameters are ignored', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const path = authorizePath(client, { state: 'a b&é', claims: '{}', 'x.y': '1', $where: '1' });
  const answer = await idp.request('POST', '/authorize', { form: path.slice('/authorize?'.length) });
  t.equal(answer.status, 303);
  const target = new URL(answer.headers['location'] as string, ISSUER);
  t.equal(target.pathname, '/authorize');
  const known = [...new URL(path, ISSUER).searchParams].filter(([name]) => !/claims|x\.y|where/.test(name));
  t.same([...target.searchParams], known);
  t.equal((await idp.request('GET', target.pathname + target.search)).status, 200);
  const secret = await idp.request('POST', '/authorize', { form: 'client_id=a&password=geheim' });
  t.notMatch(secret.headers['location'], 'geheim', 'unknown parameters are not forwarded');
  const twice = await idp.request('POST', '/authorize', { form: 'client_id=a&client_id=b' });
  t.equal((await idp.request('GET', twice.headers['location'] as string)).status, 400);
});

t.test('the code has 256 bits, is stored as a hash for 60 seconds and is bound to its request', async (t) => {
  const idp = await idpApp(t);
  const [client, agent] = [await idp.createClient(), await idp.mintAgent()];
  const parameters = { scope: 'profile openid unknown', nonce: 'n-0S6', state: 's' };
  const pkce = { code_challenge: sha256(VERIFIER), code_challenge_method: 'S256' };
  const code = codeIn((await idp.authorize(client, agent, { ...parameters, ...pkce })).headers['location']);
  t.match(code, /^ac_[0-9a-f]{32}[\w-]{43}$/);
  const grant = await grantCollection(await idpStore(t, idp)).findOne({
    id: grantIdOf('ac_', code) as string,
  });
  const now = idp.clock.now();
  t.strictSame(grant, {
    id: grant?.id,
    codeHash: sha256(code),
    clientId: client.id,
    sub: agent.sub,
    redirectUri: CALLBACK,
    scope: 'openid profile',
    nonce: 'n-0S6',
    challenge: sha256(VERIFIER),
    authTime: now,
    createdAt: now,
    codeExpiresAt: now + 60_000,
  });
});

t.test('a client_id that a store cannot hold is an unknown client', async (t) => {
  const idp = await idpApp(t);
  for (const id of ['\0', 'cid_\0', '\ufffd', 'cid_'.repeat(1000)]) {
    const answer = await idp.request('GET', `/authorize?${new URLSearchParams({ client_id: id })}`);
    t.equal(answer.status, 400, JSON.stringify(id));
    for (const client_id of [id, `${id}\ud800`]) {
      const body = { grant_type: 'authorization_code', code: 'ac_', client_id, client_secret: 'csec_' };
      const token = await idp.request('POST', '/token', { body });
      t.match(token, { status: 401, body: { error: 'invalid_client' } });
    }
  }
});

t.test('a malformed query is a client error, not a server error', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  const start = authorizePath(client);
  const names = Array.from({ length: 200_000 }, (_, index) => `p${index}=`);
  const hostile = words(`
    ${start}&state=${'s'.repeat(10_240)} ${start}&${names.join('&')} ${start}${'&a=1'.repeat(200_000)}
    ${start}&state=%zz%f ${start}&state=%ff%fe&nonce=%c0%80
    ${start}&state=%00&nonce=%00&login_hint=%00&scope=%00 ${start}&login_hint=%ed%a0%80
    ${start}&__proto__[x]=1&%24where=1&a.b=1&=1&=
    ${start}&max_age=-1&max_age[]=1&ui_locales=%0d%0a&id_token_hint=x.y.z&acr_values=%f0
    /authorize?client_id=%00&redirect_uri=${CALLBACK} /authorize?client_id=%ed%a0%80 /authorize?&&&==&=%
    /authorize?\ud800`);
  for (const path of hostile) {
    for (const headers of [{}, { accept: 'text/html' }, { authorization: 'Basic AA==' }]) {
      const { status } = await idp.request('GET', path, { headers });
      t.ok(status < 500, `${status} ${path.slice(0, 200)}`);
    }
  }
  t.equal(({} as Record<string, unknown>)['x'], undefined);
});

t.test('a strict client uses PKCE and the form', async (t) => {
  const idp = await idpApp(t);
  const strict = await idp.createClient({ strict: true });
  const [agent, human] = [await idp.mintAgent(), await idp.makeHuman()];
  const pkce = { code_challenge: sha256(VERIFIER), code_challenge_method: 'S256' };
  const without = (await idp.authorize(strict, agent)).headers['location'];
  t.match(without, /error=invalid_request&error_description=The%20client%20must%20send%20a%20code_challenge/);
  t.match((await idp.authorize(strict, agent, pkce)).headers['location'], /code=/);
  t.match(await idp.authorize(strict, human, pkce), { status: 401, body: { error: 'invalid_credentials' } });
  const { browser, page } = await idp.visit(strict, pkce);
  t.match((await browser.submit(page, { handle: human.handle, password: human.password })).location, /code=/);
  const usual = await idp.createClient();
  t.match((await idp.authorize(usual, human)).headers['location'], /code=/, 'as the specification has them');
});

t.test('a refused application leaves a trace for its operator, without a secret', async (t) => {
  const idp = await idpApp(t, { limits: false, publicUrl: undefined });
  const [client, agent] = [await idp.createClient({ name: 'Shop' }), await idp.mintAgent()];
  const other = 'https://app.example.test/other\r\ncallback';
  await idp.authorize(client, undefined, { redirect_uri: other });
  await idp.authorize({ ...client, id: 'cid_typo' });
  await idp.authorize(client, agent, { response_type: 'token' });
  const secret = 'csec_a-wrong-secret-that-nobody-may-read';
  await idp.redeem({ ...client, secret }, 'ac_x');
  const code = await idp.codeFor(client, agent, {
    code_challenge: sha256(VERIFIER),
    code_challenge_method: 'S256',
  });
  await idp.redeem(client, code, { code_verifier: 'w'.repeat(43) });
  await idp.refresh(client, `rt_${'x'.repeat(75)}`);
  const records = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'client.refused');
  t.match(records, [
    {
      subject: client.id,
      detail: 'redirect_uri is not registered for this client. https://app.example.test/other callback',
    },
    { subject: undefined, detail: `client_id is not registered. ${CALLBACK} client_id cid_typo` },
    { subject: client.id, detail: `response_type must be code. ${CALLBACK}` },
    { subject: client.id, detail: `invalid_client: Client authentication failed. ${CALLBACK}` },
    { subject: client.id, detail: `code_verifier does not match the code_challenge. ${CALLBACK}` },
  ]);
  t.equal(records.length, 5, 'an expired refresh token is none');
  const { get } = await enterConsole(idp, await makeOperator(t, idp));
  const page = (await get(`/clients/${client.id}`)).body;
  t.match(page, /Refused requests[\s\S]*code_verifier does not match[\s\S]*other callback/);
  t.notMatch(JSON.stringify(records) + page, secret);

  const lines: object[] = [];
  const refusals = createRefusals({
    directory: { findClient: async () => null },
    assertions: { subjectOf: () => undefined },
    audit: { recordFailure: async () => undefined },
    log: { info: (line: object) => void lines.push(line) },
  } as never);
  const reason = 'client_id is not registered.';
  await refusals.record({ clientId: 'cid_typo', redirectUri: CALLBACK, reason }, '192.0.2.1');
  t.strictSame(lines, [{ client: 'cid_typo', redirectUri: CALLBACK, reason, ip: '192.0.2.1' }], 'the log');
});
