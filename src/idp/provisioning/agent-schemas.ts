import { Type } from 'typebox';
import { DisplayName, Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { defined } from '../../core/kernel/fields.js';
import type { PrincipalDocument } from './store.js';

/** What principals that are agents have besides, in requests and responses. */

export const agentDetails = {
  owner: Type.Optional(
    Type.String({
      description:
        'Who answers for the agent: the `sub` of a person, or `group:` with a name. It stops when they leave.',
      accepts: 'the sub of a person, or group: with a name',
      maxLength: 256,
      pattern: '^(u_[0-9a-f]{32}|group:[a-z0-9._:@+-]{1,64})$',
    }),
  ),
  purpose: Type.Optional(DisplayName),
};

/** In responses. */
export const agentFields = {
  ...agentDetails,
  owner: Type.Optional(
    Type.String({
      description: 'Who answers for the agent. The ID of a group (`grp_…`) that was removed: it has stopped.',
    }),
  ),
  redirect_uris: Type.Optional(
    Type.Array(Type.String(), {
      description: 'Of an agent that is an OAuth client: where people who let it act for them return to.',
    }),
  ),
  client_metadata: Type.Optional(
    Type.String({ description: 'The address of the metadata with which the agent presents itself.' }),
  ),
  backchannel_client_notification_endpoint: Type.Optional(
    Type.String({
      description: 'Where the agent is told that a person has decided on its request (CIBA ping mode).',
    }),
  ),
  expires_at: Type.Optional(Timestamp),
  last_used_at: Type.Optional(Timestamp),
  self_registered: Type.Optional(
    Type.Boolean({ description: 'Of an agent: whether its name is its own claim.' }),
  ),
};

export const agentView = ({ expiresAt, lastUsedAt, mintedAt, ...agent }: PrincipalDocument) => ({
  ...defined({
    owner: agent.owner,
    purpose: agent.purpose,
    redirect_uris: agent.redirectUris,
    client_metadata: agent.clientMetadata,
    backchannel_client_notification_endpoint: agent.notificationEndpoint,
  }),
  ...(expiresAt !== undefined && { expires_at: toTimestamp(expiresAt) }),
  ...(lastUsedAt !== undefined && { last_used_at: toTimestamp(lastUsedAt) }),
  self_registered: mintedAt === undefined,
});
