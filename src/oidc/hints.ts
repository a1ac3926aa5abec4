import type { Keys } from './keys.js';

/** Whom an application means by an id_token that it was given, however long ago. */
export interface Hint {
  sub: string;
  clientId: string;
  sid?: string;
}

/** What an `id_token_hint` says, if it is one of ours. Expired ones are (RP-Initiated Logout §4). */
export type ReadHint = (idToken: string) => Promise<Hint | null>;

export function createHintReader(keys: Pick<Keys, 'verify'>, issuer: () => string): ReadHint {
  return async (idToken) => {
    const { iss, sub, aud, sid } = (await keys.verify(idToken)) ?? {};
    if (iss !== issuer() || typeof sub !== 'string' || typeof aud !== 'string') return null;
    return { sub, clientId: aud, ...(typeof sid === 'string' && { sid }) };
  };
}
