/** A byte order mark is part of the user name, so that two headers never name the same user. */
const UTF_8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses an `Authorization: Basic` header (RFC 7617) in UTF-8; `null` if it is invalid or a part is empty. */
export function parseBasic(authorization: string): { username: string; password: string } | null {
  const encoded = /^basic +([A-Za-z0-9+/]+={0,2}) *$/i.exec(authorization)?.[1];
  if (encoded === undefined) return null;
  let text: string;
  try {
    text = UTF_8.decode(Buffer.from(encoded, 'base64'));
  } catch {
    return null;
  }
  const colon = text.indexOf(':');
  if (colon < 1 || colon === text.length - 1 || /\p{Cc}/u.test(text)) return null;
  return { username: text.slice(0, colon), password: text.slice(colon + 1) };
}

/** The token of an `Authorization: Bearer` header (RFC 6750 §2.1). */
export function parseBearer(authorization: string | undefined): string | undefined {
  return /^bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
}

/** The token of an `Authorization: DPoP` header (RFC 9449 §7.1). */
export function parseDpop(authorization: string | undefined): string | undefined {
  return /^dpop +(\S+) *$/i.exec(authorization ?? '')?.[1];
}

/** Request headers of Node or of `fetch`. */
export type RequestHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined };

/** The Authorization header. Its name is matched in any case, because some frameworks keep names as they were sent. */
export function authorizationIn(headers: RequestHeaders): string | undefined {
  if (typeof headers.get === 'function') return headers.get('authorization') ?? undefined;
  const found = Object.entries(headers).find(([name]) => name.toLowerCase() === 'authorization');
  return typeof found?.[1] === 'string' ? found[1] : undefined;
}

/** Where the metadata of a resource is (RFC 9728 §3.1): its path follows the well-known one. */
export function metadataPath(resource: string): string {
  const { pathname } = new URL(resource);
  return `/.well-known/oauth-protected-resource${pathname === '/' ? '' : pathname}`;
}
