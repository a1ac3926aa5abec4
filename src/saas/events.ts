import { createEvents, type EventOf, type EventOutbox, type Listeners } from '../core/ops/events.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { ATTENTION_EVENTS, type AttentionEvents } from './admin/attention.js';
import { AGENT_EVENTS, type AgentEvents } from './agents/schemas.js';
import { AUTH_EVENTS, type AuthEvents } from './auth/events.js';
import { BILLING_EVENTS, type BillingEvents } from './billing/notifications.js';
import { ORGANIZATION_EVENTS, type OrganizationEvents } from './organizations/events.js';

/** The events of `fastify.saas.events` by name. */
export type SaasEvents = AuthEvents & BillingEvents & AgentEvents & OrganizationEvents & AttentionEvents;

const NAMES = {
  ...AUTH_EVENTS,
  ...BILLING_EVENTS,
  ...AGENT_EVENTS,
  ...ORGANIZATION_EVENTS,
  ...ATTENTION_EVENTS,
};

export const EVENT_NAMES: readonly string[] = Object.keys(NAMES);

/** The events of all domains, for each of them. */
export interface SaasEventBus {
  events: Readonly<Listeners<SaasEvents>>;
  event: EventOf<AuthEvents> &
    EventOf<BillingEvents> &
    EventOf<AgentEvents> &
    EventOf<OrganizationEvents> &
    EventOf<AttentionEvents>;
}

export function createEventBus(
  { clock, random, log }: ModuleContext,
  outbox: EventOutbox | undefined,
): SaasEventBus {
  // TypeScript does not infer that a function for all events accepts a subset of them.
  return createEvents<SaasEvents>({ names: NAMES, outbox, clock, random, log }) as SaasEventBus;
}
