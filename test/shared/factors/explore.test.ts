import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { systemRandom } from '../../../src/core/kernel/secrets.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { userCollection } from '../../../src/saas/auth/store.js';
import { mailCollection, nameOf } from '../../../src/shared/email/store.js';
import { createFactorService, type FactorService } from '../../../src/shared/factors/service.js';
import { factorCollection, readFactorVersion } from '../../../src/shared/factors/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { PASSWORD, testOptions } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { codeAt, FACTOR_KEY } from '../../kit/factors.js';
import { compiled, startProgram } from '../../kit/process.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { codes, holds, insist } from '../../saas/auth/explored-service.js';

/** Changes of a second factor beside each other, killed at any call, and in several processes. */

const ADA = 'usr_ada';
const FROM = { ip: '192.0.2.1', isDisconnected: () => false };
const PROCESSES = 4;
const USES = 50;

interface StoredMail {
  id: string;
  version: number;
}
const mailsOf = (store: Store) => store.collection<StoredMail>('mails');

/** The service of one process; the mails are stored as in the outbox. */
function serviceOn(store: Store, seed: string): FactorService {
  return createFactorService({
    factors: factorCollection(store),
    keys: [FACTOR_KEY],
    issuer: () => 'Example',
    throttle: { attempt: (_guess, evaluate) => evaluate(), trust: async () => undefined },
    audit: { record: async () => undefined, recordFailure: async () => undefined },
    async announce(kind, account, version) {
      const id = `${kind}:${account}:${version}`;
      await mailsOf(store).insert({ id, version }).catch(nullIfTaken);
    },
    clock: fakeClock(),
    random: countedRandom(seed),
  });
}

/** The app that was shown in the set-up, whose code is always the same: the clock stands still. */
let code = '';
let recoveryCodes: string[] = [];

const begun = async (store: Store): Promise<void> => {
  mailsOf(store);
  const { secret } = await serviceOn(store, 'setup').begin(ADA, 'ada');
  code = codeAt(secret, fakeClock().now());
};

/** With a factor, of whose app no code was used since. */
const enrolled = async (store: Store): Promise<void> => {
  await begun(store);
  recoveryCodes = (await serviceOn(store, 'setup').confirm(ADA, code, 'form', FROM)) ?? [];
  await factorCollection(store).updateOne({ id: ADA }, { set: { lastStep: 0 } });
  await mailsOf(store).deleteMany({});
};

const confirm = (form: string) => (store: Store) => serviceOn(store, form).confirm(ADA, code, form, FROM);
const verify = (typed: () => string, seed: string) => (store: Store) =>
  serviceOn(store, seed).verify(ADA, typed(), FROM);
const remove = (store: Store) => serviceOn(store, 'remove').remove(ADA, FROM);

const resultOf = <T>(result: PromiseSettledResult<unknown> | undefined): T | undefined =>
  result?.status === 'fulfilled' ? (result.value as T) : undefined;

/** Whether each change is reported, and nothing else. */
async function checkMails(store: Store, changes: number): Promise<void> {
  const version = await readFactorVersion(factorCollection(store), ADA);
  const { items } = await mailsOf(store).page({ sort: 'id', limit: 10 });
  const due = items.filter((mail) => version >= mail.version).length;
  insist(due === changes, `${due} mails of ${changes} changes`);
}

const isEnrolled = async (store: Store) => (await serviceOn(store, 'check').stateOf(ADA)) !== null;

t.test(
  'two confirmations of one app: in every order and with a crash, one takes effect and is reported',
  async (t) => {
    const check: Scenario['check'] = async (store, results) => {
      const given = results.flatMap((result) => resultOf<string[]>(result)?.join() ?? []);
      insist(given.length <= 1, 'two sets of recovery codes');
      insist(
        codes(results).every((one) => ['done', 'FACTOR_CHANGED'].includes(one)),
        codes(results).join(),
      );
      const isSet = await isEnrolled(store);
      insist(isSet || given.length === 0, 'codes of no factor');
      await checkMails(store, isSet ? 1 : 0);
      for (const one of given[0]?.split(',') ?? [])
        insist(
          (await serviceOn(store, 'check').verify(ADA, one, FROM)) === 'recovery',
          'a code is not valid',
        );
    };
    const actors = [confirm('one'), confirm('two')];
    holds(t, await explore({ setup: begun, actors, crash: true, check }));
  },
);

