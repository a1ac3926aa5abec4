import t from 'tap';
import { sha256 } from '../../src/kernel/secrets.js';
import { clientCollection } from '../../src/provisioning/store.js';
import { auditOf } from '../kit/app.js';
import { idpApp, idpStore } from '../kit/idp.js';
import { REGISTRABLE, UNREGISTRABLE } from '../kit/redirect-uris.js';

const URI = 'https://app.example.test/cb';

const NO_STRINGS = ['', null, 1, { $ne: '' }];

t.test('the secret of a client is returned once, and a public client has none', async (t) => {
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

t.test('redirect URIs are https, http to a loopback address, or a reverse-DNS scheme', async (t) => {
  const idp = await idpApp(t, { env: { NODE_ENV: 'production' } });
  for (const uri of REGISTRABLE) {
    for (const uris of [uri, [uri]]) {
      const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: uris });
      t.match(answer, { status: 201, body: { redirect_uris: [uri] } }, uri);
    }
  }
  for (const uri of [...UNREGISTRABLE, ...NO_STRINGS]) {
    const name = JSON.stringify(uri)?.slice(0, 60);
    const answer = await idp.admin('POST', '/v1/clients', { redirect_uris: [URI, uri] });
    t.match(answer, { status: 400, body: { error: 'invalid_request' } }, name);
    const bye = { redirect_uris: URI, post_logout_redirect_uris: [uri] };
    t.equal((await idp.admin('POST', '/v1/clients', bye)).status, 400, name);
  }
  const two = { redirect_uris: [URI, 'http://x.test/'], post_logout_redirect_uris: ['*'] };
  const { details } = (await idp.admin('POST', '/v1/clients', two)).body;
  t.match(details, [{ path: 'redirect_uris.1' }, { path: 'post_logout_redirect_uris.0' }]);
  t.equal(await clientCollection(await idpStore(t, idp)).count(), 2 * REGISTRABLE.length);

  const development = await idpApp(t);
  t.equal(
    (await development.admin('POST', '/v1/clients', { redirect_uris: 'http://app.test/cb' })).status,
    201,
  );
});

t.test('/v1/clients accepts one JSON object of the right types', async (t) => {
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
