import { createHmac, createSecretKey, hkdfSync, type KeyObject, timingSafeEqual } from 'node:crypto';
import { type Clock, isUnexpired, MINUTE } from '../../../core/kernel/clock.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { Principal } from '../directory.js';
import type { Parameters } from './rules.js';

/**
 * The state of a sign-in or consent form, contained in the form itself: a request without credentials stores nothing.
 * The token is authenticated, expires, and is bound to the cookie of the browser that got the form.
 */
export type Interaction = (ClientInteraction | FirstPartyPage) & {
  /** The principal whose password was given, which a second factor has to follow. */
  proven?: Pick<Principal, 'id' | 'epoch'>;
};

/** A first-party sign-in: it ends at a page of the provider, and no application has requested it. */
export interface FirstPartyPage {
  /** The page, below the path of the issuer: `/admin/clients`. */
  returnTo: string;
  /** What the page belongs to, for its reader and for the audit. */
  name: 'the console' | 'the account page' | 'the device page' | 'the page of an approval';
}

/** A sign-in or consent that ends with a response to an application. */
export interface ClientInteraction {
  /** The authorization request's parameters, validated again when the form is submitted. */
  parameters: Parameters;
  /** The principal named by the client's `id_token_hint`; the hint itself is not contained. */
  hintedSub?: string;
  /** The session for which the consent page was rendered. */
  sid?: string;
  /** Of the consent when the page was rendered, which leaves out what the consent contains. */
  revocations?: number;
}

export type InteractionTokens = ReturnType<typeof createInteractionTokens>;

const LIFETIME_MS = 15 * MINUTE;

/**
 * Longest token of a form. A percent-encoded request of 8 KiB results in a shorter one, and a form of 16 KiB can
 * contain it together with the longest user name and password.
 */
export const MAX_TOKEN_LENGTH = 12 * 1024;

type Payload = Interaction & { expiresAt: number };

/**
 * @param seeds signing seeds in hexadecimal: the first authenticates, all verify, so that a form which is open during a
 * key rotation, or was issued by a process with the other key, stays valid
 */
export function createInteractionTokens(seeds: readonly [string, ...string[]], { clock }: { clock: Clock }) {
  const keys = seeds.map(deriveKey);
  const [current] = keys as [KeyObject, ...KeyObject[]];
  return {
    /** Issues the token of a form for the browser with this cookie. */
    issue(interaction: Interaction, cookie: string): string {
      const payload: Payload = { ...interaction, expiresAt: clock.now() + LIFETIME_MS };
      const encoded = Buffer.from(JSON.stringify(payload)).toString('base64url');
      return `${encoded}.${authenticate(current, encoded, cookie).toString('base64url')}`;
    },

    /** The interaction of a token, or `null` when it is invalid or bound to another cookie. An expired one can only begin again. */
    verify(token: string, cookie: string): { interaction: Interaction; isExpired: boolean } | null {
      const [encoded = '', tag = '', ...rest] = token.split('.');
      const presented = Buffer.from(tag, 'base64url');
      const isAuthentic = keys.some((key) => {
        const expected = authenticate(key, encoded, cookie);
        return presented.length === expected.length && timingSafeEqual(presented, expected);
      });
      if (!isAuthentic || rest.length > 0) return null;
      const { expiresAt, ...interaction } = JSON.parse(
        Buffer.from(encoded, 'base64url').toString(),
      ) as Payload;
      return { interaction, isExpired: !isUnexpired(expiresAt, { now: clock.now(), life: LIFETIME_MS }) };
    },
  };
}

/** A separate key, so that no other use of the seed can produce an interaction token (RFC 5869). */
function deriveKey(seed: string): KeyObject {
  const bytes = hkdfSync('sha256', Buffer.from(seed, 'hex'), '', 'idp interaction token', 32);
  return createSecretKey(Buffer.from(bytes));
}

function authenticate(key: KeyObject, encoded: string, cookie: string): Buffer {
  return createHmac('sha256', key)
    .update(`${encoded}.${sha256(cookie)}`)
    .digest();
}
