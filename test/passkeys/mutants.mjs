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

const mutants = [
  {
    name: 'the origin is the one that the browser names',
    file: 'ceremony.js',
    text: 'expectedOrigin: rp.origin,',
    replacement: "expectedOrigin: [rp.origin, 'https://evil.test', rp.origin + ':8443'],",
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
    text: 'passkey !== null && assertion?.userHandle === userHandleOf(passkey.account)',
    replacement: 'passkey !== null',
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
    text: 'changeOne({ id, counter }, { set })',
    replacement: 'changeOne({ id }, { set })',
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
    text: 'deleteOne({ id, account })',
    replacement: 'deleteOne({ id })',
    tests: [['passkeys', 'nobody renames or removes the passkey of another account']],
  },
];

runMutants('passkeys', mutants);
