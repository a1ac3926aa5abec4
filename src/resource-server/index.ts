/** `saas-backend/resource-server`: for APIs that accept the access tokens of an identity provider. */
export type { ReplayCache } from '../core/http/dpop.js';
export type { AccessToken, ApprovalDetails } from './access-token.js';
export { ResourceError, type ResourceErrorCode } from './errors.js';
export type { TrustedIssuer } from './issuer.js';
export {
  type ExpressApplication,
  type ExpressHandler,
  type ExpressRequest,
  type McpCall,
  type McpToolDemands,
  type ProtectMcpOptions,
  protectMcp,
} from './mcp.js';
export type { ResourceMetadata } from './metadata.js';
export { type ProtectedResourceDecorator, type ProtectResourceOptions, protectResource } from './plugin.js';
export {
  type Approved,
  createResourceServer,
  type ProtectedRequest,
  type ResourceServer,
  type ResourceServerOptions,
  type TokenDemands,
} from './service.js';
