import { runMutants } from '../mutants.mjs';

// Breaks second factors, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits with
// 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const mutants = [
  {
    name: 'a code is accepted as often as it is presented',
    file: 'service.js',
    text: 'rev, lastStep: { lt: step }',
    replacement: 'rev',
    tests: [['explore', 'two uses of one code: in every order and with a crash, at most one is accepted']],
  },
  {
    name: 'a recovery code stays valid',
    file: 'service.js',
    text: 'found.recovery.filter((other) => other !== hash)',
    replacement: 'found.recovery',
    tests: [['explore', 'two uses of one code: in every order and with a crash, at most one is accepted']],
  },
  {
    name: 'a confirmation replaces a factor',
    file: 'service.js',
    text: 'secret === null || found.confirmedAt !== undefined',
    replacement: 'secret === null',
    tests: [['factors', 'an app that was begun before the factor was set up cannot replace it']],
  },
  {
    name: 'a removal keeps the recovery codes',
    file: 'store.js',
    text: "unset: ['secret', 'confirmedAt', 'pending', 'pendingUntil', 'recoveryKey']",
    replacement: "unset: ['secret', 'confirmedAt', 'pending', 'pendingUntil']",
    tests: [
      [
        'explore',
        'a removal beside uses and a removal: it is reported if it happened, and nothing survives it',
      ],
    ],
  },
  {
    name: 'the mail about a removal is enqueued with the version of another change',
    file: 'store.js',
    text: 'account, version + 1, ',
    replacement: 'account, rev + 1, ',
    tests: [
      [
        'explore',
        'a removal beside uses and a removal: it is reported if it happened, and nothing survives it',
      ],
    ],
  },
];

runMutants('factors', mutants);
