import type { Client } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { GrantDocument } from '../store.js';
import type { AgentClient } from '../tokens/agents.js';
import type { TokenDependencies, TokenResponse } from '../tokens/issuance.js';
import type { TokenRequest } from '../tokens/key-binding.js';
import { refreshTokens } from '../tokens/refresh.js';
import { ACCESS_TOKEN, JWT, proveDelegate } from './actor.js';
import { chainDelegation } from './chain.js';
import { traceOf } from './store.js';

/** Token exchange (RFC 8693): access tokens with which an agent acts for a person. Loaded with the first request. */

export interface ExchangeRequest extends TokenRequest {
  subjectToken: string | undefined;
  subjectTokenType: string | undefined;
  actorToken: string | undefined;
  actorTokenType: string | undefined;
  requestedTokenType: string | undefined;
  /** Another name for the resource. */
  audience: string | undefined;
}

/** The type of the token of a delegation, of which only its client and this provider know the format. */
export const DELEGATION_TOKEN = 'urn:saas-backend:token-type:delegation';

/** @throws invalid_request, invalid_grant, invalid_scope, invalid_target, unauthorized_client */
export async function exchangeTokens(
  client: Client | AgentClient,
  request: ExchangeRequest,
  ip: string,
  deps: TokenDependencies,
): Promise<TokenResponse> {
  const { subjectToken: token, subjectTokenType: type, requestedTokenType, audience } = request;
  if (!token) throw oidcErrors.invalid_request({ message: 'subject_token is missing.' });
  if (requestedTokenType !== undefined && ![ACCESS_TOKEN, JWT].includes(requestedTokenType))
    throw oidcErrors.invalid_request({
      message: `requested_token_type must be ${ACCESS_TOKEN} or ${JWT}.`,
    });
  if (audience !== undefined && !request.resources?.includes(audience))
    throw oidcErrors.invalid_target({ message: 'Name the resource with the parameter resource.' });
  const issued = { issued_token_type: requestedTokenType ?? ACCESS_TOKEN };
  if (type === ACCESS_TOKEN || type === JWT)
    return { ...(await chainDelegation(client, token, request, ip, deps)), ...issued };
  if (type !== DELEGATION_TOKEN)
    throw oidcErrors.invalid_request({
      message: `subject_token_type must be ${DELEGATION_TOKEN}, ${ACCESS_TOKEN} or ${JWT}.`,
    });
  if ('principal' in client)
    throw oidcErrors.unauthorized_client({
      message: 'The token of a delegation is used by the client that it was issued to.',
    });
  return {
    ...(await exchangeDelegationToken(client, { ...request, subjectToken: token }, ip, deps)),
    ...issued,
  };
}

/** The token of a delegation rotates as refresh tokens do, with the same answer to a repetition. */
async function exchangeDelegationToken(
  client: Client,
  request: ExchangeRequest & { subjectToken: string },
  ip: string,
  deps: TokenDependencies,
): Promise<TokenResponse> {
  const { subjectToken: token, actorToken, actorTokenType: type, prove } = request;
  let proven: Promise<void> | undefined;
  const accept = async (grant: GrantDocument) => {
    // An assertion works once, and a race makes the exchange read the grant again.
    proven ??= proveDelegate(grant, { token: actorToken, type, prove, ip }, deps);
    await proven;
    const { id: txn, sub: subject, delegation } = grant;
    if (!delegation) return [];
    const detail = traceOf({ ...delegation, txn });
    return [
      (await deps.delegations()).using(delegation.id),
      deps.audit.entry({ event: 'delegation.used', subject, ip, detail }),
    ];
  };
  return refreshTokens(client, { ...request, token }, ip, deps, { prefix: 'dt_', accept });
}
