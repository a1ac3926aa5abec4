import { httpErrors } from '../kernel/errors.js';
import type { Session, User } from './schemas.js';

/** For whom a request is made: a person with a session, with an access token of a program that acts for them, or with an API key. */

/** The IDs of organizations begin with it. */
export const ORGANIZATION_ID_PREFIX = 'org_';

export const isOrganizationId = (id: string): boolean => id.startsWith(ORGANIZATION_ID_PREFIX);

/** The organization in which a request is made, as far as the person is a member of it. */
export interface OrganizationIdentity {
  /** `org_…` */
  id: string;
  /** A part of addresses. */
  slug: string;
  /** As its members named it. */
  name: string;
  /** Of the person. */
  role: string;
  /** What the role permits. */
  permissions: string[];
}

/** A person with a session. */
export interface Identity {
  /** The person. */
  user: User;
  /** Their session. */
  session: Session;
  /** On routes behind `requireMember` or `requirePermission`. */
  organization?: OrganizationIdentity;
  /** Only for programs. */
  actor?: never;
  /** Only for programs. */
  client?: never;
  /** Only for programs. */
  scopes?: never;
  /** Only for API keys. */
  key?: never;
}

/** A person whose access token was issued to a program. */
export interface TokenIdentity {
  /** The person. */
  user: User;
  /** Programs have none. */
  session: null;
  /** On routes behind `requireMember` or `requirePermission`. */
  organization?: OrganizationIdentity;
  /** The agent; null if the person uses the application of the token without one. */
  actor: Actor | null;
  /** The application that the token was issued to: its `client_id` at the identity provider. */
  client: string;
  /** What the access token permits. */
  scopes: string[];
  /** Only for API keys. */
  key?: never;
}

/** A person whose API key a program has sent. */
export interface KeyIdentity {
  /** The person; for a key of an organization, the member who is responsible for it. */
  user: User;
  /** Programs have none. */
  session: null;
  /** On routes behind `requireMember` or `requirePermission`. */
  organization?: OrganizationIdentity;
  /** The key. */
  key: IdentifyingKey;
  /** What the key permits. */
  scopes: string[];
  /** Only for access tokens. */
  actor?: never;
  /** Only for access tokens. */
  client?: never;
}

/** The API key of a request. */
export interface IdentifyingKey {
  /** `key_…`, which is not secret. */
  id: string;
  /** As the person named it. */
  name: string;
  /** The organization to which it belongs; absent for a key of a person. */
  organizationId?: string;
}

/** An agent that acts for a person. */
export interface Actor {
  /** The identifier of the agent at the identity provider. */
  sub: string;
  /** The permission of the person, which they can end; absent if the issuer does not name it. */
  delegation?: string;
  /** The agents that have handed the permission on, the last one first. */
  via: string[];
}

/** For whom a request is made. */
export type RequestIdentity = Identity | TokenIdentity | KeyIdentity;

/**
 * The person of a route that admits no programs, and their session. The guard has refused all others already; this keeps a
 * mistake there from becoming access.
 *
 * @throws FORBIDDEN
 */
export function personOf(identity: RequestIdentity): Identity {
  if (identity.session === null) throw peopleOnly();
  return identity;
}

export const peopleOnly = () =>
  httpErrors.FORBIDDEN({
    message: 'Only the signed-in person can do this; no agent, application or API key can.',
  });

/** Who has made a request, in the audit and in events. */
export interface ActingProgram {
  /** The application that the access token was issued to; absent for an API key. */
  client?: string;
  /** The agent; absent if there is none. */
  sub?: string;
  /** The permission of the person; absent if the issuer does not name it. */
  delegation?: string;
  /** The ID of the API key; absent if there is none. */
  key?: string;
}

/** Who has made a request; undefined for a person with a session. */
export function actingProgramOf({ session, client, actor, key }: RequestIdentity): ActingProgram | undefined {
  if (key) return { key: key.id };
  if (session !== null || client === undefined) return undefined;
  if (!actor) return { client };
  const { sub, delegation } = actor;
  return { client, sub, ...(delegation !== undefined && { delegation }) };
}
