import { isUnexpired, SECOND, toSeconds } from '../../../core/kernel/clock.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import type { TrustService } from '../../trust/service.js';
import type { AudienceDocument } from '../../trust/store.js';
import { AMR, acrOf } from '../claims.js';
import { type Client, isPublicClient, type Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { grantIdOf, REFRESH_IDLE_LIFETIME_MS, TOKEN_LIFETIME_SECONDS } from '../grant-tokens.js';
import { namesIn, type ResourceScopes } from '../resources.js';
import type { OidcShared } from '../shared.js';
import type { GrantDocument } from '../store.js';
import { findAllowedOwner, type TokenResponse } from '../tokens/issuance.js';
import { confirmationOf, findProvenKey } from '../tokens/key-binding.js';
import type { TokenRequest } from '../tokens/request.js';
import { ASSERTION_TOKEN, ASSERTION_TYPE, MAX_LIFETIME_SECONDS } from './trust.js';

/** Issues identity assertions for other authorization servers, by token exchange (RFC 8693). */

export const ID_TOKEN = 'urn:ietf:params:oauth:token-type:id_token';
export const REFRESH_TOKEN = 'urn:ietf:params:oauth:token-type:refresh_token';

/** What identity assertions use. */
export type AssertionDependencies = OidcShared & { trust: TrustService };

/** @throws invalid_request, invalid_grant, invalid_scope, invalid_target, unauthorized_client */
export async function issueAssertion(
  client: Client,
  request: TokenRequest,
  deps: AssertionDependencies,
): Promise<TokenResponse> {
  const { fields, prove, ip } = request;
  const { subject_token: token, subject_token_type: type } = fields;
  if (!token) throw oidcErrors.invalid_request({ message: 'subject_token is missing.' });
  if (type !== ID_TOKEN && type !== REFRESH_TOKEN)
    throw oidcErrors.invalid_request({
      message: `subject_token_type must be ${ID_TOKEN} or ${REFRESH_TOKEN}.`,
    });
  if (fields['actor_token'] !== undefined)
    throw oidcErrors.invalid_request({ message: 'actor_token is not supported for this token type.' });
  if (isPublicClient(client))
    throw oidcErrors.unauthorized_client({ message: 'The client must authenticate with a secret or a key.' });
  const { audience, clientThere } = await findAudience(client, fields['audience'], deps);
  const { grant, person } = await (type === ID_TOKEN ? readIdToken : readRefreshToken)(client, token, deps);
  const key = await findProvenKey(prove, type === ID_TOKEN ? undefined : grant.refreshKey, null, deps);
  const { resource, scopes } = narrow(audience, request, deps);
  const { keys, clock, random, issuer, audit } = deps;
  const algorithm = audience.algorithm ?? 'EdDSA';
  if (!keys.algorithms.includes(algorithm)) throw oidcErrors.unauthorized_client();
  const now = toSeconds(clock.now());
  const jti = newId('jti_', clock, random);
  const scope = scopes.join(' ');
  // Neither a name nor an e-mail address: the other server knows the person by sub.
  const claims = {
    iss: issuer(),
    sub: person.id,
    aud: audience.issuer,
    client_id: clientThere,
    jti,
    iat: now,
    exp: now + MAX_LIFETIME_SECONDS,
    resource,
    ...(scope !== '' && { scope }),
    auth_time: toSeconds(grant.authTime),
    acr: grant.acr ?? acrOf(grant.amr),
    amr: grant.amr ?? [...AMR.password],
    ...confirmationOf(key),
  };
  const detail = `${client.id} ${audience.issuer} ${jti}`;
  await audit.record({ event: 'identity_assertion.issued', subject: person.id, ip, detail });
  return {
    access_token: await keys.sign(claims, algorithm, ASSERTION_TYPE),
    issued_token_type: ASSERTION_TOKEN,
    token_type: 'N_A',
    expires_in: MAX_LIFETIME_SECONDS,
    scope,
  };
}

async function findAudience(
  { id }: Client,
  name: string | undefined,
  { trust }: AssertionDependencies,
): Promise<{ audience: AudienceDocument; clientThere: string }> {
  if (name === undefined) throw oidcErrors.invalid_request({ message: 'audience is missing.' });
  const audience = await trust.findAudience(name);
  const there = audience?.clients.find((one) => one.id === id);
  // One answer for both, so that a client cannot explore the servers of others.
  if (!audience || !there)
    throw oidcErrors.invalid_target({ message: 'The client gets no assertions for this audience.' });
  return { audience, clientThere: there.idThere };
}

/** One resource of the audience, with the scopes of it that are asked for and allowed. */
function narrow(
  audience: AudienceDocument,
  { fields, resources }: TokenRequest,
  { resources: { isSame } }: AssertionDependencies,
): ResourceScopes {
  if (resources.length > 1) throw oidcErrors.invalid_target({ message: 'Send one resource.' });
  const [allowed, ...others] = audience.resources.filter(({ resource }) =>
    resources.every((one) => isSame(one, resource)),
  );
  if (!allowed)
    throw oidcErrors.invalid_target({ message: 'The resource is not allowed for this audience.' });
  if (others.length > 0) throw oidcErrors.invalid_target({ message: 'Send the resource.' });
  const asked = namesIn(fields['scope']);
  const scopes = allowed.scopes.filter((name) => asked.length === 0 || asked.includes(name));
  if (scopes.length === 0 && asked.length > 0) throw oidcErrors.invalid_scope();
  return { resource: allowed.resource, scopes };
}

interface Subject {
  grant: GrantDocument;
  person: Principal;
}

/** The sign-in that an id_token of this client is from, while the session of it lasts. */
async function readIdToken(client: Client, token: string, deps: AssertionDependencies): Promise<Subject> {
  const { keys, issuer, clock, grants, sessionDocuments } = deps;
  const { iss, aud, exp, txn } = (await keys.verify(token)) ?? {};
  const isOwn = iss === issuer() && aud === client.id && typeof txn === 'string' && typeof exp === 'number';
  const life = TOKEN_LIFETIME_SECONDS * SECOND;
  if (!isOwn || !isUnexpired(exp * SECOND, { now: clock.now(), life })) throw refuse();
  const grant = await grants.findOne({ id: txn });
  const isOver = grant?.sid !== undefined && (await sessionDocuments.findOne({ id: grant.sid })) === null;
  return isOver ? Promise.reject(refuse()) : withOwner(client, grant, deps);
}

/** The sign-in of a current refresh token of this client, which is not rotated: the assertion does not replace it. */
async function readRefreshToken(
  client: Client,
  token: string,
  deps: AssertionDependencies,
): Promise<Subject> {
  const id = grantIdOf('rt_', token);
  const grant = id === undefined ? null : await deps.grants.findOne({ id });
  const { refreshExpiresAt = 0, refreshHash } = grant ?? {};
  const isCurrent =
    refreshHash === sha256(token) &&
    isUnexpired(refreshExpiresAt, { now: deps.clock.now(), life: REFRESH_IDLE_LIFETIME_MS });
  if (!isCurrent) throw refuse();
  return withOwner(client, grant, deps);
}

async function withOwner(
  client: Client,
  grant: GrantDocument | null,
  deps: AssertionDependencies,
): Promise<Subject> {
  // What an agent may do for a person is the decision of that person, and not of the operator.
  if (grant?.clientId !== client.id || grant.revokedAt !== undefined || grant.delegation) throw refuse();
  const person = await findAllowedOwner(client, grant, deps);
  if (person?.kind !== 'human') throw refuse();
  return { grant, person };
}

const refuse = () =>
  oidcErrors.invalid_grant({
    message: 'subject_token is invalid, expired, revoked, of another client, or its session has ended.',
  });