t.test('two uses of one code: in every order and with a crash, at most one is accepted', async (t) => {
  for (const typed of [() => code, () => recoveryCodes[0] ?? '']) {
    const actors = [verify(typed, 'one'), verify(typed, 'two')];
    const isOnce: Scenario['check'] = async (_store, results) => {
      const accepted = results.filter((result) => resultOf(result) != null).length;
      insist(accepted <= 1, 'accepted twice');
      insist(accepted === 1 || results.includes(undefined), 'refused although nobody used it');
    };
    holds(t, await explore({ setup: enrolled, actors, crash: true, check: isOnce }));
  }
});

t.test(
  'a removal beside uses and a removal: it is reported if it happened, and nothing survives it',
  async (t) => {
    for (const other of [verify(() => code, 'use'), verify(() => recoveryCodes[0] ?? '', 'use'), remove]) {
      const check: Scenario['check'] = async (store, results) => {
        insist(
          codes(results).every((one) => one === 'done'),
          codes(results).join(),
        );
        const isSet = await isEnrolled(store);
        insist(isSet || !(await factorCollection(store).findOne({ id: ADA }))?.recoveryKey, 'codes are left');
        insist(!isSet || results.includes(undefined), 'it was not removed');
        await checkMails(store, isSet ? 0 : 1);
      };
      holds(t, await explore({ setup: enrolled, actors: [remove, other], crash: true, check }));
    }
  },
);

t.test('a mail that is enqueued after its change is found out', async (t) => {
  const late = async (store: Store) => {
    const removed = await factorCollection(store).updateOne(
      { id: ADA },
      { unset: ['confirmedAt', 'secret', 'recoveryKey'], inc: { rev: 1 } },
    );
    await mailsOf(store).insert({ id: 'late', version: removed?.rev ?? 0 });
  };
  const check: Scenario['check'] = async (store) => checkMails(store, (await isEnrolled(store)) ? 0 : 1);
  const { failure } = await explore({ setup: enrolled, actors: [late], crash: true, check });
  t.equal(failure?.reason, '0 mails of 1 changes');
});

