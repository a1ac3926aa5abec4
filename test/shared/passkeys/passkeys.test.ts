import t, { type Test } from 'tap';
import { createCommit } from '../../../src/core/ops/commit.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { verifyAssertion, verifyCreation } from '../../../src/shared/passkeys/ceremony.js';
import { createPasskeyService, type PasskeyService } from '../../../src/shared/passkeys/service.js';
import { passkeyCollection, usedChallengeCollection } from '../../../src/shared/passkeys/store.js';
import { addAccount, notices, readAccountOf } from '../../kit/accounts.js';
import { type Deviation, SoftwareAuthenticator } from '../../kit/authenticator.js';
import { fakeClock } from '../../kit/clock.js';
import { storeIn } from '../../kit/engine.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { processesOn } from '../processes.js';

/** Passkeys in several processes on one store, and the rules of WebAuthn that only a dishonest authenticator breaks. */

const FROM = { ip: '192.0.2.1', isDisconnected: () => false };
const ORIGIN = 'https://id.example.test';
const ADA = { id: `pr_${'1'.repeat(32)}`, handle: 'ada@example.test' };

const clock = fakeClock();

function serviceOn(store: Store, events: string[]): PasskeyService {
  const record = async ({ event }: { event: string }) => void events.push(event);
  const entry = ({ event }: { event: string }) => ({
    writes: [],
    afterCommit: () => void events.push(event),
  });
  return createPasskeyService({
    passkeys: passkeyCollection(store),
    usedChallenges: usedChallengeCollection(store),
    relyingParty: () => ({ id: 'id.example.test', origins: [ORIGIN], name: 'Example' }),
    throttle: { attempt: (_guess, evaluate) => evaluate() },
    audit: { entry, record, recordFailure: record },
    readAccount: readAccountOf(store),
    commit: createCommit(store),
    hasOtherLogin: async () => true,
    clock,
    verifyCreation,
    verifyAssertion,
  });
}

let forms = 0;
const newForm = () => `form ${++forms}`;

/** Services of several processes, and what they record. */
async function processes(t: Test) {
  const events: string[] = [];
  const uri = storeIn(temporaryFolder(t), 'saas');
  const opened = await processesOn(t, uri, (store) => serviceOn(store, events));
  await addAccount(opened.store, ADA.id);
  return { ...opened, events };
}

const asItIs = async (account: string) => account;

async function add(service: PasskeyService, authenticator: SoftwareAuthenticator, deviation?: Deviation) {
  const form = newForm();
  const options = (await service.creationOptions(ADA, form)) ?? '{}';
  const credential = authenticator.create(options, deviation);
  return service.add(ADA.id, { form, credential, name: 'Laptop' }, FROM);
}

function signIn(service: PasskeyService, authenticator: SoftwareAuthenticator, deviation?: Deviation) {
  const form = newForm();
  const credential = authenticator.get(service.requestOptions(form), deviation);
  return service.verify({ form, credential }, asItIs, FROM);
}

t.test('of 50 concurrent submissions of one signature one succeeds', async (t) => {
  const { service, spread } = await processes(t);
  for (const counter of [0, 7]) {
    const authenticator = new SoftwareAuthenticator(ORIGIN, { counter });
    t.ok(await add(service, authenticator));
    const form = newForm();
    const credential = authenticator.get(service.requestOptions(form));
    const results = await spread(Array(50).fill({ form, credential }), (process, signed) =>
      process.verify(signed, asItIs, FROM),
    );
    t.equal(results.filter((account) => account === ADA.id).length, 1);
    t.equal(await signIn(service, authenticator), ADA.id, 'the next one succeeds');
  }
});

t.test('of 50 concurrent submissions of one new passkey one adds it', async (t) => {
  const { store, service, spread } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  const form = newForm();
  const credential = authenticator.create((await service.creationOptions(ADA, form)) ?? '');
  const created = { form, credential, name: 'Laptop' };
  const results = await spread(Array(50).fill(created), (process, one) => process.add(ADA.id, one, FROM));
  t.equal(results.filter(Boolean).length, 1);
  t.same(await notices(store), ['added']);
  t.equal(await service.remove(ADA.id, authenticator.name, FROM), 'removed');
  t.notOk(await service.add(ADA.id, created, FROM), 'nor after its removal');
  t.same(await service.list(ADA.id), []);
});

