import { Type } from 'typebox';
import { After, Closed, DisplayName, Next, Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { GROUP_NAME } from './filters.js';
import type { GroupDocument, MemberDocument } from './store.js';

export const GroupQuery = Type.Object({ after: After });

export const GroupBody = Closed({ name: Type.String(GROUP_NAME), description: Type.Optional(DisplayName) });

const member = Type.String({
  description: 'The `sub` of a person or an agent, or `@` and a domain.',
  accepts: 'a sub like u_0123…, or a domain like @example.com',
  maxLength: 254,
});

export const GroupParameters = Type.Object({ group: Type.String({ maxLength: 64 }) });

export const MemberParameters = Type.Object({ ...GroupParameters.properties, member });

export const MemberBody = Closed({ member });

export const GroupView = Type.Object({
  name: Type.String(),
  description: Type.String(),
  created_at: Timestamp,
  updated_at: Timestamp,
});

export const GroupList = Type.Object({ groups: Type.Array(GroupView), next: Next });

const MemberView = Type.Object({
  member: Type.String({
    description:
      'The `sub` of a person or an agent; or `@` and a domain: all people with a verified address there.',
  }),
  handle: Type.String(),
  kind: Type.Enum(['agent', 'human', 'domain']),
  added_at: Timestamp,
});

export const MemberList = Type.Object({ members: Type.Array(MemberView), next: Next });

/** Documents as in responses. */
export const groupView = ({ name, description = '', createdAt, updatedAt }: GroupDocument) => ({
  name,
  description,
  created_at: toTimestamp(createdAt),
  updated_at: toTimestamp(updatedAt),
});

export const memberView = ({ member, handle, kind, createdAt }: MemberDocument) => ({
  member,
  handle,
  kind,
  added_at: toTimestamp(createdAt),
});
