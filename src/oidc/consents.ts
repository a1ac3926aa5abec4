import type { Clock } from '../kernel/clock.js';
import { UniqueViolation } from '../storage/collection.js';
import type { Consents } from './store.js';

/** Stores which scopes users granted to clients, so that consent is requested once. */
export interface ConsentService {
  /** Whether the user granted all of these scopes to this client before. */
  covers(sub: string, clientId: string, scope: string): Promise<boolean>;
  remember(sub: string, clientId: string, scope: string): Promise<void>;
  /** What a user granted, to whom and when, up to a hundred clients. */
  list(sub: string): Promise<{ clientId: string; scopes: string[]; updatedAt: number }[]>;
}

const MAX_LISTED = 100;

export function createConsentService(consents: Consents, clock: Clock): ConsentService {
  return {
    async covers(sub, clientId, scope) {
      const consent = await consents.findOne({ id: idOf(sub, clientId) });
      return consent !== null && namesIn(scope).every((name) => consent.scopes.includes(name));
    },

    async list(sub) {
      const where = { id: { gte: idOf(sub, ''), lt: idOf(sub, '~') } };
      const { items } = await consents.page({ where, sort: 'id', limit: MAX_LISTED });
      return items.map(({ id, ...consent }) => ({ ...consent, clientId: partiesOf(id).clientId }));
    },

    async remember(sub, clientId, scope) {
      const id = idOf(sub, clientId);
      const known = await consents.findOne({ id });
      const scopes = [...new Set([...(known?.scopes ?? []), ...namesIn(scope)])];
      if (scopes.length === known?.scopes.length) return;
      const consent = { scopes, updatedAt: clock.now() };
      if (await consents.updateOne({ id }, { set: consent })) return;
      await consents.insert({ id, ...consent }).catch(async (error: unknown) => {
        if (!(error instanceof UniqueViolation)) throw error;
        // The last of two simultaneous writes wins. Missing scopes are requested again.
        await consents.updateOne({ id }, { set: consent });
      });
    },
  };
}

const idOf = (sub: string, clientId: string): string => `${sub} ${clientId}`;

/** The principal and the client of a consent. */
export function partiesOf(consentId: string): { sub: string; clientId: string } {
  const [sub = '', clientId = ''] = consentId.split(' ');
  return { sub, clientId };
}

const namesIn = (scope: string): string[] => scope.split(' ').filter((name) => name !== '');
