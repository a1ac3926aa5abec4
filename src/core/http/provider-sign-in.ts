import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Clock } from '../kernel/clock.js';
import { newId, newToken, type Random } from '../kernel/secrets.js';
import { CodeVerifier } from './schemas.js';

/** The parts that every sign-in at an external provider shares. */

/** The secrets of one sign-in, which only the browser that began it has. */
export interface SignInChecks {
  state: string;
  nonce: string;
  codeVerifier: string;
  /** Seconds since the person last signed in at the provider, if the sign-in has to be recent. */
  maxAge?: number;
}

/** The time, and 32 random bits. */
const ID_LENGTH = 20;

/** The ID names the cookie of the sign-in, and is the beginning of its `state`. IDs sort by the time of the beginning. */
export function newSignInChecks(clock: Clock, random: Random): { id: string; checks: SignInChecks } {
  const id = newId('', clock, random).slice(0, ID_LENGTH);
  const checks = {
    state: `${id}.${newToken(random)}`,
    nonce: newToken(random),
    codeVerifier: newToken(random),
  };
  return { id, checks };
}

/** The ID of the sign-in that a response belongs to. */
export const signInIdOf = (state = ''): string | undefined => /^([0-9a-f]{20})\.[\w-]{43}$/.exec(state)?.[1];

/** An absolute address of the application; null if it is of another one. */
export function returnAddressOf(
  returnTo: string,
  { publicUrl, origins }: { publicUrl: string; origins: readonly string[] },
): string | null {
  const url = URL.canParse(returnTo, publicUrl) ? new URL(returnTo, publicUrl) : null;
  const allowed = [new URL(publicUrl).origin, ...origins];
  if (!url || !allowed.includes(url.origin) || url.username || url.password || url.hash) return null;
  return url.href;
}

/** The address of a request as the provider was given it, with the query of the response. */
export function responseOf(request: FastifyRequest, callbackUrl: string): URL {
  const url = new URL(callbackUrl);
  const start = request.url.indexOf('?');
  url.search = start < 0 ? '' : request.url.slice(start);
  return url;
}

export const ReturnTo = Type.String({
  accepts: 'a path, or an address of your application',
  maxLength: 1000,
  pattern: '^(/|https?://)\\S*$',
});

/** What an application exchanges after the redirect. */
export const TicketBody = Type.Object(
  {
    ticket: Type.String({
      accepts: 'the ticket of the redirect',
      pattern: '^[\\w.-]{1,4096}$',
      writeOnly: true,
    }),
    codeVerifier: CodeVerifier,
  },
  { additionalProperties: false },
);
