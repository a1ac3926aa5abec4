/**
 * The names of identity assertions (draft-ietf-oauth-identity-assertion-authz-grant): a provider tells another authorization
 * server which person a client acts for. Discovery and the table of grants need them without the code that issues or
 * verifies assertions, which is loaded when it is configured.
 */

/** `typ` of the header. */
export const ASSERTION_TYPE = 'oauth-id-jag+jwt';

/** The type of the token that a token exchange issues. */
export const ASSERTION_TOKEN = 'urn:ietf:params:oauth:token-type:id-jag';

/** The grant type with which they are presented (RFC 7523 §2.1). */
export const JWT_BEARER = 'urn:ietf:params:oauth:grant-type:jwt-bearer';

/** The profile of that grant, by which the metadata of a server say that it accepts them. */
export const ASSERTION_PROFILE = 'urn:ietf:params:oauth:grant-profile:id-jag';

/** The longest time between `iat` and `exp`, in seconds. */
export const MAX_LIFETIME_SECONDS = 300;
