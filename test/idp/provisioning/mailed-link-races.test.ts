import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { DAY } from '../../../src/core/kernel/clock.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import { openStore } from '../../../src/core/storage/open.js';
import { createDirectory } from '../../../src/idp/provisioning/directory.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { createPersonMails, readMailVersion } from '../../../src/idp/provisioning/mails.js';
import { createPrincipals } from '../../../src/idp/provisioning/principals.js';
import { type PrincipalDocument, principalCollection } from '../../../src/idp/provisioning/store.js';
import { createVerification, createVerificationMails } from '../../../src/idp/provisioning/verification.js';
import { mailCollection } from '../../../src/shared/email/store.js';
import { onMongod } from '../../core/storage/mongod.js';
import { Agent } from '../../kit/agent.js';
import { PASSWORD } from '../../kit/app.js';
import { fakeClock } from '../../kit/clock.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { idpApp, idpOptions } from '../../kit/idp.js';
import { mailSink } from '../../kit/mail.js';
import { compiled, startProgram } from '../../kit/process.js';
import { countedRandom } from '../../kit/random.js';
import { temporaryFolder } from '../../kit/tmp.js';
import { codes, holds, insist, ORIGIN, unknownWritesOn } from '../../saas/auth/explored-service.js';
import { CHANGED, RESET, readMails, VERIFY } from '../../saas/auth/kit.js';
import { linkOf } from './kit.js';

/** A mailed link takes effect once, whatever happens beside it, and its change is reported if it happened. */

const PROCESSES = 4;
const USES = 50;

function forEngine(engine: string, fresh: (t: Test) => string): void {
  t.test(
    `${engine}, ${PROCESSES} processes: of ${USES} concurrent uses of a mailed link one succeeds`,
    async (t) => {
      const sink = await mailSink(t);
      const options = {
        ...idpOptions(temporaryFolder(t)),
        ...{ databaseUri: fresh(t), limits: false, emailSmtpUrl: sink.url, logLevel: 'info' },
      };
      const args = [JSON.stringify(options)];
      const start = () => startProgram(t, compiled('test/kit/idp-server.js'), { args }).url();
      // The first process creates the collections, which is slow on some disks.
      const url = await start();
      const urls = [url, ...(await Promise.all(Array.from({ length: PROCESSES - 1 }, start)))];
      const { mail } = readMails(sink, fakeClock());
      const handle = 'ada@example.test';
      const post = async (path: string, body: object, index = 0) => {
        const response = await fetch(urls[index % PROCESSES] + path, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
          redirect: 'manual',
        });
        return response.status;
      };
      const useOften = (path: string, passwordOf: (index: number) => string) =>
        Promise.all(
          Array.from({ length: USES }, (_, index) => post(path, { password: passwordOf(index) }, index)),
        );
      t.equal(await post('/v1/accounts', { handle, password: PASSWORD, kind: 'human' }), 201);
      const verification = linkOf((await mail(VERIFY)).text);
      const verified = await useOften(verification, () => PASSWORD);
      t.same(verified.sort(), [303, ...Array(USES - 1).fill(410)]);

      t.equal(await post('/account/forgot-password', { handle }), 303);
      const reset = linkOf((await mail(RESET)).text);
      const changed = await useOften(reset, (index) => `${PASSWORD} ${index}`);
      t.same(changed.sort(), [201, ...Array(USES - 1).fill(410)]);
      t.same((await mail(CHANGED)).to, [handle]);
      t.equal(sink.mails.length, 3, 'one mail of each kind');
    },
  );
}

interface Killed {
  what: string;
  /** Prepares a process, and returns what it does and what to ask afterwards: whether the change has taken effect. */
  prepare(step: number): Promise<{ work: object; isDone(): Promise<boolean> }>;
}

/** Runs a process once for each of its calls to the store, at which it is killed. Both outcomes must occur. */
async function killAtEachCall(t: Test, uri: string, moments: readonly string[], { what, prepare }: Killed) {
  const outcomes = new Set<string>();
  for (const moment of moments) {
    let hasEnded = false;
    for (let step = 1; !hasEnded; step++) {
      const { work, isDone } = await prepare(step);
      const args = [
        compiled('test/idp/provisioning/kill-worker.js'),
        uri,
        String(step),
        moment,
        JSON.stringify(work),
      ];
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] });
      const [code, signal] = await once(child, 'exit');
      hasEnded = code === 0;
      if (!hasEnded) t.equal(signal, 'SIGKILL', `${moment} call ${step} of ${what}`);
      outcomes.add(`${moment} ${await isDone()}`);
      if (step > 40) throw new Error('it never comes to an end');
    }
  }
  t.equal(outcomes.size, 2 * moments.length, 'both outcomes are seen');
}

