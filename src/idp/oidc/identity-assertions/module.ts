import type { Documents } from '../../../core/outbound/documents.js';
import type { Throttle } from '../../../core/throttle/throttle.js';
import type { TrustService } from '../../trust/service.js';
import type { Client } from '../directory.js';
import type { TokenResponse } from '../tokens/issuance.js';
import { type AssertionRequest, type IssueDependencies, issueAssertion } from './issue.js';
import { createKeySetReader } from './key-set.js';
import { type AssertionRedemption, type RedeemDependencies, redeemAssertion } from './redeem.js';
import { verifyAssertion } from './verify.js';

/** Identity assertions for and of other providers. Loaded only if they are enabled. */

export interface IdentityAssertions {
  /** Exchanges an assertion of another provider for an access token; absent if none are accepted. */
  redeem?(client: Client, request: AssertionRedemption, ip: string): Promise<TokenResponse>;
  /** Issues an assertion for another authorization server; absent if none are issued. */
  issue?(client: Client, request: AssertionRequest, ip: string): Promise<TokenResponse>;
}

export interface IdentityAssertionOptions {
  trust: TrustService;
  accepts: boolean;
  issues: boolean;
}

export function createIdentityAssertions(
  { trust, accepts, issues }: IdentityAssertionOptions,
  deps: Omit<RedeemDependencies, 'trust' | 'verify'> &
    Omit<IssueDependencies, 'trust'> & {
      readDocument: Documents['read'];
      throttle: Pick<Throttle, 'count'>;
    },
): IdentityAssertions {
  const verifier = { ...deps, trust, readKeySet: createKeySetReader(deps) };
  const known: RedeemDependencies & IssueDependencies = {
    ...deps,
    trust,
    verify: (assertion, clientId, ip) => verifyAssertion(assertion, clientId, ip, verifier),
  };
  return {
    ...(accepts && { redeem: (client, request, ip) => redeemAssertion(client, request, ip, known) }),
    ...(issues && { issue: (client, request, ip) => issueAssertion(client, request, ip, known) }),
  };
}
