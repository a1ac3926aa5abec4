import t from 'tap';
import { createMessages } from '../../../src/core/http/messages.js';
import { type Clock, DAY } from '../../../src/core/kernel/clock.js';
import { sha256 } from '../../../src/core/kernel/secrets.js';
import { type AuditRecord, createAudit } from '../../../src/core/ops/audit.js';
import { createCommit, effectOf } from '../../../src/core/ops/commit.js';
import {
  createAccountData,
  createSignInMethods,
  type SignInMethods,
} from '../../../src/core/server/contributions.js';
import type { Store } from '../../../src/core/storage/collection.js';
import { createReadPerson } from '../../../src/idp/logins.js';
import { createDirectory } from '../../../src/idp/provisioning/directory.js';
import { createLinks } from '../../../src/idp/provisioning/links.js';
import { createPersonMails } from '../../../src/idp/provisioning/mails.js';
import { createPrincipals } from '../../../src/idp/provisioning/principals.js';
import { type PrincipalDocument, principalCollection } from '../../../src/idp/provisioning/store.js';
import { createVerification } from '../../../src/idp/provisioning/verification.js';
import { fakeClock } from '../../kit/clock.js';
import { NO_EFFECT } from '../../kit/effects.js';
import { explore, type Scenario } from '../../kit/explore.js';
import { countedRandom } from '../../kit/random.js';
import { codes, holds, insist, ORIGIN, untilAnswered } from '../../saas/auth/explored-service.js';

import { addressesIn } from './kit.js';

/** A mailed link takes effect once, whatever happens beside it, and its change is reported if it happened. */

const SUB = `u_${'0'.repeat(32)}`;
const TOKENS = {
  mailed: `${'0'.repeat(32)}${'m'.repeat(43)}`,
  printed: `${'0'.repeat(32)}${'p'.repeat(43)}`,
};
const VERIFICATION = `${'0'.repeat(32)}${'v'.repeat(43)}`;

const mailsOf = (store: Store) => store.collection<{ id: string }>('mails');

/** By the IDs of their accounts. */
const passkeysOf = (store: Store) => store.collection<{ id: string }>('passkeys');

function signInMethodsOn(store: Store): SignInMethods {
  const methods = createSignInMethods();
  const passkeys = passkeysOf(store);
  methods.add('passkey', {
    removal: async (id) => ((await passkeys.findOne({ id })) ? [passkeys.deleting({ id })] : []),
  });
  return methods;
}

async function setup(store: Store): Promise<void> {
  const until = fakeClock().now() + DAY;
  await principalCollection(store).insert({
    ...{ id: SUB, handle: 'ada@example.test', kind: 'human', state: 'active', passwordHash: 'hash of old' },
    ...{ linkHash: sha256(TOKENS.printed), linkExpiresAt: until },
    ...{ mailedLinkHash: sha256(TOKENS.mailed), mailedLinkExpiresAt: until },
    ...{ verifyHash: sha256(VERIFICATION), verifyExpiresAt: until, createdAt: 1, updatedAt: 1 },
  });
  createAudit(store, silent(fakeClock(), 'setup'));
  mailsOf(store);
  passkeysOf(store);
}

const silent = (clock: Clock, seed: string) => ({
  ...{ clock, random: countedRandom(seed), log: { error: () => undefined } },
});

/** The domain of one process; passwords and counters are stubs. */
function domainOn(store: Store, seed: string) {
  const principals = principalCollection(store);
  const clock = fakeClock();
  const basis = { clock, random: countedRandom(seed), issuer: () => 'https://id.example.test' };
  const mails = createPersonMails({
    ...basis,
    isVerified: ({ emailVerifiedAt }) => emailVerifiedAt !== undefined,
    outbox: {
      mail: ({ key }) => effectOf(mailsOf(store).ensuring({ id: key })),
      deleteByUser: async () => undefined,
    },
    messages: createMessages(),
  });
  const deps = {
    ...{ ...basis, mails },
    ...{ commit: createCommit(store), audit: createAudit(store, silent(clock, seed)) },
    signInMethods: signInMethodsOn(store),
    endSessions: async () => NO_EFFECT,
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
      tryCountKey: async () => true,
      trustOnly: async () => undefined,
      attempt: (_guess: unknown, evaluate: () => Promise<unknown>) => evaluate(),
    } as never,
    firstOperator: { look: async () => null },
    groups: { joining: async () => [], leaving: async () => [], refuseUnknown: async () => undefined },
    permissions: { leaving: async () => [] },
    uses: { leaving: async () => [] },
    agents: { validate: async () => undefined, stopping: () => NO_EFFECT },
    ...{ addresses: addressesIn(store), accountData: createAccountData() },
    clients: { find: async () => null, findNamed: async () => null },
  };
  const { authenticate, changePassword } = createPrincipals(principals, deps);
  return {
    links: createLinks(principals, deps),
    directory: createDirectory(principals, deps),
    verification: createVerification(principals, { ...deps, authenticate }),
    changePassword,
  };
}

