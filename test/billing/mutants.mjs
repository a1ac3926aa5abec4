import { runMutants } from '../mutants.mjs';

// Breaks billing, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits
// with 1 when one survives or when a text to replace is not found. Run by `npm run test:mutants`.

// Some defects show in a few of the storms only.
process.env.STORMS = '20';

const STORM = [
  'crashes',
  'after a storm of reordered events, kills and faults all subscriptions match the provider',
];
const EXPLORATION = [
  'crashes',
  'in every interleaving of deliveries, with a crash of one, the newest event applies',
];
const CRASH = ['crashes', 'a crash at any step is repaired by the next delivery'];
const BETWEEN_WRITES = ['crashes', 'without atomic writes, a crash between two of them is repaired as well'];
const PROMPT = ['crashes', 'access that a crash has left half changed is repaired without a delivery'];
const TWO_SUBSCRIPTIONS = ['crashes', 'concurrent changes of two subscriptions of a user both count'];
const OUTAGE = ['crashes', 'after an outage of the provider every user is correct within a minute'];

const mutants = [
  {
    name: 'a subscription that could not be fetched is retried after 15 minutes',
    file: 'reconcile.js',
    text: 'const RETRY_UNANSWERED_MS = 15 * SECOND',
    replacement: 'const RETRY_UNANSWERED_MS = 15 * MINUTE',
    tests: [OUTAGE],
  },
  {
    name: 'uncertain subscriptions are reconciled every five minutes',
    file: 'reconcile.js',
    text: 'const RECONCILE_INTERVAL_SECONDS = 20',
    replacement: 'const RECONCILE_INTERVAL_SECONDS = 300',
    tests: [OUTAGE],
  },
  {
    name: 'a provider that is down is asked about every subscription in every run',
    file: 'reconcile.js',
    text: 'if (!answers.includes(true))',
    replacement: 'if (false)',
    tests: [OUTAGE],
  },
  {
    name: 'an event is completed before it is applied',
    file: 'events/processor.js',
    text: 'const handled = await handle(event, assignedTo)',
    replacement: "await leases.complete(lease, 'processed'); const handled = await handle(event, assignedTo)",
    tests: [['crashes', 'a crash at any step is repaired by the next delivery'], STORM],
  },
  {
    name: 'an event that changes the access is processed as one that does not',
    file: 'events/changes.js',
    text: 'if (!applied.isProjected)',
    replacement: 'if (false)',
    tests: [EXPLORATION],
  },
  {
    name: 'an event that changes the access needs no lease where a crash between its writes would show',
    file: 'events/changes.js',
    text: 'store.isAtomic ? await projector.projecting(applied.subscription) : null',
    replacement: 'await projector.projecting(applied.subscription)',
    tests: [PROMPT],
  },
  {
    name: 'a change notifies although another delivery has stored its event',
    file: 'events/changes.js',
    text: '!(await store.writeAll(writes))',
    replacement: '(await store.writeAll(writes)) === null',
    tests: [EXPLORATION],
  },
  {
    name: 'an event without a lease is stored before its change',
    file: 'events/changes.js',
    text: '[write, leases.storing(event)]',
    replacement: '[leases.storing(event), write]',
    tests: [BETWEEN_WRITES],
  },
  {
    name: "the user's record is written without the event",
    file: 'events/changes.js',
    text: 'writes.splice(1, 0, projecting)',
    replacement: 'writes.splice(1, 1, projecting)',
    tests: [CRASH, EXPLORATION],
  },
  {
    name: "the user's record is written as it was before the change",
    file: 'entitlement.js',
    text: '(one.id === id ? changed : one)',
    replacement: 'one',
    tests: [CRASH, EXPLORATION],
  },
  {
    name: "the user's record is written although it has changed since it was read",
    file: '../saas/billing-users.js',
    text: '{ id, subscriptionRev: revision === 0 ? null : revision }',
    replacement: '{ id }',
    tests: [TWO_SUBSCRIPTIONS],
  },
  {
    name: 'a change is announced after it was made',
    file: 'events/changes.js',
    text: 'const announced = await announce(event, applied);',
    replacement: 'const announced = { emit: async () => await (await announce(event, applied))?.emit() };',
    tests: [CRASH],
  },
  {
    name: 'duplicates are not reported by an event without a lease',
    file: 'entitlement.js',
    text: 'await reportAll(userId, all);',
    replacement: '',
    tests: [
      ['checkout', 'a subscription that becomes active beside another one is reported to the operator'],
    ],
  },
  {
    name: 'of two events of one second the last to arrive wins',
    file: 'events/subscription-events.js',
    text: 'if (event.created === stored.at) {',
    replacement: 'if (false) {',
    tests: [STORM],
  },
  {
    name: 'of two events of one second the first to arrive wins',
    file: 'events/subscription-events.js',
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
    file: 'events/subscription-events.js',
    text: 'return UNPAID.includes(status)',
    replacement: "return [...UNPAID, 'canceled'].includes(status)",
    tests: [['subscription', 'an invoice does not override its subscription']],
  },
  {
    name: "an invoice is applied to the user's newest subscription",
    file: 'events/processor.js',
    text: 'await subscriptionEvents.apply(event, subscriptionId, owner)',
    replacement:
      "await subscriptionEvents.apply(event, isInvoice(event) ? ((await deps.subscriptions.page({ where: { userId }, sort: 'startedAt', desc: true, limit: 1 })).items[0]?.id ?? subscriptionId) : subscriptionId, { userId })",
    tests: [['subscription', 'an invoice does not override its subscription']],
  },
  {
    name: 'an ended subscription can become active again',
    file: 'events/subscription-events.js',
    text: 'if (isTerminal(stored.status))',
    replacement: 'if (false)',
    tests: [['subscription', 'the minimal body of the specification changes the status and nothing else']],
  },
  {
    name: 'the projection is not written if it is unchanged',
    file: 'entitlement.js',
    text: 'if (await projection.write(',
    replacement:
      'const last = (globalThis.lastProjections ??= new Map()); const text = status + plan; if (last.get(userId) === text) return; last.set(userId, text); if (await projection.write(',
    tests: [STORM],
  },
  {
    name: 'a stale event skips the projection',
    file: 'events/subscription-events.js',
    text: "outcome: 'stale',\n    isProjected: false",
    replacement: "outcome: 'stale',\n    isProjected: true",
    tests: [
      ['crashes', 'an interrupted event is repaired even when a newer one has arrived meanwhile'],
      STORM,
    ],
  },
  {
    name: 'a new status does not change the projection',
    file: 'entitlement.js',
    text: 'before[name] === after[name]',
    replacement: "(name === 'status' || before[name] === after[name])",
    tests: [['crashes', 'a crash at any step is repaired by the next delivery'], STORM],
  },
  {
    name: 'the projection lacks the end of a trial',
    file: 'entitlement.js',
    text: '(name) => subscription[name] !== undefined',
    replacement: "(name) => name !== 'trialEnd' && subscription[name] !== undefined",
    tests: [['entitlement', 'a trial and a grace period end without a further event']],
  },
  {
    name: 'a projection that an earlier version overwrote is used',
    file: 'entitlement.js',
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
    name: 'a write ignores the revision that was read',
    file: 'subscription/writer.js',
    text: 'stateOf = ({ id, rev }) => ({ id, rev })',
    replacement: 'stateOf = ({ id }) => ({ id })',
    tests: [STORM],
  },
  {
    name: 'unmatched events are not replayed',
    file: 'events/processor.js',
    text: "if (change === 'inserted' || change === 'repeated' || isLink) {",
    replacement: 'if (false) {',
    tests: [
      ['subscription', 'an event with our user ID links the customer and releases the events waiting for it'],
    ],
  },
  {
    name: 'the lease of a crashed worker never expires',
    file: 'events/leases.js',
    text: 'of expiredLeases(now)',
    replacement: 'of []',
    tests: [['crashes', 'a crash at any step is repaired by the next delivery']],
  },
  {
    name: 'parallel requests are not shared',
    file: 'subscription/sync.js',
    text: 'if (!current)',
    replacement: 'if (true)',
    tests: [
      ['resync', 'fifty concurrent syncs of one user share a few calls, and none receives an older state'],
    ],
  },
  {
    name: 'a caller receives the result of a request that began before the call',
    file: 'subscription/sync.js',
    text: 'return current.next;',
    replacement: 'return current.result;',
    tests: [
      ['resync', 'fifty concurrent syncs of one user share a few calls, and none receives an older state'],
      ['subscription', 'a sync that began before a purchase does not block it'],
    ],
  },
  {
    name: 'a failure is passed on to queued callers',
    file: 'subscription/sync.js',
    text: 'current.result.then(startNext, startNext)',
    replacement: 'current.result.then(startNext)',
    tests: [['resync', 'a failed sync fails only for the callers that share it']],
  },
  {
    name: 'the lowest limit of several plans applies',
    file: 'plans/plans.js',
    text: 'Math.max(0, ...',
    replacement: 'Math.min(...',
    tests: [['plans', 'features and limits are those of all plans of a user']],
  },
  {
    name: 'a grant gives no features',
    file: 'entitlement.js',
    text: '[...plans, grant.plan]',
    replacement: 'plans',
    tests: [['plans', 'features and limits are those of all plans of a user']],
  },
  {
    name: 'draft invoices are listed',
    file: 'plans/catalog.js',
    text: "status !== 'draft'",
    replacement: 'true',
    tests: [['subscription', 'plans and final invoices are listed as the provider returns them']],
  },
  {
    name: 'a pause of the collection never ends',
    file: 'subscription/snapshot.js',
    text: 'value === undefined || value === null ? value',
    replacement: 'value === undefined || value === null ? undefined',
    tests: [['details', 'items, a pending update and a collection pause follow the events']],
  },
  {
    name: 'the provider is asked again at once after a failure',
    file: 'provider/response-cache.js',
    text: 'lifetimeMs: FAILURE_CACHE_MS',
    replacement: 'lifetimeMs: 0',
    tests: [['details', 'a failure of the provider leaves the rest of the subscription']],
  },
  {
    name: 'the first sync after an upgrade reports a change of every subscription',
    file: 'subscription/writer.js',
    text: 'before.items === undefined',
    replacement: 'false',
    tests: [['details', 'a sync stores the details, reports changes, and nothing after an upgrade']],
  },
  {
    name: 'parallel orders do not share the reservation of a checkout',
    file: 'checkout/open-checkouts.js',
    text: 'const reservation = isShared ?',
    replacement: 'const reservation = false ?',
    tests: [['checkout', 'two processes that open the same checkout at the same time share one reservation']],
  },
  {
    name: 'sessions are created again and again for a provider whose sessions have expired',
    file: 'checkout/open-checkouts.js',
    text: 'if (!isShared)',
    replacement: 'if (false)',
    tests: [['checkout', 'a session that has expired when it is created is a failure of the provider']],
  },
  {
    name: 'a reservation is replaced although its session was stored in the meantime',
    file: 'checkout/open-checkouts.js',
    text: 'key: known.key, sessionId: known.sessionId ?? null',
    replacement: 'key: known.key',
    tests: [['checkout', 'a session that opens while another process replaces its reservation is expired']],
  },
  {
    name: 'a checkout keeps a trial that another one has taken over',
    file: 'checkout/trials.js',
    text: 'if (known?.checkoutId !== checkoutId)',
    replacement: 'if (known?.checkoutId !== checkoutId) return true; if (!known)',
    tests: [['checkout', 'parallel checkouts of independent plans do not both get the trial']],
  },
  {
    name: 'duplicate subscriptions are reported with every change',
    file: 'subscription/duplicates.js',
    text: 'if (reported.includes(subscriptionId))',
    replacement: 'if (false)',
    tests: [
      [
        'checkout',
        'two subscriptions that were paid all the same are recorded and reported to the operator once',
      ],
    ],
  },
  {
    name: 'a failed update of a customer is forgotten',
    file: 'customers/profile-sync.js',
    text: 'await postpone(customer);',
    replacement: "await customers.updateOne({ id }, { unset: ['profileDueAt'] });",
    tests: [
      [
        'profile',
        'while the provider is down, changes are kept and retried with growing delays; the last one wins',
      ],
    ],
  },
  {
    name: 'usage that is refused as a duplicate is sent under another identifier',
    file: 'usage/sender.js',
    text: 'const event = { identifier: id,',
    replacement: 'const event = { identifier: id.slice(0, 60) + leased.attempts,',
    tests: [['usage', 'usage whose response was lost is confirmed and not counted again']],
  },
  {
    name: 'usage with an unknown result is repeated after the provider has forgotten it',
    file: 'usage/sender.js',
    text: 'if (unconfirmedSince !== undefined && now >= unconfirmedSince + REPEATABLE_MS)',
    replacement: 'if (false)',
    tests: [['usage', 'usage that may have been recorded a day ago fails instead of being counted twice']],
  },
  {
    name: 'each attempt extends the time in which usage is repeated',
    file: 'usage/sender.js',
    text: 'unconfirmedSince: unconfirmedSince ?? now',
    replacement: 'unconfirmedSince: now',
    tests: [['usage', 'the first attempt without a response decides how long usage is repeated']],
  },
  {
    name: 'usage counts as sent before the request',
    file: 'usage/sender.js',
    text: 'const { outcome, reason = outcome } = await',
    replacement:
      "await reports.updateOne({ id }, { set: { status: 'sent' }, unset: ['dueAt'] }); const { outcome, reason = outcome } = await",
    tests: [['usage', 'usage is counted once if the process is killed at any step']],
  },
  {
    name: 'usage that the provider refuses is lost',
    file: 'usage/sender.js',
    text: 'const own = { id, attempts: leased.attempts };',
    replacement:
      "const own = { id, attempts: leased.attempts }; if (outcome === 'refused') { await fail(leased, reason); return true; }",
    tests: [['usage', 'usage that the provider refuses is retried until it would be too old']],
  },
  {
    name: 'a repeated report of usage counts again',
    file: 'usage/reports.js',
    text: 'JSON.stringify([userId, meter, key])',
    replacement: 'JSON.stringify([userId, meter, key, now, Math.random()])',
    tests: [['usage', 'reported usage reaches the meter of the provider once for each key']],
  },
  {
    name: 'a change of the plan is not prorated',
    file: 'provider/subscription-changes.js',
    text: "const PRORATION = 'always_invoice'",
    replacement: "const PRORATION = 'none'",
    tests: [['changes', 'a change of price and quantity is made at the provider and visible at once']],
  },
  {
    name: 'a change is made although its payment is declined',
    file: 'provider/subscription-changes.js',
    text: "payment_behavior: 'error_if_incomplete'",
    replacement: "payment_behavior: 'allow_incomplete'",
    tests: [['changes', 'a declined payment changes nothing']],
  },
  {
    name: 'a change ignores the quantity',
    file: 'provider/subscription-changes.js',
    text: 'if (quantity !== undefined)\n        item.quantity = quantity;',
    replacement: '',
    tests: [['changes', 'a change of price and quantity is made at the provider and visible at once']],
  },
  {
    name: 'a repeated change is made again',
    file: 'subscription/changes.js',
    text: 'if (isSamePrice && wanted === present)',
    replacement: 'if (false)',
    tests: [['changes', 'a repeated change has one effect, one after the other and in parallel']],
  },
  {
    name: 'a cancellation now leaves the usage uninvoiced',
    file: 'provider/subscription-changes.js',
    text: '{ invoice_now: true }',
    replacement: '{ invoice_now: false }',
    tests: [['changes', 'a cancellation now ends the subscription, also when it is repeated']],
  },
  {
    name: "a user changes another user's subscription",
    file: 'subscription/changes.js',
    text: 'const named = all.find(({ id }) => id === subscriptionId);',
    replacement: 'const named = await subscriptions.findOne({ id: subscriptionId });',
    tests: [['changes', 'only the own subscription can be changed, and one of several must be named']],
  },
  {
    name: 'a second event about a payment notifies again',
    file: 'events/payments.js',
    text: 'isReporter: reporter === eventId',
    replacement: 'isReporter: true',
    tests: [['payments', 'two events about one payment notify once, however they are delivered']],
  },
  {
    name: 'a refund is not recorded',
    file: 'events/payments.js',
    text: 'return isNewer ? { refundedAmount, refundedAt }',
    replacement: 'return false ? { refundedAmount, refundedAt }',
    tests: [['payments', 'refunds and disputes have the same result in any order, in every API version']],
  },
  {
    name: 'a lost dispute leaves the access',
    file: 'store.js',
    text: "status === 'lost'",
    replacement: 'false',
    tests: [['links', 'a lost dispute ends the access of a one-time purchase, before and after its payment']],
  },
  {
    name: 'a record that is assigned to its invoice leaves the access',
    file: 'events/payments.js',
    text: 'await projector.project(merged.userId);',
    replacement: '',
    tests: [['links', 'a lost dispute ends the access once it is assigned to the invoice of the purchase']],
  },
  {
    name: 'the older total of refunds wins',
    file: 'events/payments.js',
    text: 'const isNewer = refundedAt > time',
    replacement: 'const isNewer = refundedAt < time || time === -1',
    tests: [['payments', 'refunds and disputes have the same result in any order, in every API version']],
  },
  {
    name: 'a late failure replaces a payment',
    file: 'events/payments.js',
    text: "if (stored && stored.status !== 'failed')",
    replacement: 'if (false)',
    tests: [
      ['payments', 'a failure notifies and reminds unless its invoice was paid or voided before it arrived'],
    ],
  },
  {
    name: 'a closed dispute is opened again',
    file: 'events/payments.js',
    text: 'if (merged.get(dispute.id)?.closedAt === undefined)',
    replacement: 'if (true)',
    tests: [['payments', 'a dispute stays closed when an older record of it is assigned to its invoice']],
  },
  {
    name: 'a profile that the provider rejects is retried for ever',
    file: 'customers/profile-sync.js',
    text: 'if (rejection !== undefined) {',
    replacement: 'if (rejection !== undefined) { await postpone(customer); return false;',
    tests: [['profile', 'a profile that the provider rejects is not sent again until the next change']],
  },
];

runMutants('billing', mutants);
