import t from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { DAY } from '../../../src/core/kernel/clock.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { nullIfTaken, type Store } from '../../../src/core/storage/collection.js';
import { createDirectory } from '../../../src/idp/provisioning/directory.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { createPersonMails, readMailVersion } from '../../../src/idp/provisioning/mails.js';
import { createPrincipals } from '../../../src/idp/provisioning/principals.js';
import { type PrincipalDocument, principalCollection } from '../../../src/idp/provisioning/store.js';
import { createVerification, createVerificationMails } from '../../../src/idp/provisioning/verification.js';
import { fakeClock } from '../../kit/clock.js';
import { NO_EFFECT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import { codes, holds, insist, ORIGIN, unknownWritesOn } from '../../saas/auth/explored-service.js';

/** A mailed link takes effect once, whatever happens beside it, and its change is reported if it happened. */

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
      mail: () => NO_EFFECT,
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