/** @param moments of each call of the store at which a process is killed */
function forKills(engine: string, fresh: (t: Test) => string, moments: readonly string[]): void {
  /** With the time of the workers. The port is closed, so that the mails stay in the store. */
  const open = async (t: Test) => {
    const uri = fresh(t);
    const clock = fakeClock(Date.now());
    const idp = await idpApp(t, {
      ...{ publicUrl: undefined, databaseUri: uri, clock, limits: false, emailSmtpUrl: 'smtp://127.0.0.1:9' },
    });
    const store = await openStore(uri);
    t.teardown(() => store.close());
    const mails = mailCollection(store);
    const mailsTo = async (sub: string, template: string) =>
      (await mails.page({ where: { userId: sub }, sort: 'id', limit: 10 })).items.filter(
        (mail) => mail.template === template,
      );
    return { uri, clock, idp, principals: principalCollection(store), mailsTo };
  };
  // The outcome is that of another request: writes of a killed process may still reach the server.

  t.test(`${engine}: a reset killed at any call is complete and reported, or neither`, async (t) => {
    const { uri, clock, idp, principals, mailsTo } = await open(t);
    await killAtEachCall(t, uri, moments, {
      what: 'a reset',
      async prepare() {
        const { sub } = await idp.makeHuman();
        const token = sub.slice('u_'.length) + 'x'.repeat(43);
        const link = { mailedLinkHash: sha256(token), mailedLinkExpiresAt: clock.now() + DAY };
        await principals.updateOne({ id: sub }, { set: link });
        return {
          work: { accept: token, password: `${PASSWORD}!` },
          async isDone() {
            const body = { password: `${PASSWORD}?` };
            const { status } = await idp.request('POST', `/invite/${token}`, { body });
            t.ok([201, 410].includes(status), `status ${status}`);
            const { passwordVersion } = (await principals.findOne({ id: sub })) ?? {};
            const reports = await mailsTo(sub, 'password-changed');
            const versions = [passwordVersion, reports.length, reports[0]?.sendCondition?.minVersion];
            t.same(versions, [1, 1, 1], 'one change, one mail');
            return status === 410;
          },
        };
      },
    });
  });

  t.test(`${engine}: a verification killed at any call is complete, or can be repeated`, async (t) => {
    const { uri, clock, idp, principals } = await open(t);
    await killAtEachCall(t, uri, moments, {
      what: 'a verification',
      async prepare() {
        const { sub } = await idp.makeHuman();
        const token = sub.slice('u_'.length) + 'x'.repeat(43);
        const link = { verifyHash: sha256(token), verifyExpiresAt: clock.now() + DAY };
        await principals.updateOne({ id: sub }, { set: link });
        return {
          work: { verify: token, password: PASSWORD },
          async isDone() {
            const body = { password: PASSWORD };
            const { status } = await idp.request('POST', `/verify/${token}`, { body });
            t.ok([303, 410].includes(status), `status ${status}`);
            const { emailVerifiedAt, verifyHash } = (await principals.findOne({ id: sub })) ?? {};
            t.match([typeof emailVerifiedAt, verifyHash], ['number', undefined], 'the address is verified');
            return status === 410;
          },
        };
      },
    });
  });

  t.test(`${engine}: a sign-up killed at any call is complete when the form is sent again`, async (t) => {
    const { uri, idp, principals, mailsTo } = await open(t);
    const origin = await idp.listen();
    let count = 0;
    await killAtEachCall(t, uri, moments, {
      what: 'a sign-up',
      async prepare() {
        const handle = `ada${count++}@example.test`;
        const fields = { handle, name: 'The second', password: PASSWORD, password_confirm: PASSWORD };
        return {
          work: { handle, name: 'The first', password: PASSWORD },
          async isDone() {
            const browser = new Agent({ origin });
            const page = await browser.submit(await browser.open(`${origin}/account/sign-up`), fields);
            t.match([page.status, page.url], [200, /\/account$/], 'the person is signed in');
            const { id = '', name } = (await principals.findOne({ handle })) ?? {};
            if ((await mailsTo(id, 'verify-email')).length === 0)
              await browser.submit(page, {}, '/account/verification');
            t.equal((await mailsTo(id, 'verify-email')).length, 1, 'there is a link for the address');
            return name === 'The first';
          },
        };
      },
    });
  });
}

