import { isLoopback } from '../../core/config/public-url.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type ErrorDetail, invalidFields } from '../../core/kernel/errors.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { type CommitParts, decideAndCommit, type Effect } from '../../core/ops/commit.js';
import type { Change, Collection, Store, Where } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
import { applyChange } from '../../core/storage/semantics.js';
import { isIssuerUri, linkId, MAX_ISSUER_LENGTH } from './service.js';
import {
  type AllowedResource,
  type AudienceDocument,
  audienceCollection,
  type SubjectLinkDocument,
  subjectLinkCollection,
  type TrustedIssuerDocument,
  trustedIssuerCollection,
} from './store.js';

export interface TrustAdministrationDependencies {
  commit: CommitParts;
  audit: Pick<Audit, 'entry'>;
  clock: Clock;
  random: Random;
  /** This provider, which cannot be another one. */
  ownIssuer(): string;
  /** Whether issuers may use http on loopback addresses. */
  allowHttp: boolean;
  /** Whether the client is registered here, or names itself by an address. */
  isClient(id: string): Promise<boolean>;
  /** The scopes of a resource that is registered here; `null` for another one. */
  scopesOf(resource: string): Promise<readonly string[] | null>;
}

const MAX_ENTRIES = 100;

const MAX_SUBJECT_LENGTH = 255;

