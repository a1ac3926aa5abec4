/** A client of saas-backend for browsers, Node.js and edge runtimes. */
export { type ClientOptions, createClient, type SaasClient } from './client.js';
export { type FieldError, SaasError, type SaasErrorCode } from './errors.js';
export type { CallOptions, Fetch } from './exchange.js';
export type * from './generated/auth.js';
export type * from './generated/billing.js';
export type { ErrorCode } from './generated/codes.js';
export type { ClientMethods } from './generated/operations.js';
export type * from './generated/schemas.js';
export type * from './generated/settings.js';
export type * from './generated/user.js';
export type { LogoutScope, SessionEnd } from './session.js';
export type { TokenStorage } from './storage.js';
