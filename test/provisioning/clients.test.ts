import t from 'tap';
import { sha256 } from '../../src/kernel/secrets.js';
import { clientCollection } from '../../src/provisioning/store.js';
import { auditOf } from '../kit/app.js';
import { idpApp, idpStore } from '../kit/idp.js';

const URI = 'https://app.example.test/cb';

t.test('[13] a client is told its secret once; a public one has none', async (t) => {
  const idp = await idpApp(t);
  const { status, headers, body } = await idp.admin('POST', '/v1/clients', {
    name: 'App',
    redirect_uris: URI,
  });
  t.equal(status, 201);
  t.equal(headers['cache-control'], 'no-store');
  t.match(body.client_id, /^cid_[\w-]{22,}$/);
  t.match(body.client_secret, /^csec_[\w-]{43}$/);
  const { client_secret: secret, ...shown } = body;
  t.strictSame(shown, {
    client_id: body.client_id,
    client_name: 'App',
    redirect_uris: [URI],
    post_logout_redirect_uris: [],
    public: false,
    principal_kinds: ['agent', 'human'],
    trusted: false,
    created_at: '2040-01-01T00:00:00.000Z',
  });
  const clients = clientCollection(await idpStore(t, idp));
  t.equal((await clients.findOne({ id: body.client_id }))?.secretHash, sha256(secret));

  idp.clock.advance(1);
  const whole = {
    client_name: 'Native',
    redirect_uris: ['com.example.app:/cb', 'http://127.0.0.1/cb'],
    post_logout_redirect_uris: 'https://app.example.test/bye',
    public: true,
    principal_kinds: ['human'],
  };
  const native = (await idp.admin('POST', '/v1/clients', { ...whole, trusted: true, client_secret: 'mine' }))
    .body;
  t.match(native, { ...whole, post_logout_redirect_uris: ['https://app.example.test/bye'] });
  t.notOk('client_secret' in native);

  const list = await idp.admin('GET', '/v1/clients');
  t.strictSame(list.body, { clients: [shown, native], next: null });
  t.notMatch(list.text, /csec_|secret/i);
  const created = (await auditOf(await idpStore(t, idp))).filter(({ event }) => event === 'client.created');
  t.same(
    created.map(({ subject }) => subject),
    [body.client_id, native.client_id],
  );
});

t.test('[140] redirect URIs are https, http to this machine, or a scheme of reverse DNS', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' } });
  const accepted = [
    ...[
      URI,
      `${URI}?tenant=1&x=%20`,
      'https://app.example.test',
      'https://app.example.test:8443/',
      'https://xn--bcher-kva.test/',
    ],
    ...[
      'http://127.0.0.1/cb',
      'http://127.0.0.1:8080/cb',
      'http://[::1]/cb',
      'http://localhost:3000/cb',
      'http://127.0.0.2/',
    ],
    ...[
      'com.example.app:/cb',
      'com.example.app://cb',
      'com.example-app.x2:cb',
      'https://my_app/cb',
      'https://[2001:db8::1]/cb',
    ],
  ];
  const refused = [
    ...[
      '',
      'cb',
      '/cb',
      '//app.example.test/cb',
      'app.example.test/cb',
      '*',
      'https://*.example.test/cb',
      'https://',
    ],
    ...[
      'javascript:alert(1)',
      'data:text/html,x',
      'file:///etc/passwd',
      'vbscript:x',
      'about:blank',
      'blob:https://x.test/1',
    ],
    ...[
      'ftp://example.test/',
      'ws://example.test/',
      'myapp:/cb',
      'mailto:a@example.test',
      'view-source:https://x.test',
    ],
    ...[
      'http://app.example.test/cb',
      'http://127.0.0.1.evil.test/cb',
      'http://localhost.evil.test/',
      'http://0.0.0.0/',
    ],
    ...[
      `${URI}#`,
      `${URI}#f`,
      `${URI} `,
      ` ${URI}`,
      `${URI}\n`,
      `${URI}\0`,
      'https://app.example.test\\@evil.test/',
      `${URI}é`,
    ],
    ...[
      'https://user@app.example.test/cb',
      'https://user:pw@app.example.test/',
      'https://@app.example.test/',
      'https://:@x.test/',
    ],
    ...['com.example.app://user@host/cb', '.com:/cb', 'com..app:/cb', 'x'.repeat(2049), null, 1, { $ne: '' }],
  ];
  for (const uri of accepted) {
    for (const uris of [uri, [uri]]) {
      const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: uris });
      t.match(answer, { status: 201, body: { redirect_uris: [uri] } }, uri);
    }
  }
  for (const uri of refused) {
    const name = JSON.stringify(uri)?.slice(0, 60);
    const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: [URI, uri] });
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, name);
    const bye = { redirect_uris: URI, post_logout_redirect_uris: [uri] };
    t.equal((await idp.admin('POST', '/v1/clients', bye)).status, 400, name);
  }
  const two = { redirect_uris: [URI, 'http://x.test/'], post_logout_redirect_uris: ['*'] };
  const { details } = (await idp.admin('POST', '/v1/clients', two)).body;
  t.match(details, [{ path: 'redirect_uris.1' }, { path: 'post_logout_redirect_uris.0' }]);
  t.equal(await clientCollection(await idpStore(t, idp)).count(), 2 * accepted.length);

  const development = await idpApp(t);
  t.equal(
    (await development.admin('POST', '/v1/clients', { redirect_uris: 'http://app.test/cb' })).status,
    201,
  );
});

