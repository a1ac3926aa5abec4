import type { RequestSource } from '../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import { DAY } from '../../core/kernel/clock.js';
import { type ErrorDetail, invalidFields } from '../../core/kernel/errors.js';
import { newId, newToken, sha256 } from '../../core/kernel/secrets.js';
import { actorOf, changeDetail } from '../../core/ops/audit.js';
import { decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import { type Change, nullIfTaken } from '../../core/storage/collection.js';
import { applyChange } from '../../core/storage/semantics.js';
import type { Groups } from '../groups/service.js';
import type { Permissions } from '../permissions/service.js';
import { approvalProblems, writtenFields } from './approvals.js';
import { identifierProblem, isResourceUri, spellingsOf } from './identifier.js';
import { MAX_RESOURCES } from './service.js';
import {
  ACCESS_TOKEN_ALGORITHMS,
  type AccessTokenAlgorithm,
  type ApprovalType,
  type Kind,
  type ResourceCollection,
  type ResourceDocument,
  type ResourceScope,
} from './store.js';

export interface ResourceInput {
  name: string;
  scopes: readonly Pick<ResourceScope, 'name' | 'description'>[];
  tokenLifetimeSeconds: number;
  principalKinds: readonly Kind[];
  /** Whether principals that have registered themselves may get a token. */
  admitsSelfRegistered: boolean | 'people';
  /** Names of scopes. */
  sensitive: readonly string[];
  /** Whether its tokens are bound to a key (DPoP). */
  requiresDpop: boolean;
  /** The groups that alone may get a token; empty: everyone of these kinds. */
  admittedGroups?: readonly string[];
  /** The groups in its tokens: `all`, `none`, or names like `admins,staff=Employees`. */
  groupsClaim?: string;
  /** The signature of its access tokens. */
  algorithm?: AccessTokenAlgorithm;
}

/** Longest lifetime of an access token, which a resource server accepts without asking the provider. */
export const MAX_TOKEN_LIFETIME_SECONDS = 600;

/** Shorter ones expire on their way. */
export const MIN_TOKEN_LIFETIME_SECONDS = 30;

const MAX_SCOPES = 50;

/** A scope-token of RFC 6749 §3.3, without the comma and the equals sign of the command line. */
const SCOPE_NAME = /^[\x21\x23-\x2b\x2d-\x3c\x3e-\x5b\x5d-\x7e]{1,64}$/;

export interface ResourceAdministrationDependencies
  extends Pick<ModuleContext, 'commit' | 'audit' | 'clock' | 'random'> {
  /** Whether identifiers may use http on loopback addresses. */
  allowHttp: boolean;
  /** The scopes that the provider itself defines. */
  reservedScopes: readonly string[];
  /** The algorithms for which the provider has a key. */
  signingAlgorithms: readonly AccessTokenAlgorithm[];
  groups: Pick<Groups, 'readFilter' | 'refuseUnknown'>;
  endResource: EndResource;
  permissions: Pick<Permissions, 'leaving'>;
}

/** What ends with a resource, for the commit that removes it: its access tokens, and its delegations after that. */
export type EndResource = (identifier: string, by: { ip: string; by?: string }) => Effect;

/** Changes resources, which decide what tokens are worth: only the host's command line and an application in the same process load it. */
export function createResourceAdministration(
  resources: ResourceCollection,
  deps: ResourceAdministrationDependencies,
) {
  const { commit, audit, clock, random, allowHttp, reservedScopes, groups, permissions, endResource } = deps;
  const { signingAlgorithms } = deps;
  /** @param known the scopes of the resource then */
  const problemsOf = (input: Partial<ResourceInput>, known: ResourceInput['scopes']): ErrorDetail[] => {
    const { name, scopes = [], sensitive = [], tokenLifetimeSeconds: seconds, principalKinds } = input;
    const { algorithm = 'EdDSA' } = input;
    const isLifetime =
      seconds === undefined ||
      (Number.isInteger(seconds) &&
        seconds >= MIN_TOKEN_LIFETIME_SECONDS &&
        seconds <= MAX_TOKEN_LIFETIME_SECONDS);
    const names = scopes.map((scope) => scope.name);
    const problems: [boolean, path: string, message: string][] = [
      [
        name !== undefined && !matchesSchema(name, DisplayName),
        'name',
        'must be a name of 1 to 200 characters',
      ],
      [scopes.length > MAX_SCOPES, 'scopes', `must be at most ${MAX_SCOPES} scopes`],
      [new Set(names).size < names.length, 'scopes', 'must contain each scope once'],
      [
        !isLifetime,
        'lifetime',
        `must be ${MIN_TOKEN_LIFETIME_SECONDS} to ${MAX_TOKEN_LIFETIME_SECONDS} seconds`,
      ],
      [principalKinds?.length === 0, 'kinds', 'must be human, agent or both'],
      [
        !signingAlgorithms.includes(algorithm),
        'alg',
        'must be EdDSA: ES256 needs a key, so set IDP_ES256_KEY first',
      ],
      ...scopes.flatMap((scope): [boolean, string, string][] => [
        [
          !SCOPE_NAME.test(scope.name),
          `scopes ${scope.name}`,
          'must be 1 to 64 printable ASCII characters without spaces, commas, equals signs, quotation marks and backslashes',
        ],
        [reservedScopes.includes(scope.name), `scopes ${scope.name}`, 'is a scope of the provider itself'],
        [
          !matchesSchema(scope.description, DisplayName),
          `scopes ${scope.name}`,
          'must have a description of 1 to 200 characters',
        ],
      ]),
      ...sensitive.map((one): [boolean, string, string] => [
        !known.some((scope) => scope.name === one),
        `sensitive ${one}`,
        'is not a scope of the resource',
      ]),
    ];
    return problems.flatMap(([applies, path, message]) => (applies ? [{ path, message }] : []));
  };

  const find = async (identifier: string) =>
    isResourceUri(identifier) ? resources.findOne({ identifier }) : null;

  /** The fields to store and those to remove. @throws VALIDATION_ERROR naming groups that do not exist */
  const readGroups = async ({
    admittedGroups,
    groupsClaim,
  }: Pick<Partial<ResourceInput>, 'admittedGroups' | 'groupsClaim'>) => {
    await groups.refuseUnknown(admittedGroups ?? [], 'admit-groups');
    const filter = groupsClaim === undefined ? undefined : await groups.readFilter(groupsClaim, 'groups');
    return {
      set: {
        ...(admittedGroups?.length && { admittedGroups: [...admittedGroups] }),
        ...(filter !== undefined && filter !== 'none' && { groupsClaim: filter }),
      },
      unset: [
        ...(admittedGroups?.length === 0 ? (['admittedGroups'] as const) : []),
        ...(filter === 'none' ? (['groupsClaim'] as const) : []),
      ],
    };
  };

  const insist = (problems: ErrorDetail[]): void => {
    if (problems.length > 0) throw invalidFields(...problems);
  };

  return {
    /** @throws VALIDATION_ERROR naming every problem */
    async add(
      identifier: string,
      input: ResourceInput,
      source: RequestSource,
    ): Promise<{ resource: ResourceDocument; secret: string }> {
      const problem = identifierProblem(identifier, allowHttp);
      insist([
        ...(problem === null ? [] : [{ path: 'resource', message: problem }]),
        ...problemsOf(input, input.scopes),
      ]);
      const [, other] = spellingsOf(identifier);
      if (other !== undefined && (await find(other)))
        insist([{ path: 'resource', message: `is registered already, as ${other}` }]);
      // Two simultaneous commands may exceed it by one, which is harmless.
      if ((await resources.count({}, MAX_RESOURCES)) >= MAX_RESOURCES)
        insist([{ path: 'resource', message: `would be one of more than ${MAX_RESOURCES}` }]);
      const secret = newToken(random, 'rsec_');
      const now = clock.now();
      const { sensitive, scopes, admitsSelfRegistered, requiresDpop, algorithm, ...named } = input;
      const { admittedGroups: _, groupsClaim: __, ...rest } = named;
      const resource: ResourceDocument = {
        id: newId('res_', clock, random),
        identifier,
        ...rest,
        principalKinds: [...input.principalKinds],
        scopes: markedScopes(scopes, sensitive),
        ...(admitsSelfRegistered && { admitsSelfRegistered }),
        ...(requiresDpop && { requiresDpop }),
        ...(algorithm && { algorithms: [algorithm] }),
        ...(await readGroups(named)).set,
        secretHash: sha256(secret),
        createdAt: now,
        updatedAt: now,
      };
      const detail = JSON.stringify(auditedFields(resource));
      const added = await commit([
        resources.inserting(resource),
        audit.entry({ event: 'resource.added', subject: identifier, ...actorOf(source), detail }),
      ]).catch(nullIfTaken);
      if (!added) throw invalidFields({ path: 'resource', message: 'is registered already' });
      return { resource, secret };
    },

    /** Returns `null` if unknown. @throws VALIDATION_ERROR naming every problem */
    async update(
      identifier: string,
      input: Partial<ResourceInput>,
      source: RequestSource,
    ): Promise<ResourceDocument | null> {
      const { sensitive, scopes, principalKinds, admitsSelfRegistered, requiresDpop, ...others } = input;
      const { algorithm, ...named } = others;
      const { admittedGroups: _, groupsClaim: __, ...rest } = named;
      const chosen = await readGroups(named);
      return decideAndCommit(commit, async () => {
        const before = await find(identifier);
        if (!before) return { result: null };
        const described = scopes ?? before.scopes;
        insist(problemsOf(input, described));
        const marked = sensitive ?? before.scopes.filter((scope) => scope.sensitive).map(({ name }) => name);
        const set = {
          ...rest,
          ...(principalKinds && { principalKinds: [...principalKinds] }),
          scopes: markedScopes(described, marked),
          ...(admitsSelfRegistered && { admitsSelfRegistered }),
          ...(requiresDpop && { requiresDpop }),
          // Tokens that the former one has signed remain valid.
          ...(algorithm && {
            algorithms: [
              ...new Set([algorithm, ...(before.algorithms ?? ACCESS_TOKEN_ALGORITHMS.slice(0, 1))]),
            ],
          }),
          ...chosen.set,
          updatedAt: clock.now(),
        };
        const unset = [
          ...(admitsSelfRegistered === false ? (['admitsSelfRegistered'] as const) : []),
          ...(requiresDpop === false ? (['requiresDpop'] as const) : []),
          ...chosen.unset,
        ];
        const change = { set, ...(unset.length > 0 && { unset }), inc: { revision: 1 } };
        const updated = applyChange(before, change);
        const detail = changeDetail(auditedFields(before), auditedFields(updated));
        const parts = [
          resources.changing({ identifier, revision: before.revision ?? null }, change),
          audit.entry({ event: 'resource.updated', subject: identifier, ...actorOf(source), detail }),
        ];
        return { parts, result: updated };
      });
    },

    /** Declares or removes a kind of action that people approve. `null` if the resource is unknown. @throws VALIDATION_ERROR */
    changeApprovals: (
      identifier: string,
      change: { add: ApprovalType } | { remove: string },
      source: RequestSource,
    ): Promise<ResourceDocument | null> =>
      decideAndCommit(commit, async () => {
        const before = await find(identifier);
        if (!before) return { result: null };
        const { approvals: known = [], revision = null } = before;
        const approvals =
          'add' in change ? [...known, change.add] : known.filter(({ name }) => name !== change.remove);
        if ('remove' in change && approvals.length === known.length)
          insist([{ path: 'type', message: 'is no type of the resource' }]);
        insist(approvalProblems(approvals));
        const set = { updatedAt: clock.now() };
        const altered: Change<ResourceDocument> =
          approvals.length > 0 ? { set: { ...set, approvals } } : { set, unset: ['approvals'] };
        const updated = applyChange(before, { ...altered, inc: { revision: 1 } });
        const detail = changeDetail(auditedFields(before), auditedFields(updated));
        const parts = [
          resources.changing({ identifier, revision }, { ...altered, inc: { revision: 1 } }),
          audit.entry({ event: 'resource.updated', subject: identifier, ...actorOf(source), detail }),
        ];
        return { parts, result: updated };
      }),

    /**
     * Creates a new secret; the old one remains valid for a day, unless `atOnce`. `null` if the resource is unknown or is
     * rotated concurrently.
     */
    async rotate(
      identifier: string,
      { atOnce }: { atOnce: boolean },
      source: RequestSource,
    ): Promise<{ resource: ResourceDocument; secret: string } | null> {
      const before = await find(identifier);
      if (!before) return null;
      const secret = newToken(random, 'rsec_');
      const secretHash = sha256(secret);
      const { secretHash: previousSecretHash } = before;
      const change: Change<ResourceDocument> = atOnce
        ? { set: { secretHash }, unset: ['previousSecretHash', 'previousSecretUntil'] }
        : { set: { secretHash, previousSecretHash, previousSecretUntil: clock.now() + DAY } };
      const { committed } = await commit([
        resources.changing({ identifier, secretHash: previousSecretHash }, change),
        audit.entry({ event: 'resource.rotated', subject: identifier, ...actorOf(source) }),
      ]);
      return committed ? { resource: applyChange(before, change), secret } : null;
    },

    /** Removes it with its permissions. `null` if it is unknown. */
    remove: (identifier: string, source: RequestSource): Promise<ResourceDocument | null> =>
      decideAndCommit(commit, async () => {
        const found = await find(identifier);
        if (!found) return { result: null };
        const by = actorOf(source);
        const parts = [
          resources.deleting({ id: found.id }),
          ...(await permissions.leaving({ resourceId: found.id })),
          endResource(identifier, by),
          audit.entry({ event: 'resource.removed', subject: identifier, ...by }),
        ];
        return { parts, result: found };
      }),
  };
}

const markedScopes = (
  scopes: readonly Pick<ResourceScope, 'name' | 'description'>[],
  sensitive: readonly string[],
): ResourceScope[] =>
  scopes.map(({ name, description }) => ({
    name,
    description,
    ...(sensitive.includes(name) && { sensitive: true as const }),
  }));

function auditedFields({
  name,
  scopes,
  tokenLifetimeSeconds,
  principalKinds,
  admitsSelfRegistered,
  requiresDpop,
  admittedGroups = [],
  groupsClaim = 'none',
  algorithms: [algorithm] = ['EdDSA'],
  approvals = [],
}: ResourceDocument) {
  return {
    name,
    scopes: scopes.map((scope) => `${scope.name}=${scope.description}`).join(', '),
    sensitive: scopes.flatMap((scope) => (scope.sensitive ? [scope.name] : [])).join(' '),
    tokenLifetimeSeconds,
    principalKinds: principalKinds.join(' '),
    selfRegistered: admitsSelfRegistered === true ? 'yes' : (admitsSelfRegistered ?? 'no'),
    dpop: requiresDpop ? 'yes' : 'no',
    admittedGroups: admittedGroups.join(' '),
    groupsClaim,
    algorithm,
    ...(approvals.length > 0 && {
      approvals: approvals.map((type) => `${type.name}(${writtenFields(type)}): ${type.sentence}`).join('; '),
    }),
  };
}
