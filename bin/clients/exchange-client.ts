import { decodeProtectedHeader } from 'jose';
import { defineOptions } from '../../src/core/config/options.js';
import type { Clock } from '../../src/core/kernel/clock.js';
import { ACCESS_TOKEN, JWT } from '../../src/idp/oidc/delegations/actor.js';
import { DELEGATION_TOKEN } from '../../src/idp/oidc/delegations/exchange.js';
import { TOKEN_EXCHANGE } from '../../src/idp/oidc/tokens/request.js';
import {
  clientOptions,
  connect,
  type LoginTokens,
  type ProviderRequest,
  requestTokens,
  text,
} from './provider-client.js';

/** A client of token exchange (RFC 8693), with which an agent acts for a person. */

/** The options of `idp token exchange`. */
export const exchangeSchema = defineOptions({
  ...clientOptions,
  scope: text('IDP_LOGIN_SCOPE', 'Requested scopes.'),
  subjectToken: text('IDP_EXCHANGE_SUBJECT_TOKEN', 'The token to exchange.', true),
  actorToken: text('IDP_EXCHANGE_ACTOR_TOKEN', 'The proof of the agent.', true),
});

/** Short names of token types. */
export const TOKEN_TYPES: Readonly<Record<string, string>> = {
  access_token: ACCESS_TOKEN,
  jwt: JWT,
  delegation: DELEGATION_TOKEN,
};

export interface ExchangeOptions extends Omit<ProviderRequest, 'scope'> {
  scope?: string | undefined;
  subjectToken: string;
  /** By default, what the token looks like. */
  subjectTokenType?: string | undefined;
  actorToken: string;
  actorTokenType?: string | undefined;
}

/** With the next token of the delegation, if one was exchanged. @throws LoginFailed */
export async function exchangeToken(
  request: ExchangeOptions,
  { clock }: { clock: Clock },
): Promise<LoginTokens> {
  const { resource, scope, subjectToken, actorToken } = request;
  const fields = {
    subject_token: subjectToken,
    actor_token: actorToken,
    resource,
    scope,
    subject_token_type: request.subjectTokenType ?? typeOf(subjectToken),
    actor_token_type: request.actorTokenType ?? typeOf(actorToken),
  };
  return requestTokens(await connect(request), TOKEN_EXCHANGE, fields, { clock, scope: scope ?? '' });
}

/** Access tokens of idp are JWTs of their own type (RFC 9068); another JWT is an assertion. */
export function typeOf(token: string): string {
  if (token.startsWith('dt_')) return DELEGATION_TOKEN;
  try {
    return decodeProtectedHeader(token).typ === 'at+jwt' ? ACCESS_TOKEN : JWT;
  } catch {
    return ACCESS_TOKEN;
  }
}
