import { accessOf } from '../../core/http/revocation-list.js';
import { decideAndCommit } from '../../core/ops/commit.js';
import type { ModuleContext } from '../../core/server/module-context.js';
import type { Write } from '../../core/storage/collection.js';
import { namesIn, type ResourceScopes } from './resources.js';
import type { Revocations } from './revocations/service.js';
import type { ConsentDocument, Consents } from './store.js';

/** What a user granted to a client. */
export interface Consent {
  scopes: readonly string[];
  resources: readonly ResourceScopes[];
  /** How often the user has revoked it, for the grants that are created under it. */
  revocations: number;
  /** Whether the client is one of the connected applications. */
  isConnected: boolean;
}

/** Nothing is allowed. */
export const NO_CONSENT: Consent = { scopes: [], resources: [], revocations: 0, isConnected: false };

/** An application that has access to the data of a user. */
export interface Connection {
  clientId: string;
  /** Empty if it needs no consent. */
  scopes: string[];
  resources: ResourceScopes[];
  updatedAt: number;
}

/** Stores which scopes users granted to clients, so that consent is requested once. */
export type ConsentService = ReturnType<typeof createConsentService>;

const MAX_LISTED = 100;

/** What a consent does not include. */
export interface MissingConsent {
  scopes: string[];
  /** With the new scopes only. */
  resources: ResourceScopes[];
}

export function missingIn(
  { scopes, resources }: Pick<Consent, 'scopes' | 'resources'>,
  scope: string,
  asked: readonly ResourceScopes[] = [],
): MissingConsent {
  return {
    scopes: namesIn(scope).filter((name) => !scopes.includes(name)),
    resources: asked.flatMap(({ resource, scopes: names }) => {
      const known = resources.find((one) => one.resource === resource);
      const missing = names.filter((name) => !known?.scopes.includes(name));
      return known && missing.length === 0 ? [] : [{ resource, scopes: missing }];
    }),
  };
}

/** Whether the consent includes all of these scopes. */
export function covers(consent: Consent, scope: string, asked?: readonly ResourceScopes[]): boolean {
  const { scopes, resources } = missingIn(consent, scope, asked);
  return scopes.length === 0 && resources.length === 0;
}

/** A consent after a write, which is absent if it is stored already. */
export interface PreparedConsent {
  consent: Consent;
  write: Write | undefined;
}

export function createConsentService({
  consents,
  revocations,
  commit,
  audit,
  clock,
}: Pick<ModuleContext, 'commit' | 'audit' | 'clock'> & { consents: Consents; revocations: Revocations }) {
  const read = async (id: string): Promise<Consent & { isStored: boolean }> => {
    const stored = await consents.findOne({ id });
    const { scopes = [], resources = [], revocations = 0 }: Partial<ConsentDocument> = stored ?? {};
    return {
      scopes,
      resources,
      revocations,
      isConnected: isConnected(stored ?? {}),
      isStored: stored !== null,
    };
  };

  /** Changes the consent, unless it has been revoked since it was read. Of two first ones, one is stored: missing scopes are requested again. */
  const change = (
    id: string,
    { revocations, isStored }: Awaited<ReturnType<typeof read>>,
    set: Partial<Pick<ConsentDocument, 'scopes' | 'resources' | 'connectedAt'>>,
  ): Write => {
    const changed = { ...set, updatedAt: clock.now() };
    return isStored
      ? consents.changing({ id, revocations: revocations || null }, { set: changed })
      : consents.ensuring({ id, scopes: [], ...changed });
  };

  return {
    find: (sub: string, clientId: string): Promise<Consent> => read(idOf(sub, clientId)),

    /** Adds the scopes to what the user granted to this client before. */
    remember: (
      sub: string,
      clientId: string,
      scope: string,
      asked: readonly ResourceScopes[] = [],
    ): Promise<Consent> =>
      decideAndCommit(commit, async () => {
        const id = idOf(sub, clientId);
        const known = await read(id);
        if (known.scopes.length + known.resources.length > 0 && covers(known, scope, asked))
          return { result: known };
        const scopes = [...new Set([...known.scopes, ...namesIn(scope)])];
        const resources = joined(known.resources, asked);
        // The last of two simultaneous writes wins. Missing scopes are requested again.
        const write = change(id, known, { scopes, ...(resources.length > 0 && { resources }) });
        return { parts: [write], result: { ...known, scopes, resources, isConnected: true } };
      }),

    /** Lists a client that gets tokens without consent among the connected applications, for the commit that issues them. */
    async connecting(sub: string, clientId: string): Promise<PreparedConsent> {
      const id = idOf(sub, clientId);
      const known = await read(id);
      if (known.isConnected) return { consent: known, write: undefined };
      const consent = { ...known, isConnected: true };
      return { consent, write: change(id, known, { connectedAt: clock.now() }) };
    },

    /** The connected applications of a user, up to a hundred. */
    async list(sub: string): Promise<Connection[]> {
      const { items } = await consents.page({ where: { id: allOf(sub) }, sort: 'id', limit: MAX_LISTED });
      return items.filter(isConnected).map(({ id, scopes, resources = [], updatedAt }) => {
        const { clientId } = partiesOf(id);
        return { clientId, scopes, resources, updatedAt };
      });
    },

    /** Revokes the consent and everything issued to the client for this user, if there is any. */
    revoke: (sub: string, clientId: string, ip: string): Promise<void> =>
      decideAndCommit(commit, async () => {
        const id = idOf(sub, clientId);
        const known = await read(id);
        if (!known.isConnected) return { result: undefined };
        const parts = [
          consents.changing(
            { id, revocations: known.revocations || null },
            {
              set: { scopes: [], updatedAt: clock.now() },
              unset: ['connectedAt', 'resources'],
              inc: { revocations: 1 },
            },
          ),
          await revocations.ending('access', accessOf(clientId, sub), known.revocations + 1),
          audit.entry({ event: 'consent.revoked', subject: sub, ip, detail: clientId }),
        ];
        return { parts, result: undefined };
      }),

    /** Removes everything about a user. */
    async forget(sub: string) {
      await consents.deleteMany({ id: allOf(sub) });
    },
  };
}

const isConnected = ({
  scopes = [],
  resources,
  connectedAt,
}: Partial<Pick<ConsentDocument, 'scopes' | 'resources' | 'connectedAt'>>) =>
  scopes.length > 0 || resources !== undefined || connectedAt !== undefined;

/** Both, each resource once with the scopes of both. */
const joined = (known: readonly ResourceScopes[], more: readonly ResourceScopes[]): ResourceScopes[] =>
  [...new Set([...known, ...more].map(({ resource }) => resource))].map((resource) => ({
    resource,
    scopes: [...new Set([...known, ...more].flatMap((one) => (one.resource === resource ? one.scopes : [])))],
  }));

const allOf = (sub: string) => ({ gte: idOf(sub, ''), lt: idOf(sub, '~') });

const idOf = (sub: string, clientId: string): string => `${sub} ${clientId}`;

/** The principal and the client of a consent. */
export function partiesOf(consentId: string): { sub: string; clientId: string } {
  const [sub = '', clientId = ''] = consentId.split(' ');
  return { sub, clientId };
}
