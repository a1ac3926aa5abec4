/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'an event is completed before it is applied', file: 'saas/billing/events/processor.ts',
    in: 'complete',
    replace: 'const result = await commit([own, ...parts, record])',
    by: 'await commit([own]); const result = await commit([...parts, record])',
    tests: [['saas/billing/crashes', 'in every interleaving of deliveries, with a crash of one']],
  },
  {
    name: "the user's record is written as it was before the change", file: 'saas/billing/holdings.ts',
    in: 'withChanged',
    replace: '[...stored.filter(({ id }) => id !== changed.id), changed]', by: 'stored',
    tests: [['saas/billing/crashes', 'in every interleaving of deliveries, with a crash of one']],
  },
  {
    name: "the owner's record is written although it has changed since it was read",
    file: 'saas/billing-owners.ts', in: 'writing',
    replace: 'rev === undefined ? {}', by: 'rev !== -1 ? {}',
    tests: [['saas/billing/crashes', 'concurrent changes of two subscriptions of a user both count']],
  },
  {
    name: 'of two events of one second the first to arrive wins',
    file: 'saas/billing/events/subscription-events.ts', in: 'compareSubscriptionEvent',
    replace: 'if (event.created < stored.at)', by: 'if (event.created <= stored.at)',
    tests: [['saas/billing/subscription', 'the provider decides between events of one second; during an outage']],
  },
  {
    name: 'an ended subscription can become active again', file: 'saas/billing/events/subscription-events.ts',
    in: 'compareSubscriptionEvent',
    replace: 'if (isTerminal(stored.status))', by: 'if (false)',
    tests: [['saas/billing/subscription', 'the minimal body of the specification changes the status and nothing']],
  },
  {
    name: 'a grant outlives its end', file: 'saas/billing/entitlement.ts', in: 'isEntitled',
    replace: 'return until === undefined || now < until', by: 'return true',
    tests: [['saas/billing/entitlement', 'a granted plan entitles until it ends or is revoked, without']],
  },
  {
    name: 'what was bought in test mode gives access under a live key', file: 'saas/billing/entitlement.ts',
    in: 'createModeCheck',
    replace: '!(isLive && livemode === false)', by: 'true',
    tests: [['saas/billing/account', 'what was bought in test mode gives nothing under a live key']],
  },
  {
    name: 'unmatched events are not replayed', file: 'saas/billing/events/processor.ts', in: 'handle',
    replace: 'applied.isInserted || owner.link ?', by: 'false ?',
    tests: [['saas/billing/subscription', 'an event with our user ID links the customer and releases the events']],
  },
  {
    name: 'the lease of a crashed worker never expires', file: 'saas/billing/events/leases.ts',
    in: 'isInProgress',
    replace: 'leaseUntil > clock.now()', by: 'true',
    tests: [['saas/billing/webhook', 'an event in progress stays with its worker until the lease ends']],
  },
  {
    name: 'parallel orders do not share the reservation of a checkout',
    file: 'saas/billing/checkout/open-checkouts.ts', in: 'open',
    replace: 'const reservation = isShared ?', by: 'const reservation = false ?',
    tests: [['saas/billing/checkout', 'two processes that open the same checkout at the same time share one']],
  },
  {
    name: 'usage that is refused as a duplicate is sent under another identifier',
    file: 'saas/billing/usage/sender.ts', in: 'send',
    replace: 'const usage = { identifier: id,',
    by: 'const usage = { identifier: id.slice(0, 60) + leased.attempts,',
    tests: [['saas/billing/usage', 'usage whose response was lost is confirmed and not counted again']],
  },
  {
    name: 'a repeated report of usage counts again', file: 'saas/billing/usage/reports.ts',
    in: 'usageReport',
    replace: 'JSON.stringify([ownerId, meter, key])',
    by: 'JSON.stringify([ownerId, meter, key, now, Math.random()])',
    tests: [['saas/billing/usage', 'reported usage reaches the meter of the provider once for each key']],
  },
  {
    name: "a user changes another user's subscription", file: 'saas/billing/subscription/orders.ts',
    in: 'select',
    replace: 'const named = held.find(({ id }) => id === subscriptionId);',
    by: 'const any = await subscriptions.findOne({ id: subscriptionId ?? "-" }); const named = any ? holdings.ofSubscription(any) : undefined;',
    tests: [['saas/billing/changes', 'only the own subscription can be changed, and one of several must be']],
  },
  {
    name: 'a second event about a payment notifies again', file: 'saas/billing/events/payments.ts',
    in: 'withFact',
    replace: 'stored?.reportedBy[fact.name] === undefined', by: 'true',
    tests: [['saas/billing/payments', 'two events about one payment notify once, however they are delivered']],
  },
  {
    name: 'a lost dispute leaves the access', file: 'saas/billing/store.ts', in: 'isReturned',
    replace: "status === 'lost'", by: 'false',
    tests: [['saas/billing/links', 'a lost dispute ends the access of a one-time purchase, before and after']],
  },
  {
    name: 'an older event applies', file: 'saas/billing/events/subscription-events.ts', in: 'compareSubscriptionEvent',
    replace: 'if (event.created < stored.at)', by: 'if (false)',
    tests: [['saas/billing/subscription', 'events a second apart have the same result in any order, without']],
  },
  {
    name: 'any signature of an event is accepted', file: 'saas/billing/events/webhook.ts', in: 'verify',
    replace: 'timingSafeEqual(digest, bytes)', by: 'digest.length === bytes.length',
    tests: [['saas/billing/webhook', 'invalid signature headers are answered 400']],
  },
  {
    name: 'an event is accepted whenever it was signed', file: 'saas/billing/events/webhook.ts', in: 'verify',
    replace: 'difference > TOLERANCE_SECONDS', by: 'false',
    tests: [['saas/billing/webhook', 'a signature is valid for five minutes before and after its time']],
  },
  {
    name: 'a repeated creation of a customer creates another one', file: 'saas/billing/provider/gateway.ts',
    in: 'createCustomer',
    replace: '{ idempotencyKey: key }', by: '{}',
    tests: [['saas/billing/purchase', 'twenty concurrent first purchases create one customer']],
  },
  {
    name: 'a user ends a lower price that the seller has agreed upon',
    file: 'saas/billing/subscription/schedules.ts', in: 'isOrderedByUser',
    replace: "plans.isForSale(idOf(mainItem['price']) ?? '')", by: 'true',
    tests: [['saas/billing/schedules', 'a schedule that the seller has agreed upon is respected']],
  },
  {
    name: 'a user ends a discount for some months', file: 'saas/billing/subscription/schedules.ts', in: 'isOrderedByUser',
    replace: 'isDeepStrictEqual(discountsOf(next), discountsOf(present ?? {}))', by: 'true',
    tests: [['saas/billing/schedules', 'a schedule that the seller has agreed upon is respected']],
  },
  {
    name: 'any item of a subscription is an add-on', file: 'saas/billing/subscription/orders.ts', in: 'addOnOf',
    replace: 'plan !== undefined && plans.isIndependent(plan)', by: 'plan !== undefined',
    tests: [['saas/billing/add-ons', 'only an add-on is added to a subscription and removed from it']],
  },
  {
    name: 'a hook chooses the customer of a session', file: 'saas/billing/provider/checkout-sessions.ts', in: 'withOwn',
    replace: 'customer: own.customer as string,', by: '',
    tests: [['saas/billing/checkout-hook', 'whose session it is, what it sells, the trial and the return are']],
  },
  {
    name: 'an import links by an address that nobody confirmed', file: 'saas/billing/customers/import.ts',
    in: 'findNamed',
    replace: 'if (user?.emailVerified)', by: 'if (user)',
    tests: [['saas/billing/import', 'customers are linked by metadata and by a confirmed address, and what is']],
  },
];