const SUB = `u_${'0'.repeat(32)}`;
const TOKENS = {
  mailed: `${'0'.repeat(32)}${'m'.repeat(43)}`,
  printed: `${'0'.repeat(32)}${'p'.repeat(43)}`,
};
const VERIFICATION = `${'0'.repeat(32)}${'v'.repeat(43)}`;

interface StoredMail {
  id: string;
  versionField: string;
  minVersion: number;
}
const mailsOf = (store: Store) => store.collection<StoredMail>('mails');

async function setup(store: Store): Promise<void> {
  const until = fakeClock().now() + DAY;
  await principalCollection(store).insert({
    ...{ id: SUB, handle: 'ada@example.test', kind: 'human', state: 'active', passwordHash: 'hash of old' },
    ...{ linkHash: sha256(TOKENS.printed), linkExpiresAt: until },
    ...{ mailedLinkHash: sha256(TOKENS.mailed), mailedLinkExpiresAt: until },
    ...{ verifyHash: sha256(VERIFICATION), verifyExpiresAt: until, createdAt: 1, updatedAt: 1 },
  });
  mailsOf(store);
}

/** The domain of one process; passwords and counters are stubs. */
function domainOn(store: Store, seed: string) {
  const principals = principalCollection(store);
  const clock = fakeClock();
  const mails = createPersonMails({
    outbox: {
      async put({ key, sendCondition }) {
        const { versionField = '', minVersion = 0 } = sendCondition ?? {};
        await mailsOf(store).insert({ id: key, versionField, minVersion }).catch(nullIfTaken);
      },
      deleteByUser: async () => undefined,
    },
    messages: createMessages(),
    clock,
  });
  const deps = {
    ...{ clock, mails, random: countedRandom(seed), issuer: () => 'https://id.example.test' },
    audit: { record: async () => undefined },
    endSessions: <T>(_: string, change: () => Promise<T>) => change(),
    passwords: {
      problem: () => null,
      ensureCapacity: async () => undefined,
      hash: async (password: string) => `hash of ${password}`,
      verify: async (stored: string | null, password: string) => ({
        ok: stored === `hash of ${password}`,
        outdated: false,
      }),
    } as never,
    passwordPolicy: { validate: async () => undefined },
    throttle: {
      count: async () => undefined,
      countKey: async () => undefined,
      trustOnly: async () => undefined,
      attempt: (_guess: unknown, evaluate: () => Promise<unknown>) => evaluate(),
    } as never,
    unknownWrites: unknownWritesOn(clock),
    firstOperator: { look: async () => null, create: async () => null },
  };
  const { authenticate, changePassword } = createPrincipals(principals, deps);
  return {
    links: createLinks(principals, deps),
    directory: createDirectory(principals, deps),
    verification: createVerification(principals, {
      ...deps,
      authenticate,
      verifyAddress: createVerificationMails(principals, deps),
    }),
    changePassword,
  };
}

const use = (kind: keyof typeof TOKENS, password: string) => (store: Store) =>
  domainOn(store, password).links.accept(TOKENS[kind], { password, confirmation: undefined }, ORIGIN);
const change = (store: Store) =>
  domainOn(store, 'change')
    .changePassword({ id: SUB, handle: 'ada@example.test' }, { current: 'old', chosen: 'own' }, ORIGIN)
    .then((isChanged) => {
      if (!isChanged) throw Object.assign(new Error('wrong'), { code: 'wrong' });
    });
const disable = (store: Store) => domainOn(store, 'disable').directory.disable(SUB, ORIGIN);
const remove = (store: Store) => domainOn(store, 'delete').directory.deleteHuman(SUB, ORIGIN);
const verify = (store: Store) =>
  domainOn(store, 'verify').verification.verify(
    VERIFICATION,
    { session: { id: SUB }, password: undefined },
    ORIGIN,
  );

