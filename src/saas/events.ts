import {
  type Announce,
  createEvents,
  type Emit,
  type EventOutbox,
  type Subscription,
} from '../core/ops/events.js';
import type { ModuleContext } from '../core/server/module-context.js';
import { AGENT_EVENTS, type AgentEvents } from './agents/schemas.js';
import { AUTH_EVENTS, type AuthEvents } from './auth/events.js';
import { BILLING_NOTIFICATIONS, type BillingNotifications } from './billing/notifications.js';

/** The events of `fastify.saas.events` by name. */
export type SaasEvents = AuthEvents & BillingNotifications & AgentEvents;

const NAMES = { ...AUTH_EVENTS, ...BILLING_NOTIFICATIONS, ...AGENT_EVENTS };

export const EVENT_NAMES: readonly string[] = Object.keys(NAMES);

/** The events of all domains, for each of them. */
export interface SaasEventBus {
  events: Readonly<Subscription<SaasEvents>>;
  emit: Emit<AuthEvents> & Emit<BillingNotifications>;
  record: Emit<BillingNotifications>;
  announceEvent: Announce<AuthEvents> & Announce<BillingNotifications> & Announce<AgentEvents>;
}

export function createEventBus(
  { clock, random, log }: ModuleContext,
  outbox: EventOutbox | undefined,
): SaasEventBus {
  const { events, emit, record, announce } = createEvents<SaasEvents>({
    names: NAMES,
    outbox,
    clock,
    random,
    log,
  });
  // TypeScript does not infer that a function for all events accepts a subset of them.
  return { events, emit, record, announceEvent: announce } as SaasEventBus;
}