t.test('an account has at most twenty passkeys, however many are added at once', async (t) => {
  const { service, spread } = await processes(t);
  const results = await spread(Array(50).fill(null), (process) =>
    add(process, new SoftwareAuthenticator(ORIGIN)),
  );
  t.equal(results.filter(Boolean).length, 20);
  t.equal((await service.list(ADA.id)).length, 20);
  t.equal(await service.creationOptions(ADA, newForm()), null);
  t.notOk(await add(service, new SoftwareAuthenticator(ORIGIN)));
});

t.test('of concurrent uses, the counter keeps the highest', async (t) => {
  const { service, spread } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN, { counter: 1 });
  t.ok(await add(service, authenticator));
  await spread(Array(20).fill(null), (process) => signIn(process, authenticator));
  t.match(await service.list(ADA.id), [{ counter: authenticator.counter }]);
});

t.test('a passkey is not added to an account that changes after the request was admitted', async (t) => {
  const { store, service } = await processes(t);
  const form = newForm();
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  const credential = authenticator.create((await service.creationOptions(ADA, form)) ?? '');
  let isEnded = false;
  const ensureAllowed = async () => {
    if (isEnded) throw new Error('the session has ended');
    isEnded = true;
    await createCommit(store)([(await readAccountOf(store)(ADA.id))?.nextRevision]);
  };
  const added = service.add(ADA.id, { form, credential, name: 'Laptop' }, FROM, ensureAllowed);
  await t.rejects(added, /the session has ended/);
  t.same(await service.list(ADA.id), []);
});

t.test('a signature is valid for its origin, host, challenge, account and verified user only', async (t) => {
  const { service } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  t.ok(await add(service, authenticator));
  const deviations: Record<string, Deviation> = {
    'another origin': { origin: 'https://id.example.test.evil.test' },
    'another port': { origin: `${ORIGIN}:8443` },
    'another host': { rpId: 'example.test' },
    'another challenge': { challenge: 'a'.repeat(43) },
    'another ceremony': { type: 'webauthn.create' },
    'a frame of another site': { crossOrigin: true },
    'a user who was not verified': { userVerified: false },
    'another account': { userHandle: Buffer.from('pr_other').toString('base64url') },
    'no account': { userHandle: '' },
    'a passkey that cannot be synchronized': { backupEligible: false },
  };
  for (const [name, deviation] of Object.entries(deviations)) {
    t.equal(await signIn(service, authenticator, deviation), null, name);
  }
  t.equal(await signIn(service, authenticator), ADA.id);
});

t.test('a new passkey is accepted from its origin, host and verified user only', async (t) => {
  const { service } = await processes(t);
  const deviations: Record<string, Deviation> = {
    'another origin': { origin: 'https://evil.test' },
    'another host': { rpId: 'evil.test' },
    'another challenge': { challenge: 'a'.repeat(43) },
    'another ceremony': { type: 'webauthn.get' },
    'a frame of another site': { crossOrigin: true },
    'a user who was not verified': { userVerified: false },
    'a backup of what cannot be backed up': { backupEligible: false, backedUp: true },
  };
  for (const [name, deviation] of Object.entries(deviations)) {
    t.notOk(await add(service, new SoftwareAuthenticator(ORIGIN), deviation), name);
  }
  const form = newForm();
  const options = (await service.creationOptions(ADA, form)) ?? '';
  const created = JSON.parse(new SoftwareAuthenticator(ORIGIN).create(options));
  const credential = JSON.stringify({ ...created, id: 'another', rawId: 'another' });
  t.notOk(await service.add(ADA.id, { form, credential, name: 'Laptop' }, FROM), 'another ID');
  t.same(await service.list(ADA.id), []);
});

