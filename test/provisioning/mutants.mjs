import { runMutants } from '../mutants.mjs';

// Breaks the mailed links of the provider, one defect at a time, in a copy of the build, and runs the tests that must
// notice. Run by `npm run test:mutants`.

const RESET = ['recovery', 'a person who forgot the password chooses a new one by a mailed link, once'];
const UNIFORM = ['recovery', 'every user name gets the same answer, and only an active person gets a mail'];
const SAME_WORK = [
  'recovery',
  'a request for a link does the same work for every user name before its response',
];
const LIMITS = [
  'recovery',
  'requests are limited by address block and by account, which the answer does not show',
];
const BESIDE = [
  'recovery',
  'a mailed link and the link of an operator do not end each other until one is used',
];
const ENDED = ['recovery', 'changing the password or disabling the account ends a mailed link'];
const VERIFIED = ['verification', 'a person confirms the address by the mailed link and the password, once'];
const STRANGER = [
  'verification',
  'the owner of an address takes over an account that someone else made with it',
];
const USED = [
  'verification',
  'a used verification link does not set a password, not even before its request is answered',
];
const KINDS = [
  'verification',
  'a link is neither valid as the other kind nor after the account was disabled',
];
const TWO_USES = [
  'mailed-link-races',
  'two uses of a mailed link: in every order and with a crash, one change is made and reported',
];
const OWN_CHANGE = [
  'mailed-link-races',
  'a mailed link and a change of the password: in every order and with a crash, one change is made and reported',
];
const VERIFICATIONS = [
  'mailed-link-races',
  'a verification takes effect at most once, and never after another change',
];

const mutants = [
  {
    name: 'the consents of a stranger stay with the account',
    file: 'links.js',
    text: 'await forgetConsents?.(id)',
    replacement: 'await undefined',
    tests: [['verification', 'what a stranger has left in an account does not stay with the owner']],
  },
  {
    name: 'every mailed reset disconnects the applications',
    file: 'links.js',
    text: 'const changesOwner = isMailed && (principal.emailVerifiedAt ?? principal.invitedAt) === undefined;',
    replacement: 'const changesOwner = isMailed;',
    tests: [['verification', 'what a stranger has left in an account does not stay with the owner']],
  },
  {
    name: 'a mailed link is used without a condition',
    file: 'links.js',
    text: '{ mailedLinkHash: usedLinkHash, mailedLinkExpiresAt: { gt: now } }',
    replacement: '{}',
    tests: [TWO_USES, OWN_CHANGE],
  },
  {
    name: 'a used mailed link remains',
    file: 'store.js',
    text: "'mailedLinkHash',\n    'mailedLinkExpiresAt',\n];",
    replacement: '];',
    tests: [RESET, ENDED, TWO_USES],
  },
  {
    name: 'the notice is enqueued by nobody',
    file: 'links.js',
    text: 'await mails?.passwordChanged(principal, from);',
    replacement: 'void mails;',
    tests: [TWO_USES],
  },
  {
    name: 'a new password does not count',
    file: 'principals.js',
    text: 'inc: { epoch: 1, passwordVersion: 1 }',
    replacement: 'inc: { epoch: 1 }',
    tests: [OWN_CHANGE],
  },
  {
    name: 'a mailed link replaces the link of an operator',
    file: 'recovery.js',
    text: '{ set: { mailedLinkHash: link.hash, mailedLinkExpiresAt: link.expiresAt } }',
    replacement: '{ set: { linkHash: link.hash, linkExpiresAt: link.expiresAt } }',
    tests: [BESIDE],
  },
  {
    name: 'agents and inactive people get a link',
    file: 'recovery.js',
    text: "{ id, kind: 'human', state: 'active' }",
    replacement: '{ id }',
    tests: [UNIFORM],
  },
  {
    name: 'the account is looked up before the response',
    file: 'recovery.js',
    text: 'if (!isPossibleHandle(account))',
    replacement:
      'await principals.findOne({ handle: account });\n            if (!isPossibleHandle(account))',
    tests: [SAME_WORK],
  },
  {
    name: 'an unknown user name gets another answer',
    file: 'recovery.js',
    text: "backgroundTasks.run('password reset',",
    replacement:
      "if (!(await principals.findOne({ handle: account }))) throw new Error('unknown');\n            backgroundTasks.run('password reset',",
    tests: [UNIFORM],
  },
  {
    name: 'mails to one account are not limited',
    file: 'recovery.js',
    text: 'if (!(await throttle.tryCountKey(RESETS, account, ip)))',
    replacement: 'if (false)',
    tests: [LIMITS],
  },
  {
    name: 'requests of one address block are not limited',
    file: 'recovery.js',
    text: 'await throttle.count(MAIL_REQUESTS, ip);',
    replacement: '',
    tests: [LIMITS],
  },
  {
    name: 'the mailbox alone verifies an address',
    file: 'verification.js',
    text: 'if (session?.id === id)',
    replacement: 'if (true) return { id, handle };\n        if (session?.id === id)',
    tests: [VERIFIED, STRANGER],
  },
  {
    name: 'a verification has no condition',
    file: 'verification.js',
    text: '...{ verifyHash: usedLinkHash, verifyExpiresAt: { gt: now } },',
    replacement: '',
    tests: [VERIFICATIONS],
  },
  {
    name: 'the link of the first operator is only looked up for unknown principals',
    file: 'links.js',
    text: '[findLinkOwner(principals, id), firstOperator.look(token)]',
    replacement:
      '[findLinkOwner(principals, id), (await principals.findOne({ id })) ? null : firstOperator.look(token)]',
    tests: [['acceptance', 'a link without an account reads as much from the store as one with an account']],
  },
  {
    name: 'a verification link sets a password',
    file: 'links.js',
    text: 'usedLink?.isVerification ? 0 : usedLink?.expiresAt',
    replacement: 'usedLink?.expiresAt',
    tests: [USED],
  },
  {
    name: 'disabling keeps a verification link',
    file: 'store.js',
    text: "VERIFICATION_FIELDS = ['verifyHash', 'verifyExpiresAt']",
    replacement: "VERIFICATION_FIELDS = ['verifyExpiresAt']",
    tests: [KINDS],
  },
];

runMutants('provisioning', mutants);
