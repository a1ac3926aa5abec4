import { Type } from 'typebox';
import { After, Next, Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { writtenFields } from './approvals.js';
import { ACCESS_TOKEN_ALGORITHMS, KINDS, type ResourceDocument } from './store.js';

export const ResourceQuery = Type.Object({ after: After });

const ResourceView = Type.Object({
  resource: Type.String({
    description: 'The identifier: the value of `resource` and the audience of tokens.',
  }),
  client_id: Type.String({ description: 'With which the resource server authenticates at /introspect.' }),
  name: Type.String(),
  scopes: Type.Array(
    Type.Object({ name: Type.String(), description: Type.String(), sensitive: Type.Boolean() }),
  ),
  approval_types: Type.Array(
    Type.Object({ type: Type.String(), sentence: Type.String(), fields: Type.String() }),
    { description: 'What people approve: `authorization_details` of these types, with these fields.' },
  ),
  token_lifetime_seconds: Type.Integer(),
  principal_kinds: Type.Array(Type.Enum(KINDS)),
  admitted_groups: Type.Array(Type.String(), {
    description: 'The groups whose members alone get tokens; empty: everyone of these kinds.',
  }),
  groups_claim: Type.String({ description: 'The groups in its tokens: `all`, `none`, or names.' }),
  self_registered: Type.Union([Type.Boolean(), Type.Literal('people')], {
    description: 'Whether people and agents that registered themselves get tokens.',
  }),
  dpop_bound_access_tokens_required: Type.Boolean(),
  access_token_signing_alg: Type.Enum(ACCESS_TOKEN_ALGORITHMS),
  created_at: Timestamp,
  updated_at: Timestamp,
});

export const ResourceList = Type.Object({ resources: Type.Array(ResourceView), next: Next });

/** A document as in responses, without hashes. */
export function resourceView(resource: ResourceDocument) {
  return {
    resource: resource.identifier,
    client_id: resource.id,
    name: resource.name,
    scopes: resource.scopes.map(({ name, description, sensitive = false }) => ({
      name,
      description,
      sensitive,
    })),
    approval_types: (resource.approvals ?? []).map(({ name, sentence, ...type }) => ({
      ...{ type: name, sentence },
      fields: writtenFields(type),
    })),
    token_lifetime_seconds: resource.tokenLifetimeSeconds,
    principal_kinds: resource.principalKinds,
    admitted_groups: resource.admittedGroups ?? [],
    groups_claim: resource.groupsClaim ?? 'none',
    self_registered: resource.admitsSelfRegistered ?? false,
    dpop_bound_access_tokens_required: resource.requiresDpop === true,
    access_token_signing_alg: resource.algorithms?.[0] ?? 'EdDSA',
    created_at: toTimestamp(resource.createdAt),
    updated_at: toTimestamp(resource.updatedAt),
  };
}
