import type { Client } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { OidcShared } from '../shared.js';
import type { TokenResponse } from '../tokens/issuance.js';
import { refreshTokens } from '../tokens/refresh.js';
import type { TokenRequest } from '../tokens/request.js';
import { ACCESS_TOKEN, JWT } from './actor.js';
import { chainDelegation } from './chain.js';

/** Token exchange (RFC 8693): access tokens with which an agent acts for a person. */

/** The type of the token of a delegation, of which only its client and this provider know the format. */
export const DELEGATION_TOKEN = 'urn:saas-backend:token-type:delegation';

/** @throws invalid_request, invalid_grant, invalid_scope, invalid_target, unauthorized_client */
export async function exchangeTokens(
  client: Client,
  request: TokenRequest,
  deps: OidcShared,
): Promise<TokenResponse> {
  const { subject_token: token, subject_token_type: type, requested_token_type: requested } = request.fields;
  // Another name for the resource.
  const { audience } = request.fields;
  if (!token) throw oidcErrors.invalid_request({ message: 'subject_token is missing.' });
  if (requested !== undefined && ![ACCESS_TOKEN, JWT].includes(requested))
    throw oidcErrors.invalid_request({
      message: `requested_token_type must be ${ACCESS_TOKEN} or ${JWT}.`,
    });
  if (audience !== undefined && !request.resources.some((one) => deps.resources.isSame(one, audience)))
    throw oidcErrors.invalid_target({ message: 'Name the resource with the parameter resource.' });
  const issued = { issued_token_type: requested ?? ACCESS_TOKEN };
  if (type === ACCESS_TOKEN || type === JWT)
    return { ...(await chainDelegation(client, token, request, deps)), ...issued };
  if (type !== DELEGATION_TOKEN)
    throw oidcErrors.invalid_request({
      message: `subject_token_type must be ${DELEGATION_TOKEN}, ${ACCESS_TOKEN} or ${JWT}.`,
    });
  if (client.agent)
    throw oidcErrors.unauthorized_client({
      message: 'The token of a delegation is used by the client that it was issued to.',
    });
  return { ...(await refreshTokens(client, token, request, deps, 'dt_')), ...issued };
}
