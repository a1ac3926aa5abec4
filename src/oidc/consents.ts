import type { Clock } from '../kernel/clock.js';
import { nullIfTaken } from '../storage/collection.js';
import type { ConsentDocument, Consents } from './store.js';

/** What a user granted to a client. */
export interface Consent {
  scopes: readonly string[];
  /** How often the user has revoked it, for the grants that are created under it. */
  revocations: number;
  /** Whether the client is one of the connected applications. */
  isConnected: boolean;
}

/** An application that has access to the data of a user. */
export interface Connection {
  clientId: string;
  /** Empty if it needs no consent. */
  scopes: string[];
  updatedAt: number;
}

/** Stores which scopes users granted to clients, so that consent is requested once. */
export interface ConsentService {
  find(sub: string, clientId: string): Promise<Consent>;
  /** Adds the scopes to what the user granted to this client before. */
  remember(sub: string, clientId: string, scope: string): Promise<Consent>;
  /** Before a client receives a refresh token without consent: lists it among the connected applications. */
  connect(sub: string, clientId: string): Promise<Consent>;
  /** The connected applications of a user, up to a hundred. */
  list(sub: string): Promise<Connection[]>;
  /** Revokes the consent and everything issued to the client for this user. Returns whether there was access. */
  revoke(sub: string, clientId: string): Promise<boolean>;
  /** Removes everything about a user. */
  forget(sub: string): Promise<void>;
}

const MAX_LISTED = 100;

/** Whether the consent includes all of these scopes. */
export const covers = ({ scopes }: Consent, scope: string): boolean =>
  namesIn(scope).every((name) => scopes.includes(name));

export function createConsentService(consents: Consents, clock: Clock): ConsentService {
  const read = async (id: string): Promise<Consent> => {
    const { scopes = [], revocations = 0, connectedAt } = (await consents.findOne({ id })) ?? {};
    return { scopes, revocations, isConnected: isConnected({ scopes, connectedAt }) };
  };

  /** Changes the consent, unless it has been revoked since it was read. */
  const change = async (
    id: string,
    { revocations }: Consent,
    set: Partial<Pick<ConsentDocument, 'scopes' | 'connectedAt'>>,
  ): Promise<boolean> => {
    const changed = { ...set, updatedAt: clock.now() };
    if (await consents.updateOne({ id, revocations: revocations || null }, { set: changed })) return true;
    return (await consents.insert({ id, scopes: [], ...changed }).then(() => true, nullIfTaken)) ?? false;
  };

  return {
    find: (sub, clientId) => read(idOf(sub, clientId)),

    async remember(sub, clientId, scope) {
      const id = idOf(sub, clientId);
      for (;;) {
        const known = await read(id);
        if (known.scopes.length > 0 && covers(known, scope)) return known;
        const scopes = [...new Set([...known.scopes, ...namesIn(scope)])];
        // The last of two simultaneous writes wins. Missing scopes are requested again.
        if (await change(id, known, { scopes })) return { ...known, scopes, isConnected: true };
      }
    },

    async connect(sub, clientId) {
      const id = idOf(sub, clientId);
      for (;;) {
        const known = await read(id);
        if (known.isConnected) return known;
        if (await change(id, known, { connectedAt: clock.now() })) return { ...known, isConnected: true };
      }
    },

    async list(sub) {
      const { items } = await consents.page({ where: { id: allOf(sub) }, sort: 'id', limit: MAX_LISTED });
      return items
        .filter(isConnected)
        .map(({ id, scopes, updatedAt }) => ({ clientId: partiesOf(id).clientId, scopes, updatedAt }));
    },

    async revoke(sub, clientId) {
      if (!(await read(idOf(sub, clientId))).isConnected) return false;
      const revoked = await consents.updateOne(
        { id: idOf(sub, clientId) },
        {
          set: { scopes: [], updatedAt: clock.now() },
          unset: ['connectedAt'],
          inc: { revocations: 1 },
        },
      );
      return revoked !== null;
    },

    async forget(sub) {
      await consents.deleteMany({ id: allOf(sub) });
    },
  };
}

const isConnected = ({
  scopes,
  connectedAt,
}: Pick<ConsentDocument, 'scopes'> & { connectedAt?: number | undefined }) =>
  scopes.length > 0 || connectedAt !== undefined;

const allOf = (sub: string) => ({ gte: idOf(sub, ''), lt: idOf(sub, '~') });

const idOf = (sub: string, clientId: string): string => `${sub} ${clientId}`;

/** The principal and the client of a consent. */
export function partiesOf(consentId: string): { sub: string; clientId: string } {
  const [sub = '', clientId = ''] = consentId.split(' ');
  return { sub, clientId };
}

const namesIn = (scope: string): string[] => scope.split(' ').filter((name) => name !== '');
