export { ConfigurationError } from './core/config/configuration-error.js';
export type { RequestHeaders } from './core/http/authorization.js';
export type { Identity } from './core/http/identity.js';
export type { Session, SubscriptionStatus, SubscriptionSummary, User } from './core/http/schemas.js';
// The star lets hosts add their types to the interface under the name of the package.
export type * from './core/http/user-metadata.js';
export { type Clock, systemClock } from './core/kernel/clock.js';
export { AppError } from './core/kernel/errors.js';
export type { Random } from './core/kernel/secrets.js';
export type { Middleware, MiddlewareServer, Server } from './core/server/assembly.js';
export { backup } from './core/server/backup.js';
export type { IdpDecorator } from './idp/decorator.js';
export type { IdentityProviderOptions } from './idp/options.js';
export { identityProvider } from './idp/plugin.js';
export { type CreateIdentityServerOptions, createIdentityServer } from './idp/server.js';
export type {
  CompletedLogin,
  LoginMethod,
  NewRegistration,
  RegistrationRejection,
  RequestSource,
  SaasHooks,
  TokenSubject,
} from './saas/auth/hooks.js';
export type { PageRequest } from './saas/auth/sessions/browser-sessions.js';
export type { OperatedSession } from './saas/auth/users/administration.js';
export type { UserFields, UserFieldsOf } from './saas/auth/users/fields.js';
export type { UserFilter, UserPage, UserPageQuery } from './saas/auth/users/user-lists.js';
export type { UserChange } from './saas/auth/users/user-update.js';
export type { ManagedUser, NewUser, UserKey } from './saas/auth/users/users.js';
export type { ConnectGuard, ConnectGuards, SaasRequest } from './saas/connect-guards.js';
export type { BillingApi, SaasDecorator, SettingsApi } from './saas/decorator.js';
export type { SaasEvents } from './saas/events.js';
export { createFetchHandler, type FetchHandler, type FetchHandlerOptions } from './saas/fetch-handler.js';
export type { SaasBackendOptions } from './saas/options.js';
export type { VisitorSession } from './saas/organizations.js';
export { saasBackend } from './saas/plugin.js';
export {
  type CreateServerOptions,
  createServer,
  type SaasMiddlewareServer,
  type SaasServer,
} from './saas/server.js';
export type { CustomSetting, CustomSettings, CustomSettingsValues } from './saas/settings/definitions.js';
export type { UserApi, UserSessionApi, UserSessionPage } from './saas/user-api.js';
export type { Visit, VisitHeaders, VisitInfo, VisitorSessions } from './server/backend.js';
