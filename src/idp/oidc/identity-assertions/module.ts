import type { ExchangeRequest } from '../delegations/exchange.js';
import type { Client } from '../directory.js';
import { type IdentityAssertionDependencies, issueAssertion } from './issue.js';
import { type AssertionRedemption, redeemAssertion } from './redeem.js';
import { verifyAssertion } from './verify.js';

/** Identity assertions for and of other providers. Loaded only if they are enabled. */
export type IdentityAssertions = ReturnType<typeof createIdentityAssertions>;

export function createIdentityAssertions(
  { accepts, issues }: { accepts: boolean; issues: boolean },
  deps: IdentityAssertionDependencies,
) {
  const verify = (assertion: string, clientId: string, ip: string) =>
    verifyAssertion(assertion, clientId, ip, deps);
  return {
    /** Exchanges an assertion of another provider for an access token; undefined if none are accepted. */
    redeem: accepts
      ? (client: Client, request: AssertionRedemption, ip: string) =>
          redeemAssertion(client, request, ip, { ...deps, verify })
      : undefined,
    /** Issues an assertion for another authorization server; undefined if none are issued. */
    issue: issues
      ? (client: Client, request: ExchangeRequest, ip: string) => issueAssertion(client, request, ip, deps)
      : undefined,
  };
}
