import { sha256 } from '../../../core/kernel/secrets.js';
import type { Audit } from '../../../core/ops/audit.js';
import { nullIfTaken } from '../../../core/storage/collection.js';
import type { TrustService } from '../../trust/service.js';
import type { ConsentService } from '../consents.js';
import { type Client, type Directory, isPublicClient, type Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { findRefusal, namesIn, type Resources, type Target } from '../resources.js';
import type { UsedAssertions } from '../store.js';
import { type DirectGrantDependencies, issueDirectly } from '../tokens/direct-grant.js';
import type { TokenResponse } from '../tokens/issuance.js';
import { findProvenKey, type TokenRequest } from '../tokens/key-binding.js';
import { ASSERTION_TYPE } from './trust.js';
import type { VerifiedAssertion } from './verify.js';

/** Exchanges the assertion of another provider for an access token (RFC 7523 §2.1). */

export interface RedeemDependencies extends DirectGrantDependencies {
  trust: Pick<TrustService, 'findSubject'>;
  /** @throws RATE_LIMITED */
  verify(assertion: string, clientId: string, ip: string): Promise<VerifiedAssertion | { problem: string }>;
  usedAssertions: UsedAssertions;
  directory: Pick<Directory, 'findPrincipal'>;
  resources: Resources;
  consents: Pick<ConsentService, 'find' | 'connect'>;
  audit: Audit;
}

export interface AssertionRedemption extends TokenRequest {
  assertion: string | undefined;
}

/** @throws invalid_request, invalid_grant, invalid_scope, invalid_target, unauthorized_client, RATE_LIMITED */
export async function redeemAssertion(
  client: Client,
  { assertion, resources = [], scope, prove }: AssertionRedemption,
  ip: string,
  deps: RedeemDependencies,
): Promise<TokenResponse> {
  if (!assertion) throw oidcErrors.invalid_request({ message: 'assertion is missing.' });
  // Without a secret of the client, a stolen assertion could be redeemed.
  if (isPublicClient(client))
    throw oidcErrors.unauthorized_client({ message: 'The client must authenticate with a secret or a key.' });
  const verified = await deps.verify(assertion, client.id, ip);
  if ('problem' in verified) throw refuse(verified.problem);
  const { trust, directory, consents, audit } = deps;
  const sub = await trust.findSubject(verified.issuer.issuer, verified.subject);
  const person = sub === null ? null : await directory.findPrincipal(sub);
  if (person?.kind !== 'human' || !client.principalKinds.includes(person.kind))
    throw refuse('No active person is linked to the subject of the assertion.');
  const target = await chooseTarget(verified, { resources, scope }, person, deps.resources);
  if (verified.key !== undefined && !prove) throw refuse('The assertion is bound to a key. Send a proof.');
  const key = await findProvenKey(prove, verified.key, target);
  // The last check, so that a request that is refused can be corrected and repeated.
  if (!(await isFirstUse(verified, deps))) throw refuse('The assertion was used before.');
  const found = await consents.find(person.id, client.id);
  const { revocations } = found.isConnected ? found : await consents.connect(person.id, client.id);
  const { authTime, amr } = verified;
  const authentication = { authTime, amr, ...(revocations > 0 && { revocations }) };
  const grant = { clientId: client.id, principal: person, target, key, authentication };
  const response = await issueDirectly(grant, deps);
  const detail = `${client.id} ${target.resource.identifier} ${verified.issuer.issuer}`;
  await audit.record({ event: 'identity_assertion.accepted', subject: person.id, ip, detail });
  return response;
}

/** One resource that the assertion, the operator and the request name, with the scopes that all of them allow. */
async function chooseTarget(
  { issuer, resources: inAssertion, scope: scopeInAssertion }: VerifiedAssertion,
  asked: { resources: readonly string[]; scope: string | undefined },
  person: Principal,
  resources: Resources,
): Promise<Target> {
  const isNamed = (name: string) =>
    (inAssertion.length === 0 || inAssertion.includes(name)) &&
    (asked.resources.length === 0 || asked.resources.includes(name));
  const [allowed, ...others] = issuer.resources.filter(({ resource }) => isNamed(resource));
  if (!allowed)
    throw oidcErrors.invalid_target({ message: 'The issuer of the assertion may not name the resource.' });
  if (others.length > 0)
    throw oidcErrors.invalid_target({ message: 'An access token has one audience. Send one resource.' });
  const resource = await resources.find(allowed.resource);
  if (!resource) throw oidcErrors.invalid_target({ message: 'The resource is not registered any more.' });
  const refusal = findRefusal([{ resource }], person);
  if (refusal !== null) throw oidcErrors.invalid_target({ message: refusal });
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

/** The insertion decides between concurrent uses, in all processes together. */
async function isFirstUse(
  { issuer: { issuer }, jti, expiresAt }: VerifiedAssertion,
  { usedAssertions }: RedeemDependencies,
): Promise<boolean> {
  const id = sha256(JSON.stringify([ASSERTION_TYPE, issuer, jti]));
  return (await usedAssertions.insert({ id, expiresAt }).then(() => true, nullIfTaken)) !== null;
}

const refuse = (message: string) => oidcErrors.invalid_grant({ message });
