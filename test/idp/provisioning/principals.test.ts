import t from 'tap';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { principalCollection } from '../../../src/idp/provisioning/store.js';
import { auditOf, basic, PASSWORD } from '../../kit/app.js';
import { ADMIN_TOKEN, comparable, type IdpApp, idpApp, idpStore } from '../../kit/idp.js';

const HANDLE = 'somebody@example.test';
const signUp = (idp: IdpApp, body: unknown) => idp.request('POST', '/v1/accounts', { body });

t.test('an account is an agent unless the request asks for a human', async (t) => {
  const idp = await idpApp(t);
  const person = { handle: 'Ada.Lovelace@Example.test', password: PASSWORD, kind: 'human', name: 'Ada' };
  const { status, headers, body } = await signUp(idp, person);
  t.equal(status, 201);
  t.equal(headers['cache-control'], 'no-store');
  t.match(body.sub, /^u_[0-9a-f]{32}$/);
  t.strictSame(body, {
    sub: body.sub,
    handle: 'ada.lovelace@example.test',
    kind: 'human',
    name: 'Ada',
    created_at: '2040-01-01T00:00:00.000Z',
  });
  t.match((await signUp(idp, { handle: HANDLE, password: PASSWORD })).body, { kind: 'agent', name: '' });
});

t.test('another kind is refused, in any spelling or type, and nothing is created', async (t) => {
  const idp = await idpApp(t);
  for (const kind of [
    'Human',
    'HUMAN',
    ' human',
    'robot',
    '',
    null,
    1,
    true,
    ['human'],
    ['agent'],
    { kind: 'human' },
  ]) {
    const answer = await signUp(idp, { handle: HANDLE, password: PASSWORD, kind });
    t.match(answer, { status: 400, body: { error: 'invalid_kind' } }, JSON.stringify(kind));
  }
  const twice = `{"handle":"${HANDLE}","password":"${PASSWORD}","kind":"human","kind":"admin"}`;
  t.match(
    await signUp(idp, twice),
    { status: 400, body: { error: 'invalid_kind' } },
    'the last of two counts',
  );
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 0);
});

t.test('server-controlled fields are not taken from the body', async (t) => {
  const idp = await idpApp(t);
  const more = {
    id: 'u_0',
    sub: 'u_0',
    role: 'admin',
    state: 'disabled',
    email_verified: true,
    secretHash: 'x',
  };
  const given = { handle: HANDLE, password: PASSWORD };
  for (const [name, value] of Object.entries({ createdAt: 1, ...more })) {
    const refused = { status: 400, body: { error: 'invalid_request', details: [{ path: name }] } };
    t.match(await signUp(idp, { ...given, [name]: value }), refused, name);
    for (const path of ['/v1/agents', '/v1/invites'])
      t.match(await idp.admin('POST', path, { handle: HANDLE, [name]: value }), refused, `${path} ${name}`);
  }
  const all = await idp.admin('POST', '/v1/invites', { handle: HANDLE, expires: 3, role: 'admin' });
  t.match(all.body.error_description, /not supported: expires, role\. Supported: handle, name, days/);
  const { sub } = (await signUp(idp, given)).body;
  const now = idp.clock.now();
  const stored = await principalCollection(await idpStore(t, idp)).findOne({ handle: HANDLE });
  t.strictSame(stored, {
    id: sub,
    handle: HANDLE,
    kind: 'agent',
    state: 'active',
    passwordHash: stored?.passwordHash,
    expiresAt: now + 30 * 86_400_000,
    createdAt: now,
    updatedAt: now,
  });
  t.match(stored?.passwordHash, /^\$argon2id\$/);
});

t.test(
  'a handle has 3 to 254 bytes, no colon, space or control character, and no reserved prefix',
  async (t) => {
    const idp = await idpApp(t);
    const refused = [
      ...['', 'ab', 'a'.repeat(255), `${'é'.repeat(127)}x`, 'a:b', 'a b', 'ab ', 'a\tb', 'a\nb', 'a\0b'],
      ...[
        'a\u00a0b',
        'a\u200bb',
        'a\u202eb',
        'a\ufeffb',
        'a\ud800b',
        'a\u3000b',
        'cid_abc',
        'CID_abc',
        'ac_abc',
        'u_abc',
      ],
      ...[null, 1, true, ['abc'], { $gt: '' }],
    ];
    for (const handle of refused) {
      const body = { handle, password: PASSWORD };
      t.match(
        await signUp(idp, body),
        { status: 400, body: { error: 'invalid_request' } },
        JSON.stringify(handle),
      );
      const minted = await idp.admin('POST', '/v1/agents', { handle });
      t.match(minted, { status: 400, body: { error: 'invalid_request' } }, JSON.stringify(handle));
    }
    t.equal(await principalCollection(await idpStore(t, idp)).count(), 0);
    for (const handle of [
      'abc',
      'a'.repeat(254),
      'a+b@example.test',
      'été-çà',
      '__proto__',
      'constructor',
      '用户名',
    ]) {
      const answer = await signUp(idp, { handle, password: PASSWORD });
      t.match(answer, { status: 201, body: { handle } });
      t.equal(
        (await idp.authorize(await idp.createClient(), { sub: '', handle, password: PASSWORD })).status,
        302,
      );
    }
  },
);

