/**
 * The names of identity assertions (draft-ietf-oauth-identity-assertion-authz-grant): a provider tells another authorization
 * server which person a client acts for.
 */

/** `typ` of the header. */
export const ASSERTION_TYPE = 'oauth-id-jag+jwt';

/** The type of the token that a token exchange issues. */
export const ASSERTION_TOKEN = 'urn:ietf:params:oauth:token-type:id-jag';

/** The grant type with which they are presented (RFC 7523 §2.1), and its profile in the metadata. */
export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';
export const ASSERTION_PROFILE = 'urn:ietf:params:oauth:grant-profile:id-jag';

/** The longest time between `iat` and `exp`. */
export const MAX_LIFETIME_SECONDS = 300;
