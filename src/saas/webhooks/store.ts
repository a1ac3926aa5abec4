import type { Clock } from '../../core/kernel/clock.js';
import type { Encryption } from '../../core/kernel/encryption.js';
import type { Random } from '../../core/kernel/secrets.js';
import type { Audit } from '../../core/ops/audit.js';
import type { CommitParts } from '../../core/ops/commit.js';
import type { JobLog } from '../../core/ops/jobs.js';
import type { Collection, Store } from '../../core/storage/collection.js';
import type { DeliveryStatus } from './schemas.js';

/** An address that receives events. */
export interface EndpointDocument {
  id: string;
  url: string;
  description: string;
  /** The events that it receives; absent: all. */
  events?: string[];
  /** Encrypted. */
  secret: string;
  /** Also signs until `previousSecretUntil`, so that the receiver can change to the new one meanwhile. */
  previousSecret?: string;
  previousSecretUntil?: number;
  createdAt: number;
  /** Incremented by every change of the operator. */
  version: number;
  disabledAt?: number;
  /** Why it was disabled without the operator. */
  disabledReason?: string;
  /** When the first attempt failed after which none has succeeded. */
  failingSince?: number;
  lastFailure?: string;
  /** To the minute. */
  lastSuccessAt?: number;
  /** Attempts in succession that got no answer. */
  unanswered?: number;
  /** No attempts are made until then, because the last one got no answer. */
  pausedUntil?: number;
}

/** Of the IDs of endpoints. */
export const ENDPOINT_PREFIX = 'whe_';

export type Endpoints = Collection<EndpointDocument>;

export const endpointCollection = (store: Store): Endpoints =>
  store.collection<EndpointDocument>('webhook_endpoints', {
    indexes: [['createdAt']],
    fields: ['secret', 'previousSecret'],
    numbers: [
      'createdAt',
      'version',
      'disabledAt',
      'failingSince',
      'lastSuccessAt',
      'unanswered',
      'pausedUntil',
    ],
  });

export interface Attempt {
  at: number;
  result: string;
}

/** One event for one endpoint. */
export interface DeliveryDocument {
  /** Of the event and the endpoint, so that an event that two commits contain is delivered once. */
  id: string;
  /** The header `webhook-id`. */
  webhookId: string;
  event: string;
  endpointId: string;
  /** Whom the event is about. */
  userId?: string;
  /** What is sent and signed. */
  body: string;
  status: DeliveryStatus;
  /** When to attempt it next, or to take it over from a process that has ended. Absent unless pending. */
  dueAt?: number;
  /** Incremented before every attempt; only the latest attempt may store its result. */
  attempts: number;
  /** Value of `attempts` when the operator had it sent again: the schedule starts anew. */
  scheduledFrom?: number;
  lastResult?: string;
  answer?: string;
  history: Attempt[];
  createdAt: number;
  endedAt?: number;
}

export type Deliveries = Collection<DeliveryDocument>;

export const deliveryCollection = (store: Store): Deliveries =>
  store.collection<DeliveryDocument>('webhook_deliveries', {
    indexes: [
      ['endpointId', 'dueAt'],
      ['endpointId', 'createdAt'],
      ['status', 'createdAt'],
      ['userId', 'createdAt'],
      ['createdAt'],
      ['dueAt'],
    ],
    fields: ['event'],
    numbers: ['dueAt', 'createdAt', 'attempts'],
  });

/** What the services of this domain share. */
export interface WebhookDependencies {
  endpoints: Endpoints;
  deliveries: Deliveries;
  commit: CommitParts;
  encryption: Encryption;
  /** Called when there is something to send. */
  wake(): void;
  audit: Audit;
  clock: Clock;
  random: Random;
  log: JobLog;
}
