import * as oauth from 'oauth4webapi';
import { type IdpApp, ISSUER, type RegisteredClient } from './idp.js';

/** The `fetch` of libraries that call the provider, without a network. */
export const fetchOf =
  ({ request }: Pick<IdpApp, 'request'>) =>
  async (
    url: string | URL,
    init: { method?: string; headers?: unknown; body?: unknown } = {},
  ): Promise<Response> => {
    const { pathname, search } = new URL(url);
    const answer = await request(init.method ?? 'GET', pathname + search, {
      headers: Object.fromEntries(new Headers(init.headers as Record<string, string>)),
      ...(init.body != null && { form: String(init.body) }),
    });
    const { 'content-length': _, ...headers } = answer.headers as Record<string, string>;
    return new Response(answer.text, { status: answer.status, headers });
  };

/** How far the clock of the provider is ahead of the real one, in seconds. */
export const skewOf = ({ clock }: Pick<IdpApp, 'clock'>): number =>
  Math.floor((clock.now() - Date.now()) / 1000);

/** The provider and a client of it in the words of oauth4webapi, with a key for DPoP. */
export async function forOauth4webapi(idp: IdpApp, { id, secret }: RegisteredClient) {
  const http = { [oauth.customFetch]: fetchOf(idp) as never };
  const issuer = new URL(ISSUER);
  const own: oauth.Client = { client_id: id, [oauth.clockSkew]: skewOf(idp) };
  return {
    as: await oauth.processDiscoveryResponse(issuer, await oauth.discoveryRequest(issuer, http)),
    own,
    method: secret === undefined ? oauth.None() : oauth.ClientSecretBasic(secret),
    bound: { ...http, DPoP: oauth.DPoP(own, await oauth.generateKeyPair('ES256')) },
  };
}

/** Sends a request with a proof again if the provider demands a nonce, which oauth4webapi leaves to its caller. */
export const withNonce = <T>(send: () => Promise<T>): Promise<T> =>
  send().catch((error: unknown) => {
    if (!oauth.isDPoPNonceError(error)) throw error;
    return send();
  });
