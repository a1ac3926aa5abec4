import { runMutants } from '../mutants.mjs';

// Breaks billing on purpose, one way at a time, in a copy of what was built, and has the tests that must notice run on
// it. Ends with 1 when they do not, or when a text to replace is not where it was. Run by `npm run test:mutants`.

const STORM = [
  'crashes',
  'after a storm of reordered events, kills and faults all subscriptions match the provider',
];
const OUTAGE = ['crashes', 'after an outage of the provider every user is correct within a minute'];

const mutants = [
  {
    name: 'a subscription that the provider could not tell of waits for a quarter of an hour',
    file: 'recheck.js',
    text: 'const RETRY_UNANSWERED_MS = 15 * SECOND',
    replacement: 'const RETRY_UNANSWERED_MS = 15 * MINUTE',
    tests: [OUTAGE],
  },
  {
    name: 'what is in doubt is settled every five minutes',
    file: 'recheck.js',
    text: 'const SETTLE_EVERY = 20',
    replacement: 'const SETTLE_EVERY = 300',
    tests: [OUTAGE],
  },
  {
    name: 'a provider that is down is asked about every subscription in every run',
    file: 'recheck.js',
    text: 'if (!answers.includes(true))',
    replacement: 'if (false)',
    tests: [OUTAGE],
  },
  {
    name: 'an event counts as done before its effect',
    file: 'process.js',
    text: 'const { outcome, tellings } = await work(event)',
    replacement: "await claims.finish(claim, 'processed'); const { outcome, tellings } = await work(event)",
    tests: [['crashes', 'a crash at any step is repaired by the next delivery'], STORM],
  },
  {
    name: 'events are ordered by their second alone, and the last to come wins a tie',
    file: 'judge.js',
    text: 'if (event.created === stored.at) {',
    replacement: 'if (false) {',
    tests: [STORM],
  },
  {
    name: 'events are ordered by their second alone, and the first to come wins a tie',
    file: 'judge.js',
    text: 'if (event.created < stored.at)',
    replacement: 'if (event.created <= stored.at)',
    tests: [
      [
        'subscription',
        'the provider decides between events of one second; during an outage the last known state holds until a background sync',
      ],
      STORM,
    ],
  },
  {
    name: 'an invoice activates a canceled subscription',
    file: 'judge.js',
    text: "['past_due', 'unpaid', 'incomplete'].includes(status)",
    replacement: "['past_due', 'unpaid', 'incomplete', 'canceled'].includes(status)",
    tests: [['subscription', 'an invoice does not override its subscription']],
  },
  {
    name: "an invoice concerns the customer's best subscription",
    file: 'process.js',
    text: 'await apply(event, subscriptionId, owner)',
    replacement:
      'await apply(event, isInvoice(event) ? ((await projector.best(userId))?.id ?? subscriptionId) : subscriptionId, { userId })',
    tests: [['subscription', 'an invoice does not override its subscription']],
  },
  {
    name: 'what is over can begin again',
    file: 'judge.js',
    text: 'if (isTerminal(stored.status))',
    replacement: 'if (false)',
    tests: [['subscription', 'the minimal body of the specification changes the status and nothing else']],
  },
  {
    name: 'the projection is not written where it looks equal',
    file: 'project.js',
    text: 'if (await target.write(',
    replacement:
      'const last = (globalThis.lastProjections ??= new Map()); const text = status + plan; if (last.get(userId) === text) return; last.set(userId, text); if (await target.write(',
    tests: [STORM],
  },
  {
    name: 'an event that comes too late takes the projection for done',
    file: 'apply.js',
    text: 'return { effect, isProjected: false',
    replacement: 'return { effect, isProjected: true',
    tests: [
      ['crashes', 'an interrupted event is repaired even when a newer one has arrived meanwhile'],
      STORM,
    ],
  },
  {
    name: 'a new status is taken for no news to the projection',
    file: 'project.js',
    text: 'termsOf(before), termsOf(after)',
    replacement: "{ ...termsOf(before), status: '' }, { ...termsOf(after), status: '' }",
    tests: [['crashes', 'a crash at any step is repaired by the next delivery'], STORM],
  },
  {
    name: 'the end of a trial does not reach the record of its user',
    file: 'project.js',
    text: '...(trialEnd !== undefined && { trialEnd }),',
    replacement: '',
    tests: [['entitlement', 'a trial and a grace period end without a further event']],
  },
  {
    name: 'a record that an earlier version wrote last is believed',
    file: 'summary.js',
    text: 'subscriptionsHeld.rev === subscriptionRev',
    replacement: 'true',
    tests: [['entitlement', 'records of earlier versions give the same entitlement']],
  },
  {
    name: 'a grant outlives its end',
    file: 'entitlement.js',
    text: 'until === undefined || now < until',
    replacement: 'true',
    tests: [
      ['entitlement', 'a granted plan entitles until it ends or is revoked, without a payment provider'],
    ],
  },
  {
    name: 'a subscription is written over whatever was written meanwhile',
    file: 'write.js',
    text: '{ id, rev: stored.rev }, { set',
    replacement: '{ id }, { set',
    tests: [STORM],
  },
  {
    name: 'what waited for its owner is forgotten',
    file: 'process.js',
    text: "if (effect === 'inserted' || effect === 'known') {",
    replacement: 'if (false) {',
    tests: [
      ['subscription', 'an event with our user ID links the customer and releases the events waiting for it'],
    ],
  },
  {
    name: 'a claim whose worker is gone is held for ever',
    file: 'claims.js',
    text: 'of leasesOver(now)',
    replacement: 'of []',
    tests: [['crashes', 'a crash at any step is repaired by the next delivery']],
  },
  {
    name: 'each of those who ask at once asks for themselves',
    file: 'coalesce.js',
    text: 'if (!round)',
    replacement: 'if (true)',
    tests: [
      ['resync', 'fifty concurrent syncs of one user share a few calls, and none receives an older state'],
    ],
  },
  {
    name: 'whoever comes while the provider is asked is told what it answers to those before',
    file: 'coalesce.js',
    text: 'return round.next;',
    replacement: 'return round.answer;',
    tests: [
      ['resync', 'fifty concurrent syncs of one user share a few calls, and none receives an older state'],
      ['subscription', 'a sync that began before a purchase does not block it'],
    ],
  },
  {
    name: 'a failure is passed on to those who wait',
    file: 'coalesce.js',
    text: 'round.answer.then(beginNext, beginNext)',
    replacement: 'round.answer.then(beginNext)',
    tests: [['resync', 'a failed sync fails only for the callers that share it']],
  },
];

runMutants('billing', mutants);