t.test('a password has 8 characters to 1,024 bytes and does not look like a generated secret', async (t) => {
  const idp = await idpApp(t);
  const refused = [
    '',
    '1234567',
    'x'.repeat(1025),
    'é'.repeat(513),
    `agp_${'x'.repeat(43)}`,
    'agp_1234',
    'long\ud800enough',
  ];
  for (const password of [...refused, null, 12345678, ['password'], { $ne: '' }]) {
    const answer = await signUp(idp, { handle: HANDLE, password });
    t.match(
      answer,
      { status: 400, body: { error: 'invalid_request' } },
      JSON.stringify(password).slice(0, 60),
    );
    t.match(answer.body.details, [{ path: 'password' }]);
  }
  t.equal((await signUp(idp, { handle: HANDLE })).status, 400);
  for (const [index, password] of ['12345678', 'x'.repeat(1024), ' äöü 😀 : '].entries()) {
    const given = { handle: `person${index}`, password };
    const { status, body } = await signUp(idp, given);
    t.equal(status, 201);
    t.equal((await idp.authorize(await idp.createClient(), { sub: body.sub, ...given })).status, 302);
  }
});

t.test(
  'a taken handle is answered 409 and changes nothing, whether a human or an agent holds it',
  async (t) => {
    const idp = await idpApp(t);
    const client = await idp.createClient();
    const [human, agent] = [await idp.makeHuman(), await idp.mintAgent()];
    const principals = principalCollection(await idpStore(t, idp));
    for (const who of [human, agent]) {
      const before = await principals.findOne({ id: who.sub });
      idp.clock.advance(1000);
      for (const handle of [who.handle, who.handle.toUpperCase()]) {
        const answers = [
          await signUp(idp, { handle, password: 'another password', kind: 'agent' }),
          await signUp(idp, { handle, password: 'another password', kind: 'human', name: 'Other' }),
          await idp.admin('POST', '/v1/agents', { handle, name: 'Other' }),
        ];
        for (const answer of answers) {
          t.match(answer, { status: 409, body: { error: 'handle_taken' } });
          t.notMatch(answer.text, /agp_|u_/);
        }
      }
      t.strictSame(await principals.findOne({ id: who.sub }), before);
      t.equal((await idp.authorize(client, who)).status, 302, 'the old password still works');
      t.equal((await idp.authorize(client, { ...who, password: 'another password' })).status, 401);
    }
    t.equal(await principals.count(), 2);
  },
);

t.test('spellings of a handle that normalize alike are one handle', async (t) => {
  const idp = await idpApp(t);
  const client = await idp.createClient();
  // The lower-case letter has a composed form, the upper-case letter has none.
  for (const [first, second] of [
    ['J\u030cane', '\u01f0ane'],
    ['\u00c5sa', 'a\u030asa'],
    ['\u212aim', 'kim'],
  ]) {
    t.equal((await signUp(idp, { handle: first, password: PASSWORD })).status, 201);
    t.equal((await signUp(idp, { handle: second, password: PASSWORD })).status, 409, `${second}`);
    const who = { sub: '', handle: second as string, password: PASSWORD };
    t.equal((await idp.authorize(client, who)).status, 302, `${second}`);
  }
});