t.test('[1]–[8] /v1/clients takes one JSON object of the right types', async (t) => {
  const idp = await idpApp(t);
  const wrong: unknown[] = [
    ...['', 'null', '[]', '"x"', '{', '{}', '['.repeat(16_000), '{"__proto__":{"public":true}}'],
    ...[null, [], '', {}, 1, [[]], [null], Array(51).fill(URI)].map((redirect_uris) => ({ redirect_uris })),
    ...[null, 1, ['x'], 'x'.repeat(201), 'a\0b', 'a\u202eb'].map((name) => ({ redirect_uris: URI, name })),
    ...['true', 1, null, []].map((value) => ({ redirect_uris: URI, public: value })),
    ...[[], 'human', ['Human'], ['human', 'human'], [null], {}].map((principal_kinds) => ({
      redirect_uris: URI,
      principal_kinds,
    })),
  ];
  for (const body of wrong) {
    const answer = await idp.admin('POST', '/v1/clients', body);
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, JSON.stringify(body).slice(0, 80));
  }
  t.equal(await clientCollection(await idpStore(t, idp)).count(), 0);
});

t.test('a long list of clients comes in pages, each client once', async (t) => {
  const idp = await idpApp(t);
  const made = new Set<string>();
  for (let count = 0; count < 205; count++) made.add((await idp.createClient({ public: true })).id);
  const seen: string[] = [];
  let after: string | null = '';
  for (let pages = 0; pages < 4 && after !== null; pages++) {
    const query = after === '' ? '' : `?after=${encodeURIComponent(after)}`;
    const { body } = await idp.admin('GET', `/v1/clients${query}`);
    seen.push(...body.clients.map((client: { client_id: string }) => client.client_id));
    after = body.next;
  }
  t.equal(after, null);
  t.equal(seen.length, 205);
  t.same(new Set(seen), made);
  for (const query of [
    'after=x',
    'after=',
    'after=%00',
    'after=a&after=b',
    `after=${'x'.repeat(1025)}`,
    'after[$gt]=',
  ]) {
    const { status } = await idp.admin('GET', `/v1/clients?${query}`);
    t.equal(status, query.includes('[') ? 200 : 400, query);
  }
});

t.test('[140] an address that browsers and parsers read differently cannot be registered', async (t) => {
  const idp = await idpApp(t);
  for (const uri of [
    ...[
      'https:app.example.test/cb',
      'https:/app.example.test/cb',
      'https:///app.example.test/cb',
      'http:127.0.0.1/cb',
    ],
    ...[
      "https://app.example.test;script-src'x'/cb",
      'https://app,example.test/cb',
      'https://app%2eexample.test/cb',
    ],
  ]) {
    t.equal((await idp.admin('POST', '/v1/clients', { redirect_uris: uri })).status, 400, uri);
  }
});
