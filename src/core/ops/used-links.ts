/**
 * The last link that an account has used, stored by the commit of its use. A client whose request got no answer repeats it: until the link
 * would have expired, a repetition succeeds if what it asks for is stored, and changes nothing.
 */
export interface UsedLink {
  /** SHA-256 of the link. */
  hash: string;
  /** That of the link. */
  expiresAt: number;
}

/**
 * The used link, if it is this one and would still be valid.
 *
 * @param hash of the link of the request
 */
export function repeatedLink<T extends UsedLink>(
  usedLink: T | undefined,
  hash: string,
  now: number,
): T | undefined {
  return usedLink?.hash === hash && usedLink.expiresAt > now ? usedLink : undefined;
}
