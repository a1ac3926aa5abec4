import { type PublicJwk, readJwkSet } from '../../core/kernel/public-jwk.js';

/** Client metadata as applications state it (RFC 7591 §2), in their own document or in a registration. */

/** What becomes of it. */
export interface StatedClient {
  name: string;
  redirectUris: string[];
  postLogoutRedirectUris: string[];
  method: AuthMethod;
  jwks?: PublicJwk[];
  jwksUri?: string;
  idTokenAlg?: 'ES256';
  backchannelLogoutUri?: string;
  /** Whether it states that it refreshes tokens, so that each sign-in gives it a refresh token. */
  refreshes?: true;
}

export const AUTH_METHODS = ['none', 'private_key_jwt', 'client_secret_basic', 'client_secret_post'] as const;

export type AuthMethod = (typeof AUTH_METHODS)[number];

/** The problems of addresses, as the end of a sentence; `null` for none. */
export interface AddressRules {
  redirectUri(uri: string): string | null;
  /** Of clients that register without a token. */
  openRedirectUri(uri: string): string | null;
  documentUri(uri: string): string | null;
  logoutUri(uri: string): string | null;
  /** The algorithms for which the provider has a key. */
  idTokenAlgorithms: readonly string[];
}

export interface MetadataProblem {
  field: string;
  message: string;
}

const MAX_URIS = 50;
const MAX_URI_LENGTH = 2048;
const MAX_NAME_LENGTH = 200;

export type Metadata = Readonly<Record<string, unknown>>;

/** Fields that are not listed are ignored (RFC 7591 §2). */
export function readMetadata(
  stated: Metadata,
  { methods, defaultMethod }: { methods: readonly AuthMethod[]; defaultMethod: AuthMethod },
  rules: AddressRules,
): StatedClient | MetadataProblem {
  const { client_name: name = '', token_endpoint_auth_method: method = defaultMethod } = stated;
  if (!isName(name))
    return { field: 'client_name', message: `must be at most ${MAX_NAME_LENGTH} printable characters` };
  const known = methods.find((one) => one === method);
  if (known === undefined)
    return { field: 'token_endpoint_auth_method', message: `must be one of ${methods.join(', ')}` };
  const redirectUris = readUris(stated['redirect_uris']);
  if (!redirectUris || redirectUris.length === 0)
    return { field: 'redirect_uris', message: 'must be a list of 1 to 50 URIs' };
  const postLogoutRedirectUris = readUris(stated['post_logout_redirect_uris'] ?? []);
  if (!postLogoutRedirectUris)
    return { field: 'post_logout_redirect_uris', message: 'must be a list of at most 50 URIs' };
  for (const [field, uris] of Object.entries({
    redirect_uris: redirectUris,
    post_logout_redirect_uris: postLogoutRedirectUris,
  })) {
    for (const uri of uris) {
      const message = rules.redirectUri(uri);
      if (message !== null) return { field, message };
    }
  }
  const problem =
    supports(stated, 'response_types', ['code']) ??
    supports(stated, 'grant_types', ['authorization_code', 'refresh_token']);
  if (problem) return problem;
  const keys = readKeys(stated, known, rules);
  if ('field' in keys) return keys;
  const { id_token_signed_response_alg: alg = 'EdDSA', backchannel_logout_uri: logoutUri } = stated;
  const { grant_types: grantTypes } = stated;
  if (!rules.idTokenAlgorithms.some((one) => one === alg))
    return {
      field: 'id_token_signed_response_alg',
      message: `must be one of ${rules.idTokenAlgorithms.join(', ')}`,
    };
  if (logoutUri !== undefined) {
    const message = isUri(logoutUri) ? rules.logoutUri(logoutUri) : 'must be an https address';
    if (message !== null) return { field: 'backchannel_logout_uri', message };
  }
  return {
    name,
    redirectUris,
    postLogoutRedirectUris,
    method: known,
    ...keys,
    ...(alg === 'ES256' && { idTokenAlg: 'ES256' as const }),
    ...(isUri(logoutUri) && { backchannelLogoutUri: logoutUri }),
    ...(Array.isArray(grantTypes) && grantTypes.includes('refresh_token') && { refreshes: true as const }),
  };
}

type Keys = Pick<StatedClient, 'jwks' | 'jwksUri'>;

function readKeys(stated: Metadata, method: AuthMethod, rules: AddressRules): Keys | MetadataProblem {
  const { jwks, jwks_uri: jwksUri } = stated;
  if (method !== 'private_key_jwt') return {};
  if ((jwks === undefined) === (jwksUri === undefined))
    return { field: 'jwks', message: 'or jwks_uri is required for private_key_jwt, but not both' };
  if (jwks === undefined) {
    const message = isUri(jwksUri) ? rules.documentUri(jwksUri) : 'must be an https address';
    return message === null && isUri(jwksUri) ? { jwksUri } : { field: 'jwks_uri', message: message ?? '' };
  }
  const read = readJwkSet(jwks, true);
  return 'keys' in read ? { jwks: read.keys } : { field: 'jwks', message: read.problem };
}

function supports(stated: Metadata, field: string, known: readonly string[]): MetadataProblem | null {
  const { [field]: values = known } = stated;
  const [required = ''] = known;
  const isSupported =
    Array.isArray(values) && values.every((value) => typeof value === 'string') && values.includes(required);
  return isSupported ? null : { field, message: `must be a list that contains ${required}` };
}

const isName = (text: unknown): text is string =>
  typeof text === 'string' && text.length <= MAX_NAME_LENGTH && !/[\p{C}\p{Zl}\p{Zp}]/u.test(text);

const isUri = (text: unknown): text is string =>
  typeof text === 'string' && text !== '' && text.length <= MAX_URI_LENGTH;

function readUris(value: unknown): string[] | null {
  return Array.isArray(value) && value.length <= MAX_URIS && value.every(isUri) ? value : null;
}
