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

export function createPingRequest(send: SendRequest): PostPing {
  return async (uri, { code, token }) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
    const body = JSON.stringify({ auth_req_id: code });
    const { status } = await send(uri, { method: 'POST', headers, body, maxBytes: 0 });
    return status;
  };
}

/**
 * Back-Channel Logout §2.5. Applications name the addresses themselves, so the request is an outbound one, which follows no
 * redirect. Of the response, only the status is read: it tells whether the application accepts the token.
 */
export function createLogoutRequest(send: SendRequest): PostLogoutToken {
  return async (uri, token) => {
    const body = new URLSearchParams({ logout_token: token }).toString();
    const { status } = await send(uri, {
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body,
      maxBytes: 0,
    });
    return status;
  };
}