t.test('a signature of another key, a changed one and anything else that is none are refused', async (t) => {
  const { service } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  t.ok(await add(service, authenticator));
  const form = newForm();
  const genuine = JSON.parse(authenticator.get(service.requestOptions(form)));
  const foreign = JSON.parse(new SoftwareAuthenticator(ORIGIN).get(service.requestOptions(form)));
  const { response } = genuine;
  const credentials = [
    ...['', 'null', '[]', '{', '"text"', '{}', '{"id":1}', '{"response":{}}'],
    ...[foreign, { ...foreign, id: genuine.id, rawId: genuine.id }],
    { ...genuine, response: { ...response, signature: foreign.response.signature } },
    { ...genuine, response: { ...response, signature: '' } },
    { ...genuine, response: { ...response, authenticatorData: 'AAAA' } },
    { ...genuine, response: { ...response, clientDataJSON: 'AAAA' } },
    { ...genuine, response: { ...response, clientDataJSON: ['x'] } },
    { ...genuine, type: 'password' },
    { ...genuine, id: 'x'.repeat(2000) },
  ];
  for (const one of credentials) {
    const credential = typeof one === 'string' ? one : JSON.stringify(one);
    t.equal(await service.verify({ form, credential }, asItIs, FROM), null, credential);
    t.notOk(await service.add(ADA.id, { form, credential, name: 'x' }, FROM));
  }
  const credential = JSON.stringify(genuine);
  t.equal(await service.verify({ form: newForm(), credential }, asItIs, FROM), null, 'another form');
  t.equal(await service.verify({ form, credential }, async () => null, FROM), null, 'no such account');
  t.equal(
    await service.verify({ form, credential }, asItIs, FROM),
    ADA.id,
    'none of them used the challenge',
  );
});

t.test('a counter that does not grow is refused and recorded, and stays as it was', async (t) => {
  const { service, events } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN, { counter: 10 });
  t.ok(await add(service, authenticator));
  t.equal(await signIn(service, authenticator), ADA.id);
  for (const counter of [11, 10, 0]) {
    t.equal(await signIn(service, authenticator, { counter }), null);
    t.match(events.slice(-2), ['passkey.counter', 'login.failed']);
  }
  t.match(await service.list(ADA.id), [{ counter: 11 }]);
  // Without a valid signature, nobody can record a copied passkey.
  const count = events.length;
  t.equal(await signIn(service, authenticator, { counter: 1, origin: 'https://evil.test' }), null);
  t.same(events.slice(count), ['login.failed']);
  authenticator.counter = 11;
  t.equal(await signIn(service, authenticator), ADA.id);

  const without = new SoftwareAuthenticator(ORIGIN);
  t.ok(await add(service, without));
  t.equal(await signIn(service, without), ADA.id);
  t.equal(await signIn(service, without), ADA.id, 'an authenticator without a counter');
});

t.test('a synced passkey is used with a counter that stays or goes back', async (t) => {
  const { service, events } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN, { counter: 10 });
  const synced = { backupEligible: true };
  t.ok(await add(service, authenticator, synced));
  for (const counter of [11, 11, 3, 0])
    t.equal(await signIn(service, authenticator, { ...synced, counter }), ADA.id, String(counter));
  t.notOk(events.includes('passkey.counter'));
});

t.test('a use updates whether the passkey is backed up, and when it was used', async (t) => {
  const { service } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  t.ok(await add(service, authenticator, { backedUp: false }));
  t.match(await service.list(ADA.id), [{ backupEligible: true, backedUp: false, lastUsedAt: undefined }]);
  clock.advance(1000);
  t.equal(await signIn(service, authenticator), ADA.id);
  t.match(await service.list(ADA.id), [{ backedUp: true, lastUsedAt: clock.now() }]);
});

t.test('the passkey of another account cannot be renamed or removed', async (t) => {
  const { service, events } = await processes(t);
  const authenticator = new SoftwareAuthenticator(ORIGIN);
  t.ok(await add(service, authenticator));
  t.notOk(await service.rename('pr_other', authenticator.name, 'Mine', FROM));
  t.equal(await service.remove('pr_other', authenticator.name, FROM), 'unknown');
  t.ok(await service.rename(ADA.id, authenticator.name, 'Phone', FROM));
  t.match(await service.list(ADA.id), [{ name: 'Phone' }]);
  t.equal(await service.remove(ADA.id, authenticator.name, FROM), 'removed');
  t.same(events, ['passkey.added', 'passkey.renamed', 'passkey.removed']);
  t.equal(await signIn(service, authenticator), null);
});