t.test('closed sign-up gives the same answer to every request, and agents are still minted', async (t) => {
  const idp = await idpApp(t, { disableSignup: true });
  const agent = await idp.mintAgent();
  const closed = { status: 403, body: { error: 'signup_disabled' } };
  const { calls } = idp.random;
  const bodies = [
    { handle: HANDLE, password: PASSWORD },
    { handle: agent.handle, password: PASSWORD },
    { handle: HANDLE, password: PASSWORD, kind: 'human' },
    { handle: HANDLE, password: 'x', kind: 'none' },
    ...[{}, [], null, 1, '{', '', 'x'.repeat(200_000), undefined],
  ];
  const answers = await Promise.all(bodies.map((body) => signUp(idp, body)));
  const types = ['text/plain', 'application/x-www-form-urlencoded', 'application/json; charset=latin1', 'x'];
  for (const type of types) {
    const headers = { 'content-type': type, authorization: `Bearer ${ADMIN_TOKEN}` };
    answers.push(await idp.request('POST', '/v1/accounts', { body: 'handle=x', headers }));
  }
  for (const answer of answers) {
    t.match(answer, closed);
    t.strictSame(comparable(answer), comparable(answers[0] ?? answer));
  }
  for (const method of ['GET', 'HEAD', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
    t.equal((await idp.request(method, '/v1/accounts')).status, method === 'OPTIONS' ? 404 : 405, method);
  }
  for (const path of ['/v1/accounts/', '//v1/accounts', '/V1/accounts', '/v1/accounts%2f', '/v1//accounts']) {
    t.equal((await idp.request('POST', path, { body: bodies[0] })).status, 404, path);
  }
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 1);
  t.equal(idp.random.calls, calls, 'and nothing was hashed');
});

t.test('a minted agent has a 256-bit password that is shown once and stored as a hash', async (t) => {
  const idp = await idpApp(t);
  const { status, headers, body } = await idp.admin('POST', '/v1/agents', {
    handle: 'Bot@Example.test',
    name: 'Bot',
  });
  t.equal(status, 201);
  t.equal(headers['cache-control'], 'no-store');
  t.match(body.password, /^agp_[\w-]{43}$/);
  t.equal(Buffer.from(body.password.slice(4), 'base64url').length, 32);
  t.strictSame(body, {
    sub: body.sub,
    handle: 'bot@example.test',
    kind: 'agent',
    name: 'Bot',
    created_at: '2040-01-01T00:00:00.000Z',
    password: body.password,
  });
  const stored = await principalCollection(await idpStore(t, idp)).findOne({ id: body.sub });
  t.match(stored, { kind: 'agent', secretHash: sha256(body.password) });
  t.notOk(stored && 'passwordHash' in stored);
  t.match(await idp.admin('POST', '/v1/agents', { handle: 'minimal', kind: 'agent' }), {
    status: 201,
    body: { name: '' },
  });
});

t.test('/v1/agents refuses to create a human, in any spelling', async (t) => {
  const idp = await idpApp(t);
  const asked = [
    'human',
    'Human',
    'HUMAN',
    'Agent',
    'AGENT',
    ' agent',
    '',
    null,
    0,
    true,
    ['human'],
    ['agent'],
    {},
  ];
  const bodies = asked.map((kind) => JSON.stringify({ handle: HANDLE, kind }));
  bodies.push(`{"handle":"${HANDLE}","kind":"agent","kind":"human"}`);
  bodies.push(`{"handle":"${HANDLE}","kind":"agent","\\u006bind":"human"}`);
  for (const body of bodies) {
    const answer = await idp.admin('POST', '/v1/agents', body);
    t.match(answer, { status: 400, body: { error: 'kind_not_allowed' } }, body);
  }
  for (const body of [
    `{"handle":"${HANDLE}","__proto__":{"kind":"human"}}`,
    `{"handle":"${HANDLE}","constructor":{"prototype":{"kind":"human"}}}`,
  ]) {
    t.equal((await idp.admin('POST', '/v1/agents', body)).status, 400, body);
  }
  for (const password of ['chosen by somebody', '', null, 1, ['x'], `agp_${'x'.repeat(43)}`]) {
    const answer = await idp.admin('POST', '/v1/agents', { handle: HANDLE, password });
    t.match(answer, { status: 400, body: { details: [{ path: 'password' }] } }, JSON.stringify(password));
  }
  t.equal(await principalCollection(await idpStore(t, idp)).count(), 0);
  t.equal(({} as Record<string, unknown>)['kind'], undefined);
});

