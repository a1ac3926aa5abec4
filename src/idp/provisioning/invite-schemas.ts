import { Type } from 'typebox';
import { After, Next, Timestamp, toTimestamp } from '../../core/http/schemas.js';
import { hasExpiredLink } from './link-tokens.js';
import { Address, groupNames, identity, NAMED_FIELDS, principalView, Untyped } from './schemas.js';
import type { PrincipalDocument } from './store.js';

/** Invitations in requests and responses. */

const InvitedApplication = Type.String({
  description:
    'The application to which the person continues: its client_id, or its name if no other one has it. It admits the person by groups alone.',
  accepts: 'a client_id or a name of at most 200 characters',
  examples: ['Grafana'],
  minLength: 1,
  maxLength: 200,
});

export const InviteBody = Type.Object(
  {
    ...identity,
    days: Untyped,
    groups: Type.Optional(groupNames('The groups that the person is in once the invitation is accepted.')),
    email: Type.Optional(Address),
    application: Type.Optional(InvitedApplication),
    send: Type.Optional(Type.Boolean({ description: 'Whether the link is also sent by e-mail.' })),
    kind: Untyped,
    password: Untyped,
  },
  NAMED_FIELDS,
);

export const InviteAnswer = Type.Object({
  handle: Type.String(),
  invite_url: Type.String({ description: 'Shown once; can be used once.' }),
  expires_at: Timestamp,
  days: Type.Integer(),
  sent_to: Type.Optional(Type.String({ description: 'The address to which the link is sent.' })),
});

export const InviteQuery = Type.Object({
  expired: Type.Optional(
    Type.Enum(['true'], { description: 'Lists only invitations whose link has expired.' }),
  ),
  after: After,
});

/** An invitation that was not accepted. It never contains the link. */
export const InviteView = Type.Object({
  sub: Type.String(),
  handle: Type.String(),
  email: Type.Optional(Type.String()),
  name: Type.String(),
  state: Type.Enum(['open', 'expired']),
  application: Type.Optional(Type.String({ description: 'A client_id.' })),
  created_at: Timestamp,
  expires_at: Type.Optional(Timestamp),
});

export const InviteList = Type.Object({ invites: Type.Array(InviteView), next: Next });

export function inviteView(principal: PrincipalDocument, now: number) {
  const { application, linkExpiresAt } = principal;
  const { kind, ...view } = principalView(principal);
  return {
    ...view,
    state: hasExpiredLink(principal, now) ? ('expired' as const) : ('open' as const),
    ...(application !== undefined && { application }),
    ...(linkExpiresAt !== undefined && { expires_at: toTimestamp(linkExpiresAt) }),
  };
}