const use = (kind: keyof typeof TOKENS, password: string) => (store: Store) =>
  domainOn(store, password).links.accept(TOKENS[kind], { password }, ORIGIN);
const change = (store: Store) =>
  domainOn(store, 'change')
    .changePassword({ id: SUB, handle: 'ada@example.test' }, { current: 'old', chosen: 'own' }, ORIGIN)
    .then((isChanged) => {
      if (!isChanged) throw Object.assign(new Error('wrong'), { code: 'wrong' });
    });
const disable = (store: Store) => domainOn(store, 'disable').directory.disable(SUB, ORIGIN);
const move = (store: Store) => domainOn(store, 'move').directory.changeEmail(SUB, 'new@example.test', ORIGIN);
const remove = (store: Store) => domainOn(store, 'delete').directory.delete(SUB, ORIGIN);
/** In the session of a person whose password was not changed yet. */
const addPasskey = async (store: Store) => {
  const principals = principalCollection(store);
  const person = await createReadPerson(principals, undefined)(SUB);
  const isCurrent = (await principals.findOne({ id: SUB, state: 'active', epoch: null })) !== null;
  const parts = person && [person.nextRevision, passkeysOf(store).inserting({ id: SUB })];
  if (parts && isCurrent && (await createCommit(store)(parts)).committed) return;
  throw Object.assign(new Error('wrong'), { code: 'wrong' });
};
const verify = (store: Store) =>
  domainOn(store, 'verify').verification.verify(
    VERIFICATION,
    { session: { id: SUB }, password: undefined },
    ORIGIN,
  );

const read = async (store: Store) =>
  (await principalCollection(store).findOne({ id: SUB })) as PrincipalDocument;

const recordsOf = async (store: Store): Promise<string[]> => {
  const { items } = await store.collection<AuditRecord>('audit').page({ sort: 'id', limit: 10 });
  return items.map(({ event }) => event);
};

