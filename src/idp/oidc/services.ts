import { createOutbound } from '../../core/outbound/request.js';
import type { createApprovals } from './approvals/service.js';
import { createInteractionTokens } from './authorize/interaction-token.js';
import { createSignInPages } from './authorize/pages.js';
import { createAuthorization } from './authorize/service.js';
import { createLogoutRequest, createPingRequest } from './backchannel/request.js';
import { createBackchannelLogout } from './backchannel/service.js';
import { createDeviceFlow } from './device/service.js';
import { createFirstPartySignIn } from './first-party-sign-in.js';
import { createRefusals } from './refusals.js';
import { createCookies, createSessionService } from './sessions.js';
import { createShared, type OidcContext, type OidcModuleOptions } from './shared.js';
import { createGrantTypes } from './tokens/grant-types.js';

/** What the routes and jobs of OpenID Connect use. */
export type OidcServices = ReturnType<typeof createOidcServices>;

/** @param open absent if approvals are not enabled */
export function createOidcServices(
  context: OidcContext,
  options: OidcModuleOptions,
  open: typeof createApprovals | undefined,
) {
  const { values, production, issuer } = context;
  const shared = createShared(context, options);
  const reach = values.backchannelPrivateNetworks || !production ? 'private' : 'public';
  const send = createOutbound({ reach });
  const posting = { post: createLogoutRequest(send), postPing: createPingRequest(send) };
  const backchannel = createBackchannelLogout({ ...shared, ...posting });
  const sessions = createSessionService(shared);
  const interactionTokens = createInteractionTokens(shared.seeds, shared);
  const approvals = open?.({ ...shared, sessions, backchannel });
  const authorizing = { ...shared, interactionTokens, backchannel, sessions, approvals };
  const authorization = createAuthorization(authorizing);
  const cookies = createCookies(issuer);
  const signInPages = createSignInPages(shared);
  const device = values.deviceFlow ? createDeviceFlow({ ...shared, sessions, backchannel }) : undefined;
  return {
    ...shared,
    backchannel,
    sessions,
    authorization,
    cookies,
    signInPages,
    signIn: createFirstPartySignIn({ ...shared, sessions, cookies, authorization, signInPages }),
    refusals: createRefusals(shared),
    device,
    approvals,
    grantTypes: createGrantTypes(shared, { device, approvals }),
  };
}
