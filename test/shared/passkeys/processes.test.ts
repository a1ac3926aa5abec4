import t, { type Test } from 'tap';
import { openStore } from '../../../src/core/storage/open.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { type IdentityDocument, identityCollection } from '../../../src/saas/login-providers/store.js';
import { type PasskeyDocument, passkeyCollection } from '../../../src/shared/passkeys/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { SoftwareAuthenticator } from '../../kit/authenticator.js';
import { type Posted, PROCESSES, post, spread, startAll } from '../../kit/saas-processes.js';
import { CLIENT } from '../../saas/login-providers/kit.js';

/** Passkeys of accounts without a password, used and removed in four processes at once. */

const ORIGIN = 'http://app.example.test';
const CALLS = 50;
const ROUNDS = 10;

async function races(t: Test, more: { databaseUri?: string } = {}): Promise<void> {
  // The provider is not called.
  const login = { acme: { issuer: 'http://127.0.0.1:9', ...CLIENT } };
  const { urls, options } = await startAll(t, { passkeys: true, limits: false, login, ...more });
  const [url] = urls as [string];
  const store = await openStore(options.databaseUri);
  t.teardown(() => store.close());
  const [users, passkeys, identities] = [
    userCollection(store),
    passkeyCollection(store),
    identityCollection(store),
  ];

  const begin = async (path: string, body?: object, token?: string) => {
    const { ceremony, options } = (await post(`${url}/api${path}/begin`, body, token ? { token } : {})).body
      .data;
    return { ceremony, options: JSON.stringify(options) };
  };
  /** Sends one response to a ceremony many times. */
  const repeat = (path: string, ceremony: string, credential: string, token?: string) =>
    spread(urls, CALLS, (at) =>
      post(`${at}/api${path}`, { ceremony, credential: JSON.parse(credential) }, token ? { token } : {}),
    );
  const accepted = (answers: Posted[]) => answers.filter(({ status }) => status < 300);
  const codes = (answers: Posted[]) =>
    [...new Set(answers.filter(({ status }) => status >= 300).map(({ body }) => body.error.code))].sort();

  const owner = new SoftwareAuthenticator(ORIGIN);
  let token = '';
  let id = '';

  await t.test('one response signs up once', async (t) => {
    const { ceremony, options } = await begin('/auth/register/passkey', { email: 'ada@example.test' });
    const answers = await repeat('/auth/register/passkey', ceremony, owner.create(options));
    t.equal(accepted(answers).length, 1);
    t.same(codes(answers), ['PASSKEY_REJECTED']);
    t.equal(await users.count(), 1);
    const { user, accessToken } = accepted(answers)[0]?.body.data ?? {};
    [token, id] = [accessToken, user.id];
    await users.updateOne({ id }, { set: { emailVerified: true } });
  });

  await t.test('one response adds one passkey', async (t) => {
    const { ceremony, options } = await begin('/user/passkeys', undefined, token);
    const created = new SoftwareAuthenticator(ORIGIN).create(options);
    const answers = await repeat('/user/passkeys', ceremony, created, token);
    t.equal(accepted(answers).length, 1);
    t.same(codes(answers), ['PASSKEY_REJECTED']);
    t.equal(await passkeys.count({ account: id }), 2);
  });

  await t.test('one response signs in once', async (t) => {
    for (let round = 0; round < 3; round++) {
      const { ceremony, options } = await begin('/auth/passkey');
      const answers = await repeat('/auth/passkey', ceremony, owner.get(options));
      t.equal(accepted(answers).length, 1);
      t.same(codes(answers), ['INVALID_PASSKEY']);
    }
  });

  const removePasskey = (at: string, passkey: string) =>
    post(`${at}/api/user/passkeys/remove`, { id: passkey }, { token });
  const removeIdentity = (at: string, identity: string) =>
    post(`${at}/api/user/identities/${identity}`, undefined, { token, method: 'DELETE' });
  const identity = (name: string): IdentityDocument => ({
    id: name.padEnd(43, 'x'),
    ...{ userId: id, provider: 'acme', issuer: 'http://127.0.0.1:9', subject: name, createdAt: 1 },
  });
  /** Removes everything at once, restores what is gone and begins again. */
  const race = async (
    t: Test,
    removals: ((at: string) => Promise<Posted>)[],
    restore: () => Promise<unknown>[],
  ): Promise<void> => {
    const left = async () =>
      (await passkeys.count({ account: id })) + (await identities.count({ userId: id }));
    for (let round = 0; round < ROUNDS; round++) {
      await Promise.allSettled(restore());
      t.equal(await left(), 2);
      const answers = await spread(urls, 16, (at, index) => {
        const remove = removals[Math.floor(index / PROCESSES) % 2] as (at: string) => Promise<Posted>;
        return remove(at);
      });
      const refused = codes(answers).filter((code) => !['NOT_FOUND', 'LAST_LOGIN_METHOD'].includes(code));
      t.same(refused, []);
      t.ok((await left()) >= 1, 'at once');
      for (const remove of removals) await remove(url);
      t.equal(await left(), 1, 'one after the other');
    }
  };

  const { items: own } = await passkeys.page({ where: { account: id }, sort: 'account', limit: 9 });
  const [first, second] = own as [PasskeyDocument, PasskeyDocument];
  const [one, two] = ['one', 'two'].map(identity) as [IdentityDocument, IdentityDocument];

  await t.test('removals of all passkeys leave one', (t) =>
    race(t, [(at) => removePasskey(at, first.id), (at) => removePasskey(at, second.id)], () =>
      own.map((passkey) => passkeys.insert(passkey)),
    ),
  );

  await passkeys.deleteMany({ account: id });
  await t.test('removals of the last passkey and the last provider leave one', (t) =>
    race(t, [(at) => removePasskey(at, first.id), (at) => removeIdentity(at, one.id)], () => [
      passkeys.insert(first),
      identities.insert(one),
    ]),
  );

  await passkeys.deleteMany({ account: id });
  await t.test('removals of all providers leave one', (t) =>
    race(t, [(at) => removeIdentity(at, one.id), (at) => removeIdentity(at, two.id)], () => [
      identities.insert(one),
      identities.insert(two),
    ]),
  );
}

t.test('four processes accept each passkey once and keep one way in, on one SQLite file', (t) => races(t));

await onMongod((server) => {
  t.test('four processes accept each passkey once and keep one way in, on one MongoDB', (t) =>
    races(t, { databaseUri: server.fresh(t) }),
  );
});
