import { runMutants } from '../mutants.mjs';

// Breaks the passkeys, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const VALID = [
  'passkeys',
  'a signature is valid for its origin, host, challenge, account and verified user only',
];
const ADDED = ['passkeys', 'a new passkey is accepted from its origin, host and verified user only'];
const COUNTER = ['passkeys', 'a counter that does not grow is refused and recorded, and stays as it was'];
const ONCE = ['passkeys', 'SQLite: of 50 concurrent submissions of one signature one succeeds'];
const ADDED_ONCE = ['passkeys', 'SQLite: of 50 concurrent submissions of one new passkey one adds it'];
const OTHERS = [
  'passkeys',
  'a signature of another key, a changed one and anything else that is none are refused',
];

const LEAVES_ONE = ['explore', 'simultaneous removals, in every order and with a crash, leave one passkey'];
const ADDED_TWICE = [
  'explore',
  'a new passkey whose response is sent twice is added once and reported, even with a crash',
];
const ADDED_BY = [
  'api',
  'a passkey is added by a recent session of a verified user only, for whom it was begun',
];
const TAKEN_OVER = [
  'explore',
  'after the owner of an address has taken the account over, no passkey of before opens it',
];
const ORIGINS = ['api', 'pages of listed origins below the host use passkeys, and no others'];