/** An account whose address is verified, through the HTTP interface of a process. */
async function signUp(store: Store, url: string, email: string) {
  const post = async (path: string, body: object, token?: string) => {
    const headers = {
      'content-type': 'application/json',
      ...(token && { authorization: `Bearer ${token}` }),
    };
    const response = await fetch(`${url}/api${path}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
    });
    // biome-ignore lint/suspicious/noExplicitAny: tests assert its content
    return (await response.json()) as any;
  };
  const { user, accessToken: token } = (await post('/auth/register', { email, password: PASSWORD })).data;
  await userCollection(store).updateOne({ id: user.id }, { set: { emailVerified: true } });
  const { secret } = (await post('/user/second-factor/begin', {}, token)).data;
  return { id: user.id as string, email, secret: secret as string, token: token as string, post };
}

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(
    `${engine}, ${PROCESSES} processes: of ${USES} concurrent sign-ins with one code one succeeds`,
    async (t) => {
      const databaseUri = fresh(t);
      const options = {
        ...testOptions(temporaryFolder(t)),
        ...{ databaseUri, limits: false, factorEncryptionKey: FACTOR_KEY, logLevel: 'info' },
      };
      const args = [JSON.stringify(options)];
      const start = () => startProgram(t, compiled('test/kit/saas-server.js'), { args }).url();
      const url = await start();
      const urls = [url, ...(await Promise.all(Array.from({ length: PROCESSES - 1 }, start)))];
      const store = await openStore(databaseUri);
      t.teardown(() => store.close());
      const { post, token, secret, email } = await signUp(store, url, 'ada@example.test');
      const confirmed = await post(
        '/user/second-factor/confirm',
        { code: codeAt(secret, Date.now()) },
        token,
      );
      const { recoveryCodes: recovery } = confirmed.data;

      /** Signs in often at once with one code. Returns how often it was accepted. */
      const useOften = async (typed: string): Promise<number> => {
        const { challenge } = (await post('/auth/login', { email, password: PASSWORD })).error;
        const uses = Array.from({ length: USES }, async (_, index) => {
          const response = await fetch(`${urls[index % PROCESSES]}/api/auth/second-factor`, {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({ challenge, code: typed }),
          });
          return response.status;
        });
        const statuses = await Promise.all(uses);
        t.ok(
          statuses.every((status) => status === 200 || status === 401),
          String(statuses),
        );
        return statuses.filter((status) => status === 200).length;
      };
      // The code of the next step, because the one of the enrolment was used.
      t.equal(await useOften(codeAt(secret, Date.now() + 30_000)), 1);
      t.equal(await useOften(recovery[4]), 1);
      t.equal(await useOften(recovery[4]), 0);
    },
  );
}

/** @param moments of each call of the store at which a process is killed */
function forKills(engine: string, fresh: (t: Test) => string, moments: readonly string[]): void {
  t.test(
    `${engine}: an enrolment and a removal killed at any call are complete and reported, or neither`,
    async (t) => {
      const uri = fresh(t);
      const store = await openStore(uri);
      t.teardown(() => store.close());
      const factors = factorCollection(store);
      const mails = mailCollection(store);
      await store.ready();
      const service = createFactorService({
        factors,
        keys: [FACTOR_KEY],
        issuer: () => 'Example',
        throttle: { attempt: (_guess, evaluate) => evaluate(), trust: async () => undefined },
        audit: { record: async () => undefined, recordFailure: async () => undefined },
        clock: { now: Date.now },
        random: systemRandom,
      });
      const outcomes = new Set<string>();
      for (const change of ['added', 'removed'] as const) {
        for (const moment of moments) {
          let hasEnded = false;
          for (let step = 1; !hasEnded; step++) {
            const id = `usr_${change}${moment}${step}`;
            const { secret } = await service.begin(id, 'ada');
            if (change === 'removed') await service.confirm(id, codeAt(secret, Date.now()), 'form', FROM);
            const worker = compiled('test/shared/factors/change-worker.js');
            const args = [worker, uri, id, change, secret, String(step), moment];
            const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
            const [exit] = await once(child, 'exit');
            hasEnded = exit === 0;
            // A write of the killed process may still reach the server: this one comes after it or makes it fail.
            await factors.updateOne({ id }, { inc: { rev: 1 } });
            const { confirmedAt, version = 0 } = (await factors.findOne({ id })) ?? {};
            const isChanged = (confirmedAt !== undefined) === (change === 'added');
            const { items } = await mails.page({ where: { userId: id }, sort: 'id', limit: 10 });
            const reports = items.filter((mail) => nameOf(mail) === `second-factor-${change}`);
            const isReported = reports.length === 1 && (reports[0]?.after?.reaches ?? 0) <= version;
            t.equal(isReported, isChanged, `${change} ${moment} call ${step}`);
            outcomes.add(`${change} ${moment} ${isChanged}`);
            if (step > 30) throw new Error('it never comes to an end');
          }
        }
      }
      t.equal(outcomes.size, 4 * moments.length, 'both outcomes are seen');
    },
  );
}

const inFile = (t: Test) => `sqlite:${join(temporaryFolder(t), 'factors.db')}`;
// `npm run test:kills` runs both moments.
const MOMENTS = process.env['KILL_ROUNDS'] === undefined ? ['during'] : ['before', 'during'];
forEngine('SQLite', inFile);
forKills('SQLite', inFile, MOMENTS);
await onMongod((server) => {
  forEngine('MongoDB', (t) => server.fresh(t));
  forKills('MongoDB', (t) => server.fresh(t), MOMENTS);
});