const read = async (store: Store) =>
  (await principalCollection(store).findOne({ id: SUB })) as PrincipalDocument;

/** One of the changes took effect at most, and is reported if it did. */
const check: Scenario['check'] = async (store, results) => {
  const { passwordHash = 'none', passwordVersion = 0, state, ...links } = await read(store);
  insist(passwordVersion <= 1, `${passwordVersion} changes`);
  insist((passwordVersion === 1) === (passwordHash !== 'hash of old') || state === 'deleted', passwordHash);
  const { items } = await mailsOf(store).page({ sort: 'id', limit: 10 });
  const versions = await Promise.all(
    items.map(async ({ versionField, minVersion }) => {
      const version = await readMailVersion(principalCollection(store), SUB, versionField);
      return version !== null && version >= minVersion;
    }),
  );
  const due = versions.filter(Boolean).length;
  insist(due === (state === 'deleted' ? 0 : passwordVersion), `${due} mails of ${passwordVersion} changes`);
  const isOver = passwordVersion > 0 || state !== 'active';
  insist(!isOver || (links.linkHash ?? links.mailedLinkHash) === undefined, 'a link is still valid');
  const refused = codes(results).filter((code) => !['done', 'undefined'].includes(code));
  const known = ['link_spent', 'link_unknown', 'wrong', 'wrong_state'];
  insist(
    refused.every((code) => known.includes(code)),
    refused.join(),
  );
};

for (const [name, actors] of Object.entries<Scenario['actors']>({
  'two uses of a mailed link': [use('mailed', 'one'), use('mailed', 'two')],
  'a mailed link and the link of an operator': [use('mailed', 'one'), use('printed', 'two')],
  'a mailed link and a change of the password': [use('mailed', 'one'), change],
  'a mailed link and disabling the account': [use('mailed', 'one'), disable],
  'a mailed link and deleting the account': [use('mailed', 'one'), remove],
})) {
  t.test(`${name}: in every order and with a crash, one change is made and reported`, async (t) => {
    holds(t, await explore({ setup, actors, crash: true, check }));
  });
}

t.test('a verification takes effect at most once, and never after another change', async (t) => {
  const isRight: Scenario['check'] = async (store, results) => {
    const { emailVerifiedAt, verifyHash, passwordVersion = 0 } = await read(store);
    const [outcome] = codes(results);
    insist(outcome !== 'done' || emailVerifiedAt !== undefined || results[0] === undefined, 'not verified');
    insist(emailVerifiedAt === undefined || verifyHash === undefined, 'the link is still valid');
    insist(passwordVersion <= 1, 'changed twice');
  };
  for (const other of [verify, disable, remove, use('mailed', 'one')]) {
    holds(t, await explore({ setup, actors: [verify, other], crash: true, check: isRight }));
  }
  const both: Scenario['check'] = async (_store, results) => {
    insist(codes(results).filter((code) => code === 'done').length === 1, 'not one success');
  };
  holds(t, await explore({ setup, actors: [verify, verify], check: both }));
});

t.test('a notification that is enqueued after its change is found out', async (t) => {
  const late = async (store: Store) => {
    await principalCollection(store).updateOne(
      { id: SUB },
      {
        set: { passwordHash: 'hash of x' },
        unset: ['linkHash', 'mailedLinkHash'],
        inc: { passwordVersion: 1 },
      },
    );
    await mailsOf(store).insert({ id: 'late', versionField: 'passwordVersion', minVersion: 1 });
  };
  const { failure } = await explore({ setup, actors: [late], crash: true, check });
  t.equal(failure?.reason, '0 mails of 1 changes');
});

const inFile = (t: Test) => `sqlite:${join(temporaryFolder(t), 'idp.db')}`;
// `npm run test:kills` runs both moments.
const MOMENTS = process.env['KILL_ROUNDS'] === undefined ? ['during'] : ['before', 'during'];
forEngine('SQLite', inFile);
forKills('SQLite', inFile, MOMENTS);
await onMongod((server) => {
  forEngine('MongoDB', (t) => server.fresh(t));
  forKills('MongoDB', (t) => server.fresh(t), MOMENTS);
});