const mutants = [
  {
    name: 'the origin is the one that the browser names',
    file: 'ceremony.js',
    text: 'expectedOrigin: [...rp.origins],',
    replacement: "expectedOrigin: [...rp.origins, 'https://evil.test', rp.origins[0] + ':8443'],",
    tests: [VALID, ADDED],
  },
  {
    name: 'passkeys of a wider domain are accepted',
    file: 'ceremony.js',
    text: 'expectedRPID: rp.id,',
    replacement: "expectedRPID: [rp.id, 'example.test', 'evil.test'],",
    tests: [VALID, ADDED],
  },
  {
    name: 'any challenge is accepted',
    file: 'ceremony.js',
    text: 'expectedChallenge: challengeOf(form),',
    replacement: 'expectedChallenge: () => true,',
    tests: [VALID, ADDED],
  },
  {
    name: 'the user need not be verified',
    file: 'ceremony.js',
    text: 'requireUserVerification: true,',
    replacement: 'requireUserVerification: false,',
    tests: [VALID, ADDED],
  },
  {
    name: 'frames of other sites are accepted',
    file: 'ceremony.js',
    text: "clientData['crossOrigin'] === true",
    replacement: 'false',
    tests: [VALID, ADDED],
  },
  {
    name: 'an invalid signature is accepted',
    file: 'ceremony.js',
    text: 'if (!verification?.verified)\n        return null;\n    const { newCounter',
    replacement: 'if (!verification)\n        return null;\n    const { newCounter',
    tests: [OTHERS],
  },
  {
    name: 'a passkey signs in to any account',
    file: 'service.js',
    text: 'assertion?.userHandle === userHandleOf(account)',
    replacement: 'true',
    tests: [VALID],
  },
  {
    name: 'a passkey becomes one that is synchronized',
    file: 'service.js',
    text: 'seen.backupEligible !== stored.backupEligible',
    replacement: 'false',
    tests: [VALID],
  },
  {
    name: 'a challenge is read before it is used',
    file: 'service.js',
    text: 'return (await usedChallenges.insert(used).then(() => true, nullIfTaken)) ?? false;',
    replacement:
      'if (await usedChallenges.findOne({ id: used.id })) return false; await usedChallenges.insert(used).catch(nullIfTaken); return true;',
    tests: [ONCE],
  },
  {
    name: 'a new passkey does not use its challenge',
    file: 'service.js',
    text: '!created || !(await useChallenge(form))',
    replacement: '!created',
    tests: [ADDED_ONCE],
  },
  {
    name: 'an equal counter is accepted',
    file: 'service.js',
    text: 'seen <= stored',
    replacement: 'seen < stored',
    tests: [COUNTER],
  },
  {
    name: 'a counter may be reset to zero',
    file: 'service.js',
    text: '(stored > 0 || seen > 0)',
    replacement: 'seen > 0',
    tests: [COUNTER],
  },
  {
    name: 'a refused counter is stored',
    file: 'service.js',
    text: "await audit.record({ event: 'passkey.counter', subject: stored.account, ip });",
    replacement:
      "await audit.record({ event: 'passkey.counter', subject: stored.account, ip }); await passkeys.changeOne({ id: stored.id }, { set: { counter: seen.counter } });",
    tests: [COUNTER],
  },
  {
    name: 'the counter of an earlier use is stored last',
    file: 'service.js',
    text: 'changeOne({ id, counter },',
    replacement: 'changeOne({ id },',
    tests: [['passkeys', 'SQLite: of concurrent uses, the counter keeps the highest']],
  },
  {
    name: 'an account has any number of passkeys',
    file: 'service.js',
    text: '> MAX_PER_ACCOUNT)',
    replacement: '> 1000)',
    tests: [['passkeys', 'SQLite: an account has at most twenty passkeys, however many are added at once']],
  },
  {
    name: 'passkeys of other accounts can be removed',
    file: 'service.js',
    text: 'const found = await passkeys.findOne({ id, account });',
    replacement: 'const found = await passkeys.findOne({ id });',
    tests: [['passkeys', 'nobody renames or removes the passkey of another account']],
  },
  {
    name: 'removals look without marks',
    file: 'service.js',
    text: 'count({ account, leaving: null }, 1)) > 0',
    replacement: 'count({ account }, 2)) > 1',
    tests: [LEAVES_ONE],
  },
  {
    name: 'a refused removal leaves its mark',
    file: 'service.js',
    text: 'await marks.clear(id, leaving);',
    replacement: '',
    tests: [LEAVES_ONE],
  },
  {
    name: 'a removal ignores that its mark is gone',
    file: 'service.js',
    text: '...(leaving !== undefined && { leaving })',
    replacement: '',
    tests: [LEAVES_ONE],
  },
  {
    name: 'the mail about a new passkey is enqueued after it',
    file: 'service.js',
    text: "await announce?.(changeOf('added', passkey), account, from);",
    replacement: "setImmediate(() => announce?.(changeOf('added', passkey), account, from));",
    tests: [ADDED_TWICE],
  },
  {
    name: 'passkeys are added before the address is verified',
    file: 'flows.js',
    text: 'if (!user.emailVerified)',
    replacement: 'if (false)',
    tests: [ADDED_BY],
  },
  {
    name: 'a ceremony adds a passkey to another account',
    file: 'flows.js',
    text: 'account !== identity.user.id',
    replacement: 'false',
    tests: [ADDED_BY],
  },
  {
    name: 'a ceremony serves another purpose',
    file: 'flows.js',
    text: 'ceremony?.kind !== kind',
    replacement: 'ceremony === null',
    tests: [
      [
        'api',
        'a signature is accepted once, from its own origin and account, and before its request expires',
      ],
    ],
  },
  {
    name: 'a passkey stays although its session has ended',
    file: 'flows.js',
    text: 'await service.remove(account, added.id, origin, { keepsOne: false });',
    replacement: '',
    tests: [['explore', 'a passkey that is added while its session ends does not stay']],
  },
  {
    name: 'the last way to sign in can be removed',
    file: 'flows.js',
    text: 'keepsOne: true, hasOtherLogin',
    replacement: 'keepsOne: false, hasOtherLogin',
    tests: [['api', 'a removal needs the password, and the last way to sign in stays']],
  },
  {
    name: 'a passkey is removed without the password',
    file: 'flows.js',
    text: 'await accounts.proveOwner(identity, password, origin);',
    replacement: '',
    tests: [['api', 'a removal needs the password, and the last way to sign in stays']],
  },
  {
    name: 'a removal that has crashed stays for ever',
    file: 'service.js',
    text: "{ set, unset: ['leaving'] }",
    replacement: '{ set }',
    tests: [['explore', 'the use of a passkey ends a removal that has crashed']],
  },
  {
    name: 'the passkeys of a stranger survive a reset',
    file: '../auth/password-reset.js',
    text: 'await deps.removeOtherLogins?.(id, origin);',
    replacement: '',
    tests: [TAKEN_OVER],
  },
  {
    name: 'a session continues although its passkey was removed',
    file: '../auth/passkey.js',
    text: 'return deps.signIn(user, origin, PASSKEY);',
    replacement: 'return deps.signIn((await find(user.id)) ?? user, origin, PASSKEY);',
    tests: [TAKEN_OVER],
  },
  {
    name: 'an unknown outcome of a sign-up removes the passkey',
    file: '../auth/passkey.js',
    text: 'if (error instanceof AppError)',
    replacement: 'if (true)',
    tests: [
      ['explore', 'a sign-up with a passkey, with a crash or unknown outcomes, makes no account without it'],
    ],
  },
  {
    name: 'a new address keeps the passkeys of the previous holder',
    file: '../auth/confirm-address.js',
    text: 'await deps.removeOtherLogins?.(id, origin);',
    replacement: '',
    tests: [
      [
        'api',
        'a new address with a new password ends the passkeys, and a session that confirms it keeps them',
      ],
    ],
  },
  {
    name: 'the mailed link of another account confirms an address',
    file: '../auth/confirm-address.js',
    text: 'if (signedIn === id)',
    replacement: 'if (signedIn !== undefined)',
    tests: [
      ['api', 'where addresses are confirmed first, the passkey and the mailed link do it in one step'],
    ],
  },
  {
    name: 'a suspended user signs in',
    file: '../auth/passkey.js',
    text: 'if (isDisabled(user))',
    replacement: 'if (false)',
    tests: [['api', 'a suspended user is refused, and a deleted one leaves nothing behind']],
  },
  {
    name: 'a mail is the same for every account',
    file: 'store.js',
    text: 'key: sha256(',
    replacement: 'key: sha256(id ?? ',
    tests: [['api', 'every new passkey is reported, whatever another user or an earlier one was called']],
  },
  {
    name: 'pages without TLS use passkeys',
    file: 'module.js',
    text: 'return isSecure && (',
    replacement: 'return (',
    tests: [ORIGINS],
  },
  {
    name: 'pages of every listed origin use passkeys',
    file: 'module.js',
    text: 'hostname === host ||',
    replacement: 'true ||',
    tests: [ORIGINS],
  },
];

runMutants('passkeys', mutants);
