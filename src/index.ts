export { backup } from './backup.js';
export { type IdpDecorator, identityProvider } from './idp.js';
export type { IdentityProviderOptions } from './idp-options.js';
export { type Clock, systemClock } from './kernel/clock.js';
export { ConfigurationError } from './kernel/configuration-error.js';
export { AppError } from './kernel/errors.js';
export type { Session, User } from './kernel/schemas.js';
export type { Random } from './kernel/secrets.js';
export { type SaasDecorator, saasBackend } from './saas.js';
export type { SaasBackendOptions } from './saas-options.js';
export {
  type CreateIdentityServerOptions,
  type CreateServerOptions,
  createIdentityServer,
  createServer,
} from './server.js';
export type { Middleware, MiddlewareServer, Server } from './server-assembly.js';