/** One of the changes took effect at most, and is reported and recorded if it did. */
const check: Scenario['check'] = async (store, results) => {
  const { passwordHash, state, ...links } = await read(store);
  const records = await recordsOf(store);
  const changes = records.filter((event) => event.startsWith('password.')).length;
  insist(changes <= 1, `${changes} changes`);
  insist(state === 'deleted' || (changes === 1) === (passwordHash !== 'hash of old'), `${passwordHash}`);
  insist(records.includes('principal.disabled') === (state === 'disabled'), records.join());
  insist(records.includes('human.deleted') === (state === 'deleted'), records.join());
  const mails = await mailsOf(store).count();
  insist(mails === changes, `${mails} mails of ${changes} changes`);
  const isOver = records.length > 0;
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

t.test(
  'a passkey of a stranger does not outlive a new owner or a deletion, and refuses neither',
  async (t) => {
    for (const end of [use('mailed', 'one'), remove]) {
      const scenario: Scenario = {
        setup,
        actors: [end, addPasskey],
        async check(store, [ended]) {
          insist(ended?.status === 'fulfilled', 'refused');
          insist((await passkeysOf(store).count()) === 0, 'the stranger has a passkey');
        },
      };
      holds(t, await explore(scenario));
    }
  },
);

t.test(
  'an acceptance beside a new invitation or a disabling is made or refused, in every order',
  async (t) => {
    const invited = async (store: Store): Promise<void> => {
      await setup(store);
      const unset = ['passwordHash', 'mailedLinkHash', 'mailedLinkExpiresAt'] as const;
      await principalCollection(store).updateOne({ id: SUB }, { set: { state: 'invited' }, unset });
    };
    const invite = (store: Store) =>
      domainOn(store, 'invite').links.invite({ handle: 'ada@example.test' }, ORIGIN);
    for (const other of [invite, disable]) {
      const isEither: Scenario['check'] = async (store, results) => {
        const { passwordHash, linkHash } = await read(store);
        const [accepted] = results;
        const isAccepted = accepted?.status === 'fulfilled';
        insist(!accepted || isAccepted === (passwordHash !== undefined), `${codes(results)}`);
        insist(passwordHash === undefined || linkHash === undefined, 'a link leads to the account');
      };
      holds(
        t,
        await explore({
          setup: invited,
          actors: [use('printed', 'one'), other],
          crash: true,
          check: isEither,
        }),
      );
    }
  },
);

t.test('no link of the previous address proves another one, in every order', async (t) => {
  const check: Scenario['check'] = async (store) => {
    const { email, emailVerifiedAt, mailedLinkHash, verifyHash } = await read(store);
    if (email === undefined) return;
    insist(emailVerifiedAt === undefined, 'the address counts as verified');
    insist(mailedLinkHash === undefined && verifyHash !== sha256(VERIFICATION), 'a link is still valid');
  };
  for (const other of [use('mailed', 'one'), verify, move])
    holds(t, await explore({ setup, actors: [move, other], crash: true, check }));
});

t.test('an invitation is accepted or withdrawn, in every order', async (t) => {
  const invited = async (store: Store): Promise<void> => {
    await setup(store);
    const unset = ['passwordHash', 'mailedLinkHash', 'mailedLinkExpiresAt'] as const;
    await principalCollection(store).updateOne({ id: SUB }, { set: { state: 'invited' }, unset });
  };
  const withdraw = async (store: Store) => {
    if (!(await domainOn(store, 'withdraw').links.withdraw(SUB, ORIGIN)))
      throw Object.assign(new Error('wrong'), { code: 'wrong' });
  };
  const again = (store: Store) =>
    domainOn(store, 'again').links.invite({ handle: 'ada@example.test', isRepeated: true }, ORIGIN);
  const check: Scenario['check'] = async (store, [accepted, withdrawn]) => {
    const left = await read(store);
    if (accepted?.status === 'fulfilled') insist(left?.state === 'active', 'accepted in vain');
    if (withdrawn?.status === 'fulfilled') insist(left === null, 'withdrawn in vain');
  };
  for (const other of [again, withdraw])
    holds(t, await explore({ setup: invited, actors: [use('printed', 'one'), withdraw, other], check }));
});

t.test('a verification takes effect at most once, and never after another change', async (t) => {
  const isRight: Scenario['check'] = async (store, results) => {
    const { emailVerifiedAt, verifyHash } = await read(store);
    insist(results[0]?.status !== 'fulfilled' || emailVerifiedAt !== undefined, 'not verified');
    insist(emailVerifiedAt === undefined || verifyHash === undefined, 'the link is still valid');
    const records = (await recordsOf(store)).filter((event) => event !== 'principal.disabled');
    insist(new Set(records).size === records.length, `recorded twice: ${records}`);
  };
  for (const other of [verify, disable, remove, use('mailed', 'one')]) {
    holds(t, await explore({ setup, actors: [verify, other], crash: true, check: isRight }));
  }
  const both: Scenario['check'] = async (_store, results) => {
    insist(
      codes(results).every((code) => code === 'done'),
      'a repetition is refused',
    );
  };
  holds(t, await explore({ setup, actors: [verify, verify], check: both }));
});

t.test(
  'a use of a link whose response was lost succeeds when it is repeated, and takes effect once',
  async (t) => {
    const once: Scenario['check'] = async (store, results) => {
      insist(codes(results)[0] === 'done', `${codes(results)}`);
      const records = await recordsOf(store);
      insist(records.length === 1, records.join());
    };
    for (const request of [use('mailed', 'one'), use('printed', 'one'), verify]) {
      holds(
        t,
        await explore({
          setup,
          actors: [(store) => untilAnswered<unknown>(() => request(store))],
          losses: 2,
          check: once,
        }),
      );
    }
  },
);
