import t from 'tap';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { createCommit } from '../../../src/core/ops/commit.js';
import { createSignInMethods } from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import type { FirstOperator } from '../../../src/idp/provisioning/first-operator.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { type PrincipalCollection, principalCollection } from '../../../src/idp/provisioning/store.js';
import { PASSWORD } from '../../kit/app.js';
import { NO_EFFECT, SILENT_AUDIT } from '../../kit/effects.js';
import { type IdpApp, ISSUER, idpApp, idpStore } from '../../kit/idp.js';

/** An invitation creates one account with one password, despite races. */

const HANDLE = 'ada@example.test';

const NO_FIRST_OPERATOR: Pick<FirstOperator, 'look' | 'create'> = {
  look: async () => null,
  create: async () => null,
};

t.test('of 50 concurrent acceptances one succeeds', async (t) => {
  const idp = await idpApp(t, { limits: false });
  const client = await idp.createClient();
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const path = new URL(body.invite_url).pathname;
  const accept = (password: string) => idp.request('POST', path, { body: { password } });
  const passwords = Array.from({ length: 50 }, (_, index) => `${PASSWORD} ${index}`);
  const statuses = (await Promise.all(passwords.map(accept))).map(({ status }) => status);
  t.same(statuses.toSorted(), [201, ...Array(49).fill(410)]);
  const signIns = await Promise.all(
    passwords.map((password) => idp.authorize(client, { sub: '', handle: HANDLE, password })),
  );
  t.same(
    signIns.map(({ status }) => status),
    statuses.map((status) => (status === 201 ? 302 : 401)),
    'only the winner signs in',
  );
  t.equal((await accept(PASSWORD)).status, 410, 'a reload makes no second account');
});

/** The links of another process; passwords are not hashed. */
const linksOn = (
  store: Store,
  principals: PrincipalCollection,
  { clock }: IdpApp,
  { hash = async () => 'a hash', firstOperator = NO_FIRST_OPERATOR } = {},
) =>
  createLinks(principals, {
    signInMethods: createSignInMethods(),
    endSessions: async () => NO_EFFECT,
    firstOperator,
    commit: createCommit(store),
    audit: SILENT_AUDIT,
    clock,
    random: systemRandom,
    passwords: { problem: () => null, hash, verify: async () => ({ ok: false, outdated: false }) },
    passwordPolicy: { validate: async () => undefined },
    throttle: {
      count: async () => undefined,
      tryCountKey: async () => true,
      trustOnly: async () => undefined,
    },
    issuer: () => ISSUER,
  });

t.test('a link without an account reads as much from the store as one with an account', async (t) => {
  const idp = await idpApp(t);
  const store = await idpStore(t, idp);
  const principals = principalCollection(store);
  let documents = 0;
  let setups = 0;
  const counting: PrincipalCollection = {
    ...principals,
    async findOne(where) {
      const found = await principals.findOne(where);
      documents += found ? 1 : 0;
      return found;
    },
    async page(query) {
      const page = await principals.page(query);
      documents += page.items.length;
      return page;
    },
  };
  const look = async () => {
    setups++;
    return null;
  };
  const links = linksOn(store, counting, idp, { firstOperator: { ...NO_FIRST_OPERATOR, look } });
  await idp.admin('POST', '/v1/invites', { handle: 'first@example.test' });
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const token = body.invite_url.split('/').at(-1);
  const [id, secret] = [token.slice(0, -43), 'x'.repeat(43)];
  const readsOf = async (invalid: string) => {
    documents = 0;
    setups = 0;
    await t.rejects(links.look(invalid, false), { code: 'link_unknown' });
    return { documents, setups };
  };
  const once = { documents: 1, setups: 1 };
  t.same(await readsOf(id + secret), once);
  t.same(await readsOf(id.replace(/.{8}$/, '0'.repeat(8)) + secret), once);
  t.same(await readsOf('f'.repeat(32) + secret), once);
});

t.test('the expired link of the first operator is of no account that exists', async (t) => {
  const idp = await idpApp(t);
  const store = await idpStore(t, idp);
  const look = async () => ({ expiresAt: 1, hasExpired: true });
  const links = linksOn(store, principalCollection(store), idp, {
    firstOperator: { ...NO_FIRST_OPERATOR, look },
  });
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const [id, secret] = [body.invite_url.split('/').at(-1).slice(0, -43), 'x'.repeat(43)];
  await t.rejects(links.look(id + secret, false), { code: 'link_unknown' });
  await t.rejects(links.look('f'.repeat(32) + secret, false), { code: 'link_spent' });
});

t.test('a change while the password is hashed decides the acceptance', async (t) => {
  const idp = await idpApp(t);
  const store = await idpStore(t, idp);
  const principals = principalCollection(store);
  let concurrentChange = async (): Promise<unknown> => undefined;
  const hash = async () => {
    await concurrentChange();
    return 'a hash';
  };
  const links = linksOn(store, principals, idp, { hash });
  const invite = (handle: string) => idp.admin('POST', '/v1/invites', { handle, days: 1 });
  const happenings: Record<string, (sub: string) => Promise<unknown>> = {
    expired: async () => idp.clock.advance(86_400_000),
    invited: () => invite('invited'),
    disabled: (sub) => idp.admin('POST', `/v1/principals/${sub}/disable`),
  };
  const from = { ip: '192.0.2.1', isDisconnected: () => false };
  for (const [handle, happen] of Object.entries(happenings)) {
    const token = (await invite(handle)).body.invite_url.split('/').at(-1);
    const { id = '' } = (await principals.findOne({ handle })) ?? {};
    concurrentChange = () => happen(id);
    await t.rejects(links.accept(token, { password: PASSWORD, confirmation: undefined }, from), {
      code: 'link_spent',
    });
    const stored = await principals.findOne({ handle });
    t.match(stored, { state: handle === 'disabled' ? 'disabled' : 'invited' }, handle);
    t.equal(stored?.passwordHash, undefined, handle);
  }
});

t.test('an acceptance during a new invitation keeps the account', async (t) => {
  const idp = await idpApp(t);
  const store = await idpStore(t, idp);
  const principals = principalCollection(store);
  const client = await idp.createClient();
  const { body } = await idp.admin('POST', '/v1/invites', { handle: HANDLE });
  const path = new URL(body.invite_url).pathname;
  const accept = () => idp.request('POST', path, { body: { password: PASSWORD } });
  const slow = new Proxy(principals, {
    get: (target, name: keyof typeof principals) =>
      name === 'findOne'
        ? async (where: Parameters<typeof target.findOne>[0]) => {
            const found = await target.findOne(where);
            t.equal((await accept()).status, 201);
            return found;
          }
        : target[name].bind(target),
  });
  const links = linksOn(store, slow, idp);
  const from = { ip: '192.0.2.1', isDisconnected: () => false };
  await t.rejects(links.invite({ handle: HANDLE }, from), { code: 'handle_taken' });
  t.equal((await principals.findOne({ handle: HANDLE }))?.linkHash, undefined, 'and no link leads to it');
  t.equal((await idp.authorize(client, { sub: '', handle: HANDLE, password: PASSWORD })).status, 302);
});
