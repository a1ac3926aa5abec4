import type { PrincipalDocument } from '../provisioning/store.js';
import type { ResourceService } from '../resources/service.js';
import type { AccessTokenAlgorithm, ResourceDocument } from '../resources/store.js';
import type { RuleViolation } from './authorize/rules.js';
import { SCOPES } from './claims.js';

/** An API that accepts access tokens of this provider. */
export type Resource = Omit<ResourceDocument, 'secretHash' | 'createdAt' | 'updatedAt'>;

/** The algorithms of its access tokens: the first signs, and what one of the others has signed before is still valid. */
export const algorithmsOf = ({
  algorithms = ['EdDSA'],
}: Pick<Resource, 'algorithms'>): readonly AccessTokenAlgorithm[] => algorithms;

export type Resources = Pick<ResourceService, 'find' | 'findServer' | 'isSame' | 'hasAny' | 'all'>;

/** What a request, a grant or a consent names: a resource and scopes of it. */
export interface ResourceScopes {
  resource: string;
  scopes: readonly string[];
}

/** A resource of an authorization request, with the requested scopes that it has. */
export interface Target {
  resource: Resource;
  scopes: readonly string[];
  /** Present if the request named no scope: of these, an agent gets those that it has a permission for. */
  isDefault?: true;
  /** When its access tokens end at the latest. */
  until?: number;
  /** The agent that gets them, and the IDs of the permissions that allow it; absent for people. */
  by?: {
    agent: Pick<PrincipalDocument, 'id' | 'owner' | 'lastUsedAt' | 'mintedAt'>;
    permissions: readonly string[];
  };
}

/** Resources of one request, each of which is a lookup. */
const MAX_TARGETS = 5;

const UNKNOWN: RuleViolation = { error: 'invalid_target', description: 'resource is not registered.' };

/**
 * The resources of an authorization request (RFC 8707 §2.1). Without any registered resource, the parameter is ignored:
 * some clients always send it.
 */
export async function findTargets(
  identifiers: readonly string[],
  scope: string | undefined,
  resources: Resources,
): Promise<Target[] | RuleViolation> {
  const requested = new Set(namesIn(scope).filter((name) => !SCOPES.some((own) => own === name)));
  const names = [...new Set(identifiers.length > 0 ? identifiers : await impliedBy(requested, resources))];
  if (names.length === 0) return [];
  const found = names.length > MAX_TARGETS ? [] : await Promise.all(names.map(resources.find));
  const known = [...new Map(found.flatMap((one) => (one ? [[one.id, one] as const] : []))).values()];
  if (found.length < names.length || found.includes(null)) {
    if (!(await resources.hasAny())) return [];
    if (names.length <= MAX_TARGETS) return UNKNOWN;
    return { error: 'invalid_target', description: `resource occurs more than ${MAX_TARGETS} times.` };
  }
  // `offline_access` says only for how long.
  if (namesIn(scope).every((name) => name === 'offline_access')) return known.map(withDefaultScopes);
  const targets = known.map((resource) => ({
    resource,
    scopes: resource.scopes.flatMap(({ name }) => (requested.has(name) ? [name] : [])),
  }));
  const isKnown = (name: string) => targets.some(({ scopes }) => scopes.includes(name));
  return [...requested].every(isKnown)
    ? targets
    : { error: 'invalid_scope', description: 'scope contains a scope that the resource does not have.' };
}

/** The identifier of the one resource that has all of these scopes, for clients that do not send `resource`. */
export async function impliedBy(
  requested: ReadonlySet<string>,
  resources: Pick<Resources, 'all'>,
): Promise<string[]> {
  if (requested.size === 0) return [];
  const owners = (await resources.all()).filter(({ scopes }) =>
    scopes.some(({ name }) => requested.has(name)),
  );
  const [owner, ...others] = owners;
  const names = new Set(owner?.scopes.map(({ name }) => name));
  return owner && others.length === 0 && [...requested].every((name) => names.has(name))
    ? [owner.identifier]
    : [];
}

/** What a request without a scope gets (RFC 6749 §3.3): what the operator has not marked as sensitive. */
const withDefaultScopes = (resource: Resource): Target => ({
  resource,
  scopes: resource.scopes.flatMap(({ name, sensitive }) => (sensitive ? [] : [name])),
  isDefault: true,
});

/** The names in a scope. */
export const namesIn = (scope = ''): string[] => scope.split(' ').filter((name) => name !== '');

/** As it is stored and compared. */
export const scopesOf = (targets: readonly Target[]): ResourceScopes[] =>
  targets.map(({ resource, scopes }) => ({ resource: resource.identifier, scopes }));
