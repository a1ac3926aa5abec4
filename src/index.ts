export type { NewUser } from './auth/new-users.js';
export type { Identity } from './auth/sessions.js';
export type { ManagedUser, UserKey } from './auth/users.js';
export { backup } from './backup.js';
export type { ConnectGuard, ConnectGuards, SaasRequest } from './connect-guards.js';
export { type IdpDecorator, identityProvider } from './idp.js';
export type { IdentityProviderOptions } from './idp-options.js';
export { type CreateIdentityServerOptions, createIdentityServer } from './idp-server.js';
export type { RequestHeaders } from './kernel/authorization.js';
export { type Clock, systemClock } from './kernel/clock.js';
export { ConfigurationError } from './kernel/configuration-error.js';
export { AppError } from './kernel/errors.js';
export type { Session, SubscriptionStatus, SubscriptionSummary, User } from './kernel/schemas.js';
export type { Random } from './kernel/secrets.js';
export { type SaasDecorator, type SaasEvents, saasBackend } from './saas.js';
export type { SaasBackendOptions } from './saas-options.js';
export {
  type CreateServerOptions,
  createServer,
  type SaasMiddlewareServer,
  type SaasServer,
} from './saas-server.js';
export type { UserApi } from './saas-users.js';
export type { Middleware, MiddlewareServer, Server } from './server-assembly.js';
