import type { SendRequest } from '../../../core/outbound/request.js';

/** Sends a logout token to an application. Resolves with the status of the response. @throws if there is none */
export type PostLogoutToken = (uri: string, token: string) => Promise<number>;

/** What an agent gets whose request was decided (CIBA §10.2): the code to poll with, and its own token. */
export interface Ping {
  code: string;
  token: string;
}

/** Sends it to an agent. The same as for applications. */
export type PostPing = (uri: string, ping: Ping) => Promise<number>;

/**
 * Clients name the addresses themselves, so the requests are outbound ones, which follow no redirect. Of the response, only the status
 * is read: it tells whether the client accepts what it got.
 */
const post = async (send: SendRequest, uri: string, headers: Record<string, string>, body: string) =>
  (await send(uri, { method: 'POST', headers, body, maxBytes: 0 })).status;

export const createPingRequest =
  (send: SendRequest): PostPing =>
  (uri, { code, token }) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
    return post(send, uri, headers, JSON.stringify({ auth_req_id: code }));
  };

/** Back-Channel Logout §2.5. */
export const createLogoutRequest =
  (send: SendRequest): PostLogoutToken =>
  (uri, token) => {
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    return post(send, uri, headers, new URLSearchParams({ logout_token: token }).toString());
  };
