/** A client of saas-backend for browsers, Node.js and edge runtimes. */

export type { AuthMethods } from '../../generated/client/auth.js';
export type { BillingMethods } from '../../generated/client/billing.js';
export type { ErrorCode } from '../../generated/client/codes.js';
export type { ClientMethods } from '../../generated/client/operations.js';
export type { OrganizationsMethods } from '../../generated/client/organizations.js';
export type * from '../../generated/client/schemas.js';
export type { SettingsMethods } from '../../generated/client/settings.js';
export type { UserMethods } from '../../generated/client/user.js';
export { type ActiveSession, type ClientOptions, createClient, type SaasClient } from './client.js';
export {
  type FieldError,
  needsSecondFactor,
  SaasError,
  type SaasErrorCode,
  type SecondFactorError,
} from './errors.js';
export type { CallOptions, Fetch } from './exchange.js';
export type { LogoutScope, SessionChange, SessionEnd } from './session.js';
export type {
  ConnectedIdentity,
  PasskeyMethods,
  PasskeySignInOptions,
  ProviderSignInOptions,
  SignInMethods,
} from './sign-in.js';
export type { TokenStorage } from './storage.js';
