import { sha256 } from '../../../core/kernel/secrets.js';
import { decideAndCommit } from '../../../core/ops/commit.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import { findRefusal } from '../admission.js';
import { type Client, isPublicClient, type Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { namesIn, type Resources, type Target } from '../resources.js';
import { createDirectGrant } from '../tokens/direct-grant.js';
import type { TokenResponse } from '../tokens/issuance.js';
import { findProvenKey } from '../tokens/key-binding.js';
import type { TokenRequest } from '../tokens/request.js';
import type { AssertionDependencies } from './issue.js';
import { ASSERTION_TYPE } from './trust.js';
import { type VerifiedAssertion, verifyAssertion } from './verify.js';

/** Exchanges the assertion of another provider for an access token (RFC 7523 §2.1). */

/** @throws invalid_request, invalid_grant, invalid_scope, invalid_target, unauthorized_client, RATE_LIMITED */
export async function redeemAssertion(
  client: Client,
  { fields, resources, prove, ip }: TokenRequest,
  deps: AssertionDependencies,
): Promise<TokenResponse> {
  const { assertion, scope } = fields;
  if (!assertion) throw oidcErrors.invalid_request({ message: 'assertion is missing.' });
  // Without a secret of the client, a stolen assertion could be redeemed.
  if (isPublicClient(client))
    throw oidcErrors.unauthorized_client({ message: 'The client must authenticate with a secret or a key.' });
  const verified = await verifyAssertion(assertion, client.id, ip, deps);
  if ('problem' in verified) throw refuse(verified.problem);
  const { trust, directory, grants, usedAssertions, consents, commit, audit } = deps;
  const sub = await trust.findSubject(verified.issuer.issuer, verified.subject);
  const person = sub === null ? null : await directory.findPrincipal(sub);
  if (person?.kind !== 'human' || findRefusal({ client }, person))
    throw refuse('No active person is linked to the subject of the assertion.');
  const target = await chooseTarget(verified, { resources, scope }, person, deps.resources);
  if (verified.key !== undefined && !prove) throw refuse('The assertion is bound to a key. Send a proof.');
  const key = await findProvenKey(prove, verified.key, target, deps);
  const { authTime, amr, issuer, jti, expiresAt } = verified;
  const id = sha256(JSON.stringify([ASSERTION_TYPE, issuer.issuer, jti]));
  const detail = `${client.id} ${target.resource.identifier} ${issuer.issuer}`;
  const respond = await decideAndCommit(commit, async () => {
    const { consent, write: connection } = await consents.connecting(person.id, client.id);
    const { revocations } = consent;
    const authentication = { authTime, amr, ...(revocations > 0 && { revocations }) };
    const direct = { clientId: client.id, principal: person, target, key, authentication };
    const { grant, respond } = createDirectGrant(direct, deps);
    const parts = [
      usedAssertions.inserting({ id, expiresAt }),
      connection,
      grants.inserting(grant),
      audit.entry({ event: 'identity_assertion.accepted', subject: person.id, ip, detail }),
    ];
    return { parts, result: respond };
  }).catch(nullIfTaken);
  // The last check, so that a request that is refused can be corrected and repeated.
  if (!respond) throw refuse('The assertion was used before.');
  return respond();
}

/** One resource that the assertion, the operator and the request name, with the scopes that all of them allow. */
async function chooseTarget(
  { issuer, resources: inAssertion, scope: scopeInAssertion }: VerifiedAssertion,
  asked: { resources: readonly string[]; scope: string | undefined },
  person: Principal,
  resources: Resources,
): Promise<Target> {
  const isNamed = (name: string) =>
    [inAssertion, asked.resources].every(
      (names) => names.length === 0 || names.some((one) => resources.isSame(one, name)),
    );
  const [allowed, ...others] = issuer.resources.filter(({ resource }) => isNamed(resource));
  if (!allowed)
    throw oidcErrors.invalid_target({ message: 'The issuer of the assertion may not name the resource.' });
  if (others.length > 0)
    throw oidcErrors.invalid_target({ message: 'An access token has one audience. Send one resource.' });
  const resource = await resources.find(allowed.resource);
  if (!resource) throw oidcErrors.invalid_target({ message: 'The resource is not registered any more.' });
  const refusal = findRefusal({ targets: [{ resource }] }, person);
  if (refusal) throw oidcErrors.invalid_target({ message: refusal.description });
  const limits = [scopeInAssertion, asked.scope].flatMap((scope) =>
    scope === undefined ? [] : [namesIn(scope)],
  );
  const scopes = resource.scopes
    .map(({ name }) => name)
    .filter((name) => allowed.scopes.includes(name) && limits.every((limit) => limit.includes(name)));
  if (scopes.length === 0 && resource.scopes.length > 0)
    throw oidcErrors.invalid_scope({ message: 'No scope of the assertion is allowed.' });
  return { resource, scopes };
}

const refuse = (message: string) => oidcErrors.invalid_grant({ message });
