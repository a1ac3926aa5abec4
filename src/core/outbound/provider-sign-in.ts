import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, Type } from 'typebox';
import { withQuery } from '../config/public-url.js';
import { type Cookie, createCookieGroup } from '../http/cookies.js';
import { CodeVerifier } from '../http/schemas.js';
import { type Clock, MINUTE, SECOND } from '../kernel/clock.js';
import type { AppError } from '../kernel/errors.js';
import { createSealed } from '../kernel/sealed.js';
import { newId, newToken, type Random, sha256 } from '../kernel/secrets.js';
import type { SingleUse } from '../ops/single-use.js';

/**
 * What every sign-in at an external provider shares: what has begun is in a cookie of the browser, and the application that has begun
 * it gets a ticket, which only it can use, and once.
 */

/** The secrets of one sign-in, which only the browser that began it has. */
export interface SignInChecks {
  state: string;
  nonce: string;
  codeVerifier: string;
  /** Seconds since the person last signed in at the provider, if the sign-in has to be recent. */
  maxAge?: number;
}

interface Destination {
  /** Where the browser returns, an absolute address. */
  returnTo: string;
  codeChallenge: string;
}

/** Errors of a product that signs people in at providers. */
export type SignInErrors = Record<'LOGIN_EXPIRED' | 'RETURN_NOT_ALLOWED' | 'INVALID_TICKET', () => AppError>;

/** Also enough to sign in to an existing account before the one of the provider is connected to it. */
const LIFETIME_MS = 10 * MINUTE;

/** The time, and 32 random bits. */
const ID_LENGTH = 20;

export interface ProviderSignInOptions {
  /** Separates sign-ins of one kind from others. */
  purpose: string;
  /** The secrets that encrypt what the browser keeps, the current one first. */
  secrets: readonly string[];
  /** Remembers the tickets that were used. */
  singleUse: SingleUse;
  publicUrl(): string;
  /** The origins of applications, beside that of the public address. */
  origins: readonly string[];
  errors: SignInErrors;
  clock: Clock;
  random: Random;
}

/** `Begun` is what the callback has to know of a sign-in, and `Proven` what a ticket says. */
export function createProviderSignIns<Begun extends object, Proven extends object>({
  purpose,
  secrets: keys,
  singleUse,
  publicUrl,
  origins,
  errors,
  clock,
  random,
}: ProviderSignInOptions) {
  const sealing = { keys, lifetimeMs: LIFETIME_MS, clock, random };
  const begun = createSealed<Begun & SignInChecks & Destination>(`begun ${purpose}`, sealing);
  const tickets = createSealed<Proven & { id: string; codeChallenge: string }>(
    `single-use tickets of ${purpose}`,
    sealing,
  );

  return {
    /**
     * The ID names the cookie of the sign-in, and is the beginning of its `state`. IDs sort by the time of the beginning.
     * @throws RETURN_NOT_ALLOWED
     */
    begin({ returnTo: given, codeChallenge }: Destination, more: Begun) {
      const returnTo = returnAddressOf(given, { publicUrl: publicUrl(), origins });
      if (returnTo === null) throw errors.RETURN_NOT_ALLOWED();
      const id = newId('', clock, random).slice(0, ID_LENGTH);
      const checks = {
        state: `${id}.${newToken(random)}`,
        nonce: newToken(random),
        codeVerifier: newToken(random),
      };
      const pending = { ...checks, ...more, returnTo, codeChallenge };
      return { id, pending, cookie: begun.seal(pending) };
    },

    /** The sign-in that a response belongs to. @throws LOGIN_EXPIRED */
    open(response: URL, cookie: string | undefined) {
      const pending = cookie === undefined ? null : begun.open(cookie);
      if (!pending || pending.state !== response.searchParams.get('state')) throw errors.LOGIN_EXPIRED();
      return pending;
    },

    /** Where to send the browser after a response: to the application, with a ticket or an error. */
    addressAfter(
      response: URL,
      { returnTo, codeChallenge }: Destination,
      { proven, failure }: { proven: Proven | null; failure: string },
    ): string {
      if (!proven) {
        const isRefused = response.searchParams.get('error') === 'access_denied';
        return withQuery(returnTo, `error=${isRefused ? 'access_denied' : failure}`);
      }
      const ticket = { ...proven, id: newId('ticket-', clock, random), codeChallenge };
      return withQuery(returnTo, `ticket=${tickets.seal(ticket)}`);
    },

    /** Uses a ticket once. @param keepsUse as in `SingleUse.run` @throws INVALID_TICKET */
    async redeem<T>(
      { ticket: text, codeVerifier }: Redemption,
      use: (proven: Proven) => Promise<T>,
      keepsUse?: (error: unknown) => boolean,
    ): Promise<T> {
      const ticket = tickets.open(text);
      if (!ticket || sha256(codeVerifier) !== ticket.codeChallenge) throw errors.INVALID_TICKET();
      const once = { id: ticket.id, expiresAt: clock.now() + LIFETIME_MS };
      const used = await singleUse.run(once, () => use(ticket), keepsUse);
      if (used === null) throw errors.INVALID_TICKET();
      return used;
    },
  };
}

/** The cookies of sign-ins, one for each, so that several can be open. Sent with the redirect from the provider. */
export function createSignInCookies(plainName: string, publicUrl: () => string) {
  const cookies = createCookieGroup(plainName, publicUrl);
  return {
    add(request: FastifyRequest, reply: FastifyReply, { id, cookie }: { id: string; cookie: string }) {
      cookies.add(request, reply, { id, value: cookie, maxAge: LIFETIME_MS / SECOND });
    },
    /** The cookie of the sign-in that a response belongs to. */
    of({ searchParams }: URL): Cookie | undefined {
      const id = /^([0-9a-f]{20})\.[\w-]{43}$/.exec(searchParams.get('state') ?? '')?.[1];
      return id === undefined ? undefined : cookies.of(id);
    },
  };
}

/** An absolute address of the application; null if it is of another one. */
function returnAddressOf(
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
export type Redemption = Static<typeof TicketBody>;
