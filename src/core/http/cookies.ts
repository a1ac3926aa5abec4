import { parse, serialize } from 'cookie';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { SECOND } from '../kernel/clock.js';
import { createSealed, type SealOptions } from '../kernel/sealed.js';

/** A cookie for this host only. */
export type Cookie = ReturnType<typeof createCookie>;

/**
 * A cookie that browsers send with requests of the same site and when they follow a link (`SameSite=Lax`).
 *
 * @param publicUrl decides whether the cookie is for https only
 * @param httpOnly whether scripts cannot read it
 */
export function createCookie(plainName: string, publicUrl: () => string, httpOnly = true) {
  const isSecure = () => publicUrl().startsWith('https:');
  const name = () => fullName(plainName, isSecure());
  const attributes = () => ({ path: '/', httpOnly, sameSite: 'lax', secure: isSecure() }) as const;
  return {
    read: ({ headers }: Pick<FastifyRequest, 'headers'>): string | undefined =>
      parse(headers.cookie ?? '')[name()],
    /** @param maxAge seconds; absent: until the browser is closed */
    set(reply: FastifyReply, value: string, maxAge?: number) {
      const lifetime = maxAge === undefined ? {} : { maxAge };
      reply.header('set-cookie', serialize(name(), value, { ...attributes(), ...lifetime }));
    },
    clear(reply: FastifyReply) {
      const expired = { ...attributes(), maxAge: 0, expires: new Date(0) };
      reply.header('set-cookie', serialize(name(), '', expired));
    },
  };
}

/** As {@link createCookie}, with a second cookie that says to scripts only that there is the first one. */
export function createMarkedCookie(plainName: string, mark: string, publicUrl: () => string): Cookie {
  const cookie = createCookie(plainName, publicUrl);
  const marker = createCookie(mark, publicUrl, false);
  return {
    read: cookie.read,
    set(reply, value, maxAge) {
      cookie.set(reply, value, maxAge);
      marker.set(reply, '1', maxAge);
    },
    clear(reply) {
      cookie.clear(reply);
      marker.clear(reply);
    },
  };
}

/** A cookie for the state of what a browser has begun, which only this server reads and changes. */
export type SealedCookie<T extends object> = ReturnType<typeof createSealedCookie<T>>;

/** As {@link createCookie}; the name separates its purpose from those of other cookies. */
export function createSealedCookie<T extends object>(
  plainName: string,
  publicUrl: () => string,
  options: SealOptions,
) {
  const cookie = createCookie(plainName, publicUrl);
  const sealed = createSealed<T>(`cookie ${plainName}`, options);
  return {
    /** Null if there is none, or if it is forged or has expired. */
    read(request: Pick<FastifyRequest, 'headers'>): T | null {
      const text = cookie.read(request);
      return text === undefined ? null : sealed.open(text);
    },
    set: (reply: FastifyReply, state: T): void =>
      cookie.set(reply, sealed.seal(state), options.lifetimeMs / SECOND),
    clear: cookie.clear,
  };
}

/** With many cookies, servers would reject all requests of the browser. */
const MAX_COOKIES = 3;

/** Cookies of one purpose, of which a browser can have several. @param plainName begins the names, which end with the ID */
export function createCookieGroup(plainName: string, publicUrl: () => string) {
  const start = () => fullName(`${plainName}-`, publicUrl().startsWith('https:'));
  const of = (id: string): Cookie => createCookie(`${plainName}-${id}`, publicUrl);
  /** Those that the browser has, in the order of their IDs. */
  const idsIn = ({ headers }: Pick<FastifyRequest, 'headers'>): string[] =>
    Object.keys(parse(headers.cookie ?? ''))
      .filter((name) => name.startsWith(start()))
      .map((name) => name.slice(start().length))
      // A name with other characters could not be set.
      .filter((id) => /^[\w-]+$/.test(id))
      .sort();
  return {
    of,
    /** Sets a cookie and clears those with the lowest IDs, so that a browser has three. @param maxAge seconds */
    add(
      request: Pick<FastifyRequest, 'headers'>,
      reply: FastifyReply,
      { id, value, maxAge }: { id: string; value: string; maxAge: number },
    ) {
      for (const old of idsIn(request).slice(0, 1 - MAX_COOKIES)) of(old).clear(reply);
      of(id).set(reply, value, maxAge);
    },
  };
}

/** The prefix prevents other hosts of the domain from setting the cookie; browsers require https for it. */
const fullName = (plainName: string, isSecure: boolean): string =>
  isSecure ? `__Host-${plainName}` : plainName;
