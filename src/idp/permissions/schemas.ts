import { Type } from 'typebox';
import {
  After,
  Closed,
  Next,
  Nullable,
  Time,
  Timestamp,
  toTimestamp,
  toTimestampOrNull,
} from '../../core/http/schemas.js';
import { MAX_TOKENS_PER_HOUR } from './service.js';
import type { PermissionDocument } from './store.js';

const Agent = Type.String({
  description: 'The `sub` of an agent, `group:` with the name of a group, or `*` for every agent.',
  accepts: 'the sub of an agent, group: with a name, or *',
  maxLength: 256,
  pattern: '^(u_[0-9a-f]{32}|group:[a-z0-9._:@+-]{1,64}|\\*)$',
});

const Resource = Type.String({ description: 'The identifier of the API.', maxLength: 512 });

export const PermissionQuery = Type.Object({ agent: Type.Optional(Agent), after: After });

export const PermissionBody = Closed({
  agent: Agent,
  resource: Resource,
  scopes: Type.Optional(
    Type.Array(Type.String({ maxLength: 64 }), {
      description: 'All of the API by default.',
      maxItems: 50,
      minItems: 1,
    }),
  ),
  until: Type.Optional(Time),
  networks: Type.Optional(
    Type.Array(Type.String({ maxLength: 64 }), {
      description: 'From where tokens are requested, like `192.0.2.0/24`.',
      maxItems: 20,
      minItems: 1,
    }),
  ),
  tokens_per_hour: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_TOKENS_PER_HOUR })),
  delegated_only: Type.Optional(
    Type.Boolean({ description: 'Whether the agent acts only for people who let it, and never for itself.' }),
  ),
});

export const WithdrawalQuery = Type.Object({ agent: Agent, resource: Resource });

export const PermissionView = Type.Object({
  agent: Agent,
  resource: Resource,
  scopes: Type.Array(Type.String()),
  until: Nullable(Timestamp),
  networks: Type.Array(Type.String()),
  tokens_per_hour: Nullable(Type.Integer()),
  delegated_only: Type.Boolean(),
  given_by: Nullable(
    Type.String({ description: 'The operator, or the address of the request: `cli` for a command.' }),
  ),
  created_at: Timestamp,
  updated_at: Timestamp,
});

export const PermissionList = Type.Object({ permissions: Type.Array(PermissionView), next: Next });

export const permissionView = (permission: PermissionDocument) => ({
  agent: permission.subject,
  resource: permission.resource,
  scopes: permission.scopes,
  until: toTimestampOrNull(permission.until),
  networks: permission.networks ?? [],
  tokens_per_hour: permission.tokensPerHour ?? null,
  delegated_only: permission.delegatedOnly === true,
  given_by: permission.givenBy ?? null,
  created_at: toTimestamp(permission.createdAt),
  updated_at: toTimestamp(permission.updatedAt),
});