/** Changes which other providers are trusted. No server loads it: only the host's command line has it. */
export function createTrustAdministration(store: Store, deps: TrustAdministrationDependencies) {
  const { commit, audit, clock, random } = deps;
  const issuers = trustedIssuerCollection(store);
  const links = subjectLinkCollection(store);
  const audiences = audienceCollection(store);

  const problemsOf = async (
    issuer: string,
    clients: readonly string[],
    resources: readonly AllowedResource[],
  ): Promise<ErrorDetail[]> => {
    const unknown = await Promise.all(
      clients.map(async (id) => ((await deps.isClient(id)) ? [] : [`${id} is not registered`])),
    );
    const problems = {
      issuer: issuerProblem(issuer, deps),
      clients: clients.length === 0 ? 'must name at least one client' : unknown.flat()[0],
      resources:
        resources.length === 0 || resources.length > MAX_ENTRIES ? 'must name 1 to 100 resources' : undefined,
    };
    return Object.entries(problems).flatMap(([path, message]) => (message ? [{ path, message }] : []));
  };

  /** Of resources that this provider issues the access tokens for. */
  const ownProblem = async (resources: readonly AllowedResource[]): Promise<string | undefined> => {
    for (const { resource, scopes } of resources) {
      const offered = await deps.scopesOf(resource);
      if (offered === null) return `${resource} is not registered`;
      const unknown = scopes.find((scope) => !offered.includes(scope));
      if (unknown !== undefined) return `${resource} has no scope ${unknown}`;
    }
    return undefined;
  };

  /** Changes the document if there is one, else inserts it. */
  const save = <T extends { id: string }>(
    collection: Collection<T>,
    where: Where<T>,
    { added, change, record }: { added: T; change: Change<T>; record: Effect },
  ): Promise<T> =>
    decideAndCommit(commit, async () => {
      const found = await collection.findOne(where);
      const write = found ? collection.changing(where, change) : collection.inserting(added);
      return {
        parts: [write, record],
        result: found ? applyChange(found, change) : added,
        // Another command has added it in between.
        repeatIfTaken: true,
      };
    });

  /** Deletes the document; `null` if there is none. */
  const remove = async <T extends { id: string }>(
    collection: Collection<T>,
    found: T | null,
    record: Effect,
  ): Promise<T | null> => {
    const deletion = found && (await commit([collection.deleting({ id: found.id } as Where<T>), record]));
    return deletion?.committed ? found : null;
  };

  return {
    /** Trusts an issuer, or replaces what it is trusted for. @throws VALIDATION_ERROR naming every problem */
    async setIssuer(
      issuer: string,
      { clients, resources }: Pick<TrustedIssuerDocument, 'clients' | 'resources'>,
      source: RequestSource,
    ): Promise<TrustedIssuerDocument> {
      const problems = await problemsOf(issuer, clients, resources);
      const own = await ownProblem(resources);
      if (own !== undefined) problems.push({ path: 'resources', message: own });
      if (problems.length > 0) throw invalidFields(...problems);
      const now = clock.now();
      const set = { clients, resources, updatedAt: now };
      const added = { id: newId('ti_', clock, random), issuer, createdAt: now, ...set };
      const detail = detailOf(clients, resources);
      const record = { event: 'trusted_issuer.set', subject: issuer, ...actorOf(source), detail };
      return save(issuers, { issuer }, { added, change: { set }, record: audit.entry(record) });
    },

    listIssuers: (after?: string) => readPage(issuers, { sort: 'issuer', after }),

    /** With the links of its subjects. */
    async removeIssuer(issuer: string, source: RequestSource): Promise<TrustedIssuerDocument | null> {
      const found = isIssuerUri(issuer) ? await issuers.findOne({ issuer }) : null;
      if (!found) return null;
      // First: a command that is interrupted can be repeated as long as the issuer is trusted.
      await links.deleteMany({ issuer });
      const record = { event: 'trusted_issuer.removed', subject: issuer, ...actorOf(source) };
      return remove(issuers, found, audit.entry(record));
    },

    /** Says which person a subject of a trusted issuer is. `null` if the issuer is not trusted. @throws VALIDATION_ERROR */
    async link(
      issuer: string,
      subject: string,
      principal: string,
      source: RequestSource,
    ): Promise<SubjectLinkDocument | null> {
      if (subject === '' || subject.length > MAX_SUBJECT_LENGTH)
        throw invalidFields({
          path: 'subject',
          message: `must be 1 to ${MAX_SUBJECT_LENGTH} characters long`,
        });
      if (!isIssuerUri(issuer) || !(await issuers.findOne({ issuer }))) return null;
      const added = { id: linkId(issuer, subject), issuer, subject, principal, createdAt: clock.now() };
      const { id, ...set } = added;
      const record = { event: 'subject.linked', subject: principal, ...actorOf(source), detail: issuer };
      return save(links, { id }, { added, change: { set }, record: audit.entry(record) });
    },

    async unlink(issuer: string, subject: string, source: RequestSource) {
      const found = await links.findOne({ id: linkId(issuer, subject) });
      if (!found) return null;
      const by = actorOf(source);
      const record = { event: 'subject.unlinked', subject: found.principal, ...by, detail: issuer };
      return remove(links, found, audit.entry(record));
    },

    listLinks: (issuer: string, after?: string) => readPage(links, { where: { issuer }, sort: 'id', after }),

    /** Issues assertions for an authorization server, or replaces for what. @throws VALIDATION_ERROR naming every problem */
    async setAudience(
      issuer: string,
      { clients, resources, algorithm }: Pick<AudienceDocument, 'clients' | 'resources' | 'algorithm'>,
      source: RequestSource,
    ): Promise<AudienceDocument> {
      const problems = await problemsOf(
        issuer,
        clients.map(({ id }) => id),
        resources,
      );
      if (problems.length > 0) throw invalidFields(...problems);
      const now = clock.now();
      const set = { clients, resources, ...(algorithm && { algorithm }), updatedAt: now };
      const added = { id: newId('aud_', clock, random), issuer, createdAt: now, ...set };
      const change: Change<AudienceDocument> = algorithm ? { set } : { set, unset: ['algorithm'] };
      const detail = detailOf(
        clients.map((client) => `${client.id}=${client.idThere}`),
        resources,
      );
      const record = { event: 'audience.set', subject: issuer, ...actorOf(source), detail };
      return save(audiences, { issuer }, { added, change, record: audit.entry(record) });
    },

    listAudiences: (after?: string) => readPage(audiences, { sort: 'issuer', after }),

    async removeAudience(issuer: string, source: RequestSource): Promise<AudienceDocument | null> {
      const found = isIssuerUri(issuer) ? await audiences.findOne({ issuer }) : null;
      const record = { event: 'audience.removed', subject: issuer, ...actorOf(source) };
      return remove(audiences, found, audit.entry(record));
    },
  };
}

/** Why an issuer cannot be trusted, as the end of a sentence. */
export function issuerProblem(
  issuer: string,
  { allowHttp, ownIssuer }: Pick<TrustAdministrationDependencies, 'allowHttp' | 'ownIssuer'>,
): string | undefined {
  if (!isIssuerUri(issuer) || !URL.canParse(issuer))
    return `must be an absolute URI of at most ${MAX_ISSUER_LENGTH} characters without a query and a fragment`;
  const { protocol, hostname, username, password } = new URL(issuer);
  if (username || password) return 'must not contain a user name or password';
  if (issuer === ownIssuer()) return 'must be another provider';
  if (protocol === 'https:' || (allowHttp && isLoopback(hostname))) return undefined;
  return 'must be https';
}

const detailOf = (clients: readonly string[], resources: readonly AllowedResource[]): string =>
  [clients.join(' '), ...resources.map(({ resource, scopes }) => [resource, ...scopes].join(' '))].join('; ');
