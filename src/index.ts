export type { OperatedSession } from './auth/administration.js';
export type {
  CompletedLogin,
  LoginMethod,
  NewRegistration,
  RegistrationRejection,
  RequestSource,
  SaasHooks,
  TokenSubject,
} from './auth/hooks.js';
export type { Identity } from './auth/sessions.js';
export type { UserFilter, UserPage, UserPageQuery } from './auth/user-lists.js';
export type { UserChange } from './auth/user-update.js';
export type { ManagedUser, NewUser, UserKey } from './auth/users.js';
export { ConfigurationError } from './config/configuration-error.js';
export type { RequestHeaders } from './http/authorization.js';
export type { Session, SubscriptionStatus, SubscriptionSummary, User } from './http/schemas.js';
// The star lets hosts add their types to the interface under the name of the package.
export type * from './http/user-metadata.js';
export type { IdentityProviderOptions } from './idp/documented-options.js';
export { type IdpDecorator, identityProvider } from './idp/plugin.js';
export { type CreateIdentityServerOptions, createIdentityServer } from './idp/server.js';
export { type Clock, systemClock } from './kernel/clock.js';
export { AppError } from './kernel/errors.js';
export type { Random } from './kernel/secrets.js';
export type { ConnectGuard, ConnectGuards, SaasRequest } from './saas/connect-guards.js';
export type { BillingApi, SaasDecorator, SaasEvents, SettingsApi } from './saas/decorator.js';
export type { SaasBackendOptions } from './saas/documented-options.js';
export { saasBackend } from './saas/plugin.js';
export {
  type CreateServerOptions,
  createServer,
  type SaasMiddlewareServer,
  type SaasServer,
} from './saas/server.js';
export type { UserApi, UserSessionApi, UserSessionPage } from './saas/user-api.js';
export type { Middleware, MiddlewareServer, Server } from './server/assembly.js';
export { backup } from './server/backup.js';
export type { CustomSetting, CustomSettings, CustomSettingsValues } from './settings/definitions.js';
