import type { Clock } from '../../core/kernel/clock.js';
import { newToken, type Random, sha256 } from '../../core/kernel/secrets.js';
import type { PrincipalCollection, PrincipalDocument } from './store.js';

/** A link with a token, of which only the hash is stored. */
export interface Link {
  /** Contains the id of the principal, to find it without an index; the 256 random bits after it are the secret. */
  token: string;
  /** SHA-256 of the token. */
  hash: string;
  expiresAt: number;
}

/** @param id of the principal */
export function newLink(
  id: string,
  lifetimeMs: number,
  { clock, random }: { clock: Clock; random: Random },
): Link {
  const token = newToken(random, id.slice('u_'.length));
  return { token, hash: sha256(token), expiresAt: clock.now() + lifetimeMs };
}

/** Whether the link of an invitation has expired, or was ended. */
export const hasExpiredLink = ({ linkExpiresAt = 0 }: PrincipalDocument, now: number): boolean =>
  linkExpiresAt <= now;

/** The page behind a link that sets a password. */
export const linkUrl = (issuer: string, { token }: Pick<Link, 'token'>): string =>
  `${issuer}/invite/${token}`;

/** The id of a principal in the token of a link. */
export function principalIdOf(token: string): string | undefined {
  const name = /^([0-9a-f]{32})[\w-]{43}$/.exec(token)?.[1];
  return name === undefined ? undefined : `u_${name}`;
}

/** Reads the nearest principal, so that an identifier without a principal takes as long as one with a principal. */
export async function findLinkOwner(
  principals: Pick<PrincipalCollection, 'page'>,
  token: string,
): Promise<PrincipalDocument | null> {
  const id = principalIdOf(token);
  if (id === undefined) return null;
  const query = { where: { id: { lte: id } }, sort: 'id', desc: true, limit: 1 } as const;
  const [nearest] = (await principals.page(query)).items;
  return nearest?.id === id ? nearest : null;
}
