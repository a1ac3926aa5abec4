import { mountPath } from '../../../core/config/public-url.js';
import { longTime, message } from '../../../core/http/messages.js';
import type { Page } from '../../../core/http/pages.js';
import { otherAccountHref, pageOf, viewOfTarget } from '../authorize/pages.js';
import type { AuthorizationRequest } from '../authorize/request.js';
import { isSelfRegistered } from '../directory.js';

/** Asks a person whether an agent may act for them: which one, where, how and until when. */
export function delegationPage(
  request: AuthorizationRequest,
  issuer: string,
  { token, handle, now }: { token: string; handle: string; now: number },
): Page {
  const { delegation, targets } = request;
  const mount = mountPath(issuer);
  const { agent, lifetimeMs = 0, maxDepth = 1 } = delegation ?? {};
  const [target] = targets;
  return pageOf('delegation', request, {
    action: `${mount}/authorize/consent`,
    otherAccount: otherAccountHref(request, mount),
    agentName: agent?.name ?? agent?.handle,
    agentHandle: agent?.handle,
    isOwnClient: request.client.agent !== undefined,
    isAgentUnverified: agent !== undefined && isSelfRegistered(agent),
    ...(target && viewOfTarget(target, false)),
    until: message('delegation.until', { when: longTime(now + lifetimeMs) }),
    ...(maxDepth > 1 && { handsOn: message('delegation.hands-on', { count: String(maxDepth - 1) }) }),
    handle,
    token,
  });
}
