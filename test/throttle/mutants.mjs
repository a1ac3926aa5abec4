import { runMutants } from '../mutants.mjs';

// Breaks the throttle, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

const OWN = ['throttle', 'a right guess removes its own count and no other'];
const BURSTS = ['throttle', 'concurrent guesses are counted before any is evaluated'];
const DAY = ['throttle', 'at most 100 guesses in any 24 hours are evaluated, from any number of addresses'];
const ONE_BLOCK = ['throttle', 'guesses from one address block never block the owner elsewhere'];
const RIGHT_ONES = ['throttle', 'concurrent right guesses from a new address are never refused'];

const mutants = [
  {
    name: 'a right guess forgives all wrong ones',
    file: 'counters.js',
    text: 'const release = async ({ limit }, { before, after }) => {',
    replacement:
      'const release = async ({ limit }, { before, after }) => { await documents.deleteOne({ id: after.id }); return;',
    tests: [OWN, RIGHT_ONES],
  },
  {
    name: 'a right guess forgives the wrong one before it',
    file: 'counters.js',
    text: 'set: { until: 0, expiresAt: before?.expiresAt ?? clock.now() },\n            inc: { count: -1, pending: -1 },',
    replacement:
      'set: { until: 0, expiresAt: before?.expiresAt ?? clock.now() },\n            inc: { count: -2, pending: -1 },',
    tests: [OWN],
  },
  {
    name: 'a right guess that was overtaken forgives a wrong one',
    file: 'counters.js',
    text: 'set: { until: hasRoom ? 0 : stored.until, expiresAt: lastsUntil },\n                inc: { count: -1, pending: -1 },',
    replacement:
      'set: { until: hasRoom ? 0 : stored.until, expiresAt: lastsUntil },\n                inc: { count: -2, pending: -1 },',
    tests: [OWN],
  },
  {
    name: 'a right guess stays counted',
    file: 'guesses.js',
    text: 'await handOver(id, reserved);',
    replacement: '',
    tests: [OWN],
  },
  {
    name: 'guesses in flight are taken for wrong ones',
    file: 'counters.js',
    text: 'if (pending === 0 || !hasPending(alive))',
    replacement: 'if (pending >= 0)',
    tests: [RIGHT_ONES],
  },
  {
    name: 'a process that has ended keeps others waiting',
    file: 'counters.js',
    text: 'pending > 0 && isRecent(reservedAt, { now: clock.now(), within: PENDING_TIMEOUT_MS })',
    replacement: 'pending > 0',
    tests: [['throttle', 'a guess cut off by the end of its process counts as a failure']],
  },
  {
    name: 'two processes count one guess',
    file: 'counters.js',
    text: 'updateOne(unchanged(stored), { set: after })',
    replacement: 'updateOne({ id }, { set: after })',
    tests: [BURSTS],
  },
  {
    name: 'known places are evaluated first',
    file: 'guesses.js',
    text: 'const failures = perAddress ? [source, perAddress] : [source];',
    replacement: 'const failures = until > 0 ? [] : perAddress ? [source, perAddress] : [source];',
    tests: [BURSTS],
  },
  {
    name: 'the account has no budget',
    file: 'guesses.js',
    text: 'const budgets = until > 0 ? [] : budgetsOf(account, ip);',
    replacement: 'const budgets = [];',
    tests: [DAY],
  },
  {
    name: 'the budget is larger by one',
    file: 'limits.js',
    text: 'const roomAt = expiresAt - (burst - 1) * interval;',
    replacement: 'const roomAt = expiresAt - burst * interval;',
    tests: [DAY],
  },
  {
    name: 'known places use up the budget',
    file: 'guesses.js',
    text: 'const budgets = until > 0 ? [] : budgetsOf(account, ip);',
    replacement: 'const budgets = budgetsOf(account, ip);',
    tests: [['throttle', 'a known source is limited only by its own failures']],
  },
  {
    name: 'each block of an IPv6 network has a share of its own',
    file: 'guesses.js',
    text: 'return network === undefined',
    replacement: 'return network !== null',
    tests: [['throttle', 'guesses from one IPv6 network never block the owner elsewhere']],
  },
  {
    name: 'the delay of one address does not grow',
    file: 'limits.js',
    text: 'first * 2 ** (count - free)',
    replacement: 'first',
    tests: [ONE_BLOCK],
  },
  {
    name: 'all addresses share one counter',
    file: 'guesses.js',
    text: '{addressBlock(ip)}`, ip }',
    replacement: '{0}`, ip }',
    tests: [ONE_BLOCK],
  },
  {
    name: 'the secrets of agents are refused for what others did',
    file: 'guesses.js',
    text: "if (kind !== 'password') {",
    replacement: "if (kind !== 'password') { await counters.check([source]);",
    tests: [['throttle', 'a right 256-bit secret is always accepted, and wrong ones are counted']],
  },
  {
    name: 'each refusal is recorded',
    file: 'counters.js',
    text: "audit.recordFailure({ event: 'throttle.hit'",
    replacement: "audit.record({ event: 'throttle.hit'",
    tests: [['throttle', 'a refusal has Retry-After, is audited, and no clock change prolongs it']],
  },
];

runMutants('throttle', mutants);
