import { type Static, Type } from 'typebox';
import type { Report } from '../../core/config/configuration-error.js';
import { option } from '../../core/config/options.js';
import { Nullable, Timestamp } from '../../core/http/schemas.js';

/** The options of webhooks. The secrets of endpoints are encrypted with SETTINGS_ENCRYPTION_KEY. */
export const webhookOptions = {
  webhooks: option(Type.Boolean({ default: false }), {
    env: 'WEBHOOKS',
    doc: 'Deliver events to HTTP endpoints that the operator adds in the admin area: docs/saas/webhooks.md. Requires SETTINGS_ENCRYPTION_KEY.',
  }),
  webhookPrivateNetworks: option(Type.Boolean({ default: false }), {
    env: 'WEBHOOK_PRIVATE_NETWORKS',
    doc: 'Allow endpoints of webhooks in private networks, and without TLS. Outside production, those of this machine are always allowed.',
  }),
};

/** Refuses endpoints whose secrets could not be encrypted. */
export function refuseWebhooksWithoutKey(
  { webhooks, settingsEncryptionKey }: { webhooks: boolean; settingsEncryptionKey?: string | undefined },
  report: Report,
): void {
  if (!webhooks || settingsEncryptionKey !== undefined) return;
  report.refuse(
    'WEBHOOKS requires SETTINGS_ENCRYPTION_KEY, which encrypts the secrets of endpoints.',
    'Set SETTINGS_ENCRYPTION_KEY: openssl rand -base64 48',
  );
}

const NullableTime = Nullable(Timestamp);

export const ENDPOINT_STATES = ['enabled', 'failing', 'disabled'] as const;
export type EndpointState = (typeof ENDPOINT_STATES)[number];

/** An endpoint as the operator sees it: without its secret. */
export const EndpointView = Type.Object({
  id: Type.String(),
  url: Type.String(),
  description: Type.String(),
  events: Type.Array(Type.String(), { description: 'The events that it receives; empty: all.' }),
  state: Type.Enum([...ENDPOINT_STATES]),
  disabledReason: Nullable(Type.String()),
  failingSince: NullableTime,
  lastFailure: Nullable(Type.String()),
  lastSuccessAt: NullableTime,
  previousSecretUntil: NullableTime,
  createdAt: Timestamp,
});
export type EndpointView = Static<typeof EndpointView>;

export const DELIVERY_STATUSES = ['pending', 'delivered', 'failed'] as const;
export type DeliveryStatus = (typeof DELIVERY_STATUSES)[number];

/** An event for one endpoint, as lists show it. */
export const DeliveryView = Type.Object({
  id: Type.String(),
  webhookId: Type.String({ description: 'The header webhook-id: the same in every attempt.' }),
  event: Type.String(),
  endpointId: Type.String(),
  status: Type.Enum([...DELIVERY_STATUSES]),
  attempts: Type.Integer(),
  lastResult: Nullable(Type.String()),
  createdAt: Timestamp,
  nextAttemptAt: NullableTime,
  endedAt: NullableTime,
});
export type DeliveryView = Static<typeof DeliveryView>;

/** One delivery with its payload and its attempts. */
export const DeliveryDetail = Type.Object({
  ...DeliveryView.properties,
  payload: Type.String({ description: 'The body of the request, as it is signed.' }),
  answer: Nullable(Type.String({ description: 'The beginning of the last answer.' })),
  history: Type.Array(Type.Object({ at: Timestamp, result: Type.String() }), {
    description: 'The latest attempts, the newest last.',
  }),
});
export type DeliveryDetail = Static<typeof DeliveryDetail>;