t.test('the admin token is checked before the body is read', async (t) => {
  const idp = await idpApp(t);
  const routes = [
    ['POST', '/v1/agents'],
    ['POST', '/v1/clients'],
    ['GET', '/v1/clients'],
  ] as const;
  for (const [method, path] of routes) {
    const refused = async (authorization: string | undefined, error: string, challenge: string) => {
      const answers = ['{', undefined, 'x'.repeat(200_000)].map((body) =>
        idp.request(method, path, {
          ...(method === 'POST' && { body }),
          headers: authorization === undefined ? {} : { authorization },
        }),
      );
      for (const answer of await Promise.all(answers)) {
        t.match(answer, { status: 401, body: { error } }, `${authorization}`);
        t.equal(answer.headers['www-authenticate'], challenge);
      }
    };
    await refused(undefined, 'unauthenticated', 'Bearer realm="idp-admin"');
    const wrong = [
      ...[
        '',
        'Bearer',
        'Bearer ',
        'Bearer undefined',
        ADMIN_TOKEN,
        `Basic ${ADMIN_TOKEN}`,
        basic('admin', ADMIN_TOKEN),
      ],
      ...[`Bearer ${ADMIN_TOKEN}x`, `Bearer ${ADMIN_TOKEN.slice(1)}`, `Bearer ${ADMIN_TOKEN.toLowerCase()}`],
      ...[
        `Bearer ${ADMIN_TOKEN} x`,
        `Bearer x ${ADMIN_TOKEN}`,
        `Token ${ADMIN_TOKEN}`,
        `Bearer "${ADMIN_TOKEN}"`,
      ],
    ];
    for (const authorization of wrong) {
      idp.clock.advance(60_000);
      await refused(authorization, 'invalid_token', 'Bearer realm="idp-admin", error="invalid_token"');
    }
  }
  t.equal(
    (await idp.request('GET', '/v1/clients', { headers: { authorization: `bEARER  ${ADMIN_TOKEN}` } }))
      .status,
    200,
  );
  const refusals = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'admin.refused');
  t.ok(refusals.length > 0 && refusals.every(({ ip }) => ip === '127.0.0.1'));
});

t.test('production without a token has no administrator', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' }, adminToken: undefined });
  for (const [method, path] of [
    ['POST', '/v1/agents'],
    ['POST', '/v1/clients'],
    ['GET', '/v1/clients'],
  ] as const) {
    for (const authorization of [
      undefined,
      'Bearer',
      'Bearer ',
      'Bearer undefined',
      `Bearer ${ADMIN_TOKEN}`,
    ]) {
      const headers = authorization === undefined ? {} : { authorization };
      const answer = await idp.request(method, path, { headers });
      t.match(answer, { status: 501, body: { error: 'admin_api_disabled' } });
    }
  }
});

t.test('accounts and agents are audited without their passwords', async (t) => {
  const idp = await idpApp(t);
  const human = await idp.makeHuman();
  idp.clock.advance(1);
  const agent = await idp.mintAgent();
  const records = await auditOf(await idpStore(t, idp));
  t.match(records, [
    { event: 'account.registered', subject: human.sub, ip: '127.0.0.1', detail: 'human' },
    { event: 'agent.minted', subject: agent.sub, ip: '127.0.0.1' },
  ]);
  t.notMatch(JSON.stringify(records), new RegExp(`${agent.password}|${human.password}|${human.handle}`));
});

t.test(
  'limits of sign-ups are options, and a server with the shared secret calls for its people',
  async (t) => {
    const secret = 'caller-Tz5kWm8QbX2nVr7LdP4yHs9GcJ3f';
    const idp = await idpApp(t, { limits: true, maxRegistrationsPerHour: 3, callerSecret: secret });
    let number = 0;
    const statuses = async (count: number, headers: Record<string, string> = {}) => {
      const all: number[] = [];
      for (let index = 0; index < count; index++) {
        const body = { handle: `person${++number}`, password: PASSWORD };
        all.push((await idp.request('POST', '/v1/accounts', { body, headers, from: '203.0.113.1' })).status);
      }
      return all;
    };
    t.same(await statuses(4), [201, 201, 201, 429]);
    const forPerson = { 'x-caller-secret': secret, 'x-end-user-ip': '203.0.113.2' };
    t.same(await statuses(4, forPerson), [201, 201, 201, 429]);
    t.same(await statuses(4, { 'x-caller-secret': secret }), [201, 201, 201, 201]);
    t.same(await statuses(1, { 'x-caller-secret': `${secret}x` }), [400]);
  },
);

t.test('spaces around a user name are ignored', async (t) => {
  const idp = await idpApp(t);
  const answer = await signUp(idp, { handle: ' ada@example.test ', password: PASSWORD, name: ' Ada ' });
  t.match(answer, { status: 201, body: { handle: 'ada@example.test', name: 'Ada' } });
});
