import { isLoopback } from '../../core/config/public-url.js';
import type { RequestSource } from '../../core/http/routes.js';
import type { Clock } from '../../core/kernel/clock.js';
import { type ErrorDetail, invalidFields } from '../../core/kernel/errors.js';
import { newId, type Random } from '../../core/kernel/secrets.js';
import { type Audit, actorOf } from '../../core/ops/audit.js';
import { nullIfTaken, type Store } from '../../core/storage/collection.js';
import { readPage } from '../../core/storage/pages.js';
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
  audit: Audit;
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
  const { audit, clock, random } = deps;
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
      const saved = await save(
        { id: newId('ti_', clock, random), issuer, createdAt: now, ...set },
        () => issuers.updateOne({ issuer }, { set }),
        issuers.insert,
      );
      await audit.record({
        event: 'trusted_issuer.set',
        subject: issuer,
        ...actorOf(source),
        detail: detailOf(clients, resources),
      });
      return saved;
    },

    listIssuers: (after?: string) => readPage(issuers, { sort: 'issuer', after }),

    /** With the links of its subjects. */
    async removeIssuer(issuer: string, source: RequestSource): Promise<TrustedIssuerDocument | null> {
      const removed = isIssuerUri(issuer) ? await issuers.deleteOne({ issuer }) : null;
      if (!removed) return null;
      await links.deleteMany({ issuer });
      await audit.record({ event: 'trusted_issuer.removed', subject: issuer, ...actorOf(source) });
      return removed;
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
      const link = { id: linkId(issuer, subject), issuer, subject, principal, createdAt: clock.now() };
      const isNew = (await links.insert(link).then(() => true, nullIfTaken)) !== null;
      const { id, ...set } = link;
      if (!isNew) await links.updateOne({ id }, { set });
      await audit.record({ event: 'subject.linked', subject: principal, ...actorOf(source), detail: issuer });
      return link;
    },

    async unlink(issuer: string, subject: string, source: RequestSource) {
      const removed = await links.deleteOne({ id: linkId(issuer, subject) });
      if (removed)
        await audit.record({
          event: 'subject.unlinked',
          subject: removed.principal,
          ...actorOf(source),
          detail: issuer,
        });
      return removed;
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
      const saved = await save(
        { id: newId('aud_', clock, random), issuer, createdAt: now, ...set },
        () => audiences.updateOne({ issuer }, algorithm ? { set } : { set, unset: ['algorithm'] }),
        audiences.insert,
      );
      const detail = detailOf(
        clients.map((client) => `${client.id}=${client.idThere}`),
        resources,
      );
      await audit.record({ event: 'audience.set', subject: issuer, ...actorOf(source), detail });
      return saved;
    },

    listAudiences: (after?: string) => readPage(audiences, { sort: 'issuer', after }),

    async removeAudience(issuer: string, source: RequestSource): Promise<AudienceDocument | null> {
      const removed = isIssuerUri(issuer) ? await audiences.deleteOne({ issuer }) : null;
      if (removed) await audit.record({ event: 'audience.removed', subject: issuer, ...actorOf(source) });
      return removed;
    },
  };
}

/** Updates the document if there is one, else inserts it. */
async function save<T>(
  document: T,
  update: () => Promise<T | null>,
  insert: (document: T) => Promise<void>,
): Promise<T> {
  for (;;) {
    const updated = await update();
    if (updated) return updated;
    // Another command may have inserted one in between.
    if ((await insert(document).then(() => true, nullIfTaken)) !== null) return document;
  }
}

function issuerProblem(
  issuer: string,
  { allowHttp, ownIssuer }: TrustAdministrationDependencies,
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
