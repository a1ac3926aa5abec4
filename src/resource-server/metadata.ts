import { metadataPath } from '../core/http/authorization.js';
import { DPOP_ALGORITHMS } from '../core/http/dpop.js';

/** The description of a protected resource (RFC 9728), with which clients find its authorization server. */

export interface ResourceMetadata {
  /** The identifier of the API. */
  resource: string;
  /** Who issues its access tokens: issuers that have metadata. */
  authorization_servers?: string[];
  /** Where requests have the token. */
  bearer_methods_supported: ['header'];
  /** What the tokens can permit. */
  scopes_supported?: string[];
  /** For people. */
  resource_name?: string;
  /** The address of a page for developers. */
  resource_documentation?: string;
  /** The algorithms of proofs (RFC 9449). */
  dpop_signing_alg_values_supported: string[];
  /** Present if every token needs a proof. */
  dpop_bound_access_tokens_required?: true;
}

export interface DescribedResource {
  /** The identifier of the API: the `aud` of its access tokens, as the identity provider has registered it. */
  resource: string;
  /** The scopes that the API knows. */
  scopes?: readonly string[];
  /** Shown to people. */
  name?: string;
  /** The address of a page about the API for developers. */
  documentation?: string;
}

export function metadataOf(
  { resource, scopes, name, documentation }: DescribedResource,
  { issuers, isDpopRequired }: { issuers: readonly string[]; isDpopRequired: boolean },
): ResourceMetadata {
  return {
    resource,
    ...(issuers.length > 0 && { authorization_servers: [...issuers] }),
    bearer_methods_supported: ['header'],
    ...(scopes && { scopes_supported: [...scopes] }),
    ...(name !== undefined && { resource_name: name }),
    ...(documentation !== undefined && { resource_documentation: documentation }),
    dpop_signing_alg_values_supported: [...DPOP_ALGORITHMS],
    ...(isDpopRequired && { dpop_bound_access_tokens_required: true }),
  };
}

/** Clients in pages of any origin read the metadata before they sign in, and keep them for five minutes. */
export const METADATA_HEADERS = {
  'access-control-allow-origin': '*',
  'cache-control': 'public, max-age=300',
} as const;

export const metadataUrl = (resource: string): string => new URL(resource).origin + metadataPath(resource);
