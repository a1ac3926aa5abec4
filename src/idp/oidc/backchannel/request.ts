import type { SendRequest } from '../../../core/outbound/request.js';

/** Sends a logout token to an application. Resolves with the status of the response. @throws if there is none */
export type PostLogoutToken = (uri: string, token: string) => Promise<number>;

/** Applications name the addresses themselves, so the request is an outbound one; of the response only the status is read. */
/**
 * Back-Channel Logout §2.5. The status tells whether the application accepts the token; no redirect is followed.
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
