import type { RequestSource } from '../../core/http/routes.js';
import { DAY } from '../../core/kernel/clock.js';
import type { Clients } from '../provisioning/clients.js';
import { registrationErrors } from './errors.js';
import { type AddressRules, AUTH_METHODS, type AuthMethod, readMetadata } from './metadata.js';
import type { RegistrationAnswer } from './schemas.js';
import type { RegistrationTokens } from './tokens.js';

/** Dynamic registration (RFC 7591). */
export type Registration = ReturnType<typeof createRegistration>;

export interface RegistrationDependencies {
  isOpen: boolean;
  tokens: RegistrationTokens;
  createClient: Clients['create'];
  rules: AddressRules;
}

/** Without a token: no secret, no key, and nothing that the provider would call. */
const OPEN = { methods: ['none'], defaultMethod: 'none' } as const;
const UNUSED_OPEN_MS = DAY;

const METHODS = { methods: AUTH_METHODS, defaultMethod: 'client_secret_basic' as AuthMethod };

export function createRegistration({ isOpen, tokens, createClient, rules }: RegistrationDependencies) {
  return {
    isOpen,

    /** The ID of a usable initial access token, else `null`. */
    async authorize(token: string | undefined): Promise<string | null> {
      return token === undefined ? null : ((await tokens.find(token))?.id ?? null);
    },

    /**
     * @param tokenId absent without a token, which only `isOpen` permits: the client is public then, whatever it states (RFC 7591 §3.2.1)
     * @throws invalid_redirect_uri, invalid_client_metadata, invalid_token
     */
    async register(
      tokenId: string | undefined,
      stated: Readonly<Record<string, unknown>>,
      source: RequestSource,
    ): Promise<RegistrationAnswer> {
      const { token_endpoint_auth_method: _, backchannel_logout_uri: __, ...open } = stated;
      const read =
        tokenId === undefined
          ? readMetadata(open, OPEN, { ...rules, redirectUri: rules.openRedirectUri })
          : readMetadata(stated, METHODS, rules);
      if ('field' in read) {
        const { field, message } = read;
        const error = field === 'redirect_uris' ? 'invalid_redirect_uri' : 'invalid_client_metadata';
        throw registrationErrors[error]({
          message: `${field} ${message}.`,
          details: [{ path: field, message }],
        });
      }
      const { method, jwks, ...client } = read;
      // Of concurrent registrations, as many as the token has uses left are made.
      const registered = await createClient(
        {
          ...client,
          jwks: jwks && { keys: jwks },
          isPublic: method === 'none',
          principalKinds: ['human'],
          origin: 'dynamic',
          ...(tokenId === undefined && { unusedLifetimeMs: UNUSED_OPEN_MS }),
        },
        { ...source, ...(tokenId !== undefined && { by: tokenId }) },
        tokenId === undefined ? [] : [tokens.using(tokenId)],
      );
      if (!registered) throw invalidToken();
      const { client: created, secret } = registered;
      return {
        client_id: created.id,
        client_id_issued_at: Math.floor(created.createdAt / 1000),
        ...(secret !== null && { client_secret: secret, client_secret_expires_at: 0 as const }),
        client_name: client.name,
        redirect_uris: client.redirectUris,
        post_logout_redirect_uris: client.postLogoutRedirectUris,
        token_endpoint_auth_method: method,
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        ...(jwks && { jwks: { keys: jwks } }),
        ...(client.jwksUri !== undefined && { jwks_uri: client.jwksUri }),
        id_token_signed_response_alg: client.idTokenAlg ?? 'EdDSA',
        ...(client.backchannelLogoutUri !== undefined && {
          backchannel_logout_uri: client.backchannelLogoutUri,
        }),
      };
    },
  };
}

export const invalidToken = () =>
  registrationErrors.invalid_token({
    headers: { 'www-authenticate': 'Bearer realm="idp-registration", error="invalid_token"' },
  });
