import { accessOf } from '../../core/http/revocation-list.js';
import type { Clock } from '../../core/kernel/clock.js';
import { nullIfTaken } from '../../core/storage/collection.js';
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

/** @param endAccess runs a revocation, after which tokens of the earlier generation of an access are refused everywhere */
export function createConsentService(
  consents: Consents,
  clock: Clock,
  endAccess: Revocations['endAccess'] = (_access, _generation, change) => change(),
) {
  const read = async (id: string): Promise<Consent> => {
    const stored: Partial<ConsentDocument> = (await consents.findOne({ id })) ?? {};
    const { scopes = [], resources = [], revocations = 0 } = stored;
    return { scopes, resources, revocations, isConnected: isConnected(stored) };
  };

  /** Changes the consent, unless it has been revoked since it was read. */
  const change = async (
    id: string,
    { revocations }: Consent,
    set: Partial<Pick<ConsentDocument, 'scopes' | 'resources' | 'connectedAt'>>,
  ): Promise<boolean> => {
    const changed = { ...set, updatedAt: clock.now() };
    if (await consents.updateOne({ id, revocations: revocations || null }, { set: changed })) return true;
    return (await consents.insert({ id, scopes: [], ...changed }).then(() => true, nullIfTaken)) ?? false;
  };

  return {
    find: (sub: string, clientId: string): Promise<Consent> => read(idOf(sub, clientId)),

    /** Adds the scopes to what the user granted to this client before. */
    async remember(
      sub: string,
      clientId: string,
      scope: string,
      asked?: readonly ResourceScopes[],
    ): Promise<Consent> {
      const id = idOf(sub, clientId);
      for (;;) {
        const known = await read(id);
        if (known.scopes.length + known.resources.length > 0 && covers(known, scope, asked)) return known;
        const scopes = [...new Set([...known.scopes, ...namesIn(scope)])];
        const resources = joined(known.resources, asked ?? []);
        const set = { scopes, ...(resources.length > 0 && { resources }) };
        // The last of two simultaneous writes wins. Missing scopes are requested again.
        if (await change(id, known, set)) return { ...known, scopes, resources, isConnected: true };
      }
    },

    /** Before a client receives a refresh token without consent: lists it among the connected applications. */
    async connect(sub: string, clientId: string): Promise<Consent> {
      const id = idOf(sub, clientId);
      for (;;) {
        const known = await read(id);
        if (known.isConnected) return known;
        if (await change(id, known, { connectedAt: clock.now() })) return { ...known, isConnected: true };
      }
    },

    /** The connected applications of a user, up to a hundred. */
    async list(sub: string): Promise<Connection[]> {
      const { items } = await consents.page({ where: { id: allOf(sub) }, sort: 'id', limit: MAX_LISTED });
      return items.filter(isConnected).map(({ id, scopes, resources = [], updatedAt }) => {
        const { clientId } = partiesOf(id);
        return { clientId, scopes, resources, updatedAt };
      });
    },

    /** Revokes the consent and everything issued to the client for this user. Returns whether there was access. */
    async revoke(sub: string, clientId: string): Promise<boolean> {
      const { isConnected, revocations } = await read(idOf(sub, clientId));
      if (!isConnected) return false;
      const revoked = await endAccess(accessOf(clientId, sub), revocations + 1, () =>
        consents.updateOne(
          { id: idOf(sub, clientId) },
          {
            set: { scopes: [], updatedAt: clock.now() },
            unset: ['connectedAt', 'resources'],
            inc: { revocations: 1 },
          },
        ),
      );
      return revoked !== null;
    },

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
