import { oidcErrors } from '../errors.js';

/** The beginning of the `request_uri` of a pushed request (RFC 9126 §2.2). */
export const REQUEST_URI = 'urn:ietf:params:oauth:request_uri:';

/** A request of which the browser knows the name only (RFC 9126). */
export interface PushedRequest {
  requestUri: string;
  pushedAt: number;
  /** The form that the person has chosen with a link. */
  page?: FormChoice | undefined;
  /** Whether it belongs to a form, which may be submitted twice. */
  isForm?: true;
}

export type FormChoice = 'sign-in' | 'sign-up';

/** The error for a pushed request that is opened again after its code was issued. */
export const wasUsed = () =>
  oidcErrors.invalid_request({ message: 'request_uri was used: a code has been issued for it.' });
