import type { RequestSource } from '../../../core/http/routes.js';
import { DisplayName, matchesSchema } from '../../../core/http/schemas.js';
import { DAY, isRecent, MINUTE, SECOND } from '../../../core/kernel/clock.js';
import { newId, sha256 } from '../../../core/kernel/secrets.js';
import { charactersIn } from '../../../core/kernel/text.js';
import { createExpiryPurge } from '../../../core/ops/purge.js';
import { fixedWindow } from '../../../core/throttle/throttle.js';
import { findRefusal } from '../admission.js';
import { errorOf, type RuleViolation } from '../authorize/rules.js';
import type { BackchannelLogout } from '../backchannel/service.js';
import { AMR } from '../claims.js';
import { type AgentClient, isPublicClient, type Principal } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { PENDING_LIFETIME_MS } from '../grant-tokens.js';
import { createPendingRequests, INTERVAL } from '../pending.js';
import { findTargets, type Target } from '../resources.js';
import type { SessionService, SignedInUser } from '../sessions.js';
import type { OidcShared } from '../shared.js';
import type { AuthorizationDetail, GrantDocument, GrantedApproval } from '../store.js';
import { findAccessTokenFor } from '../tokens/introspection.js';
import type { TokenResponse } from '../tokens/issuance.js';
import type { TokenRequest } from '../tokens/request.js';
import { hashOf, isDeclared, readDetails, viewOf } from './details.js';
import { APPROVAL_REQUEST, type ApprovalRequestDocument, approvalRequestCollection } from './store.js';

/** What an agent asks a person to approve once (CIBA): the request, the decision, and the access token for it. */
export type Approvals = ReturnType<typeof createApprovals>;

/** A request with all that its page shows. */
export interface ApprovalRequest {
  stored: ApprovalRequestDocument;
  agent: Principal;
  target: Target;
}

type Fields = TokenRequest['fields'];

/** What the audit names of a grant. */
export interface TracedGrant extends Pick<GrantDocument, 'id' | 'clientId' | 'resources'> {
  approval?: Pick<GrantedApproval, 'details'> | undefined;
}

const DEFAULT_LIFETIME_SECONDS = 300;
const MAX_BINDING_MESSAGE = 100;

/** How old the sign-in may be with which a person decides. */
const SIGN_IN_AGE_MS = 5 * MINUTE;

/** Undecided requests of one agent to one person. */
const MAX_OPEN = 3;

/** Requests of one address block and of one client, which bound what is stored. */
const REQUESTS_OF_ADDRESS = fixedWindow('approval.address', 300, 10 * MINUTE);
const REQUESTS_OF_CLIENT = fixedWindow('approval.client', 300, 10 * MINUTE);

/** Mails to one person of all agents. Further requests wait on the account page. */
const MAILS_TO_PERSON = fixedWindow('approval.mails', 20, DAY);

export function createApprovals(
  deps: OidcShared & { sessions: SessionService; backchannel: BackchannelLogout },
) {
  const { store, jobs, resources, directory, sessions, backchannel, passkeys, mailApproval, issuer } = deps;
  const { throttle, commit, audit, clock, random } = deps;
  const requests = approvalRequestCollection(store);
  jobs.add('approval-request-purge', createExpiryPurge(requests, clock));
  const pending = createPendingRequests(
    requests,
    {
      events: 'approval',
      id: APPROVAL_REQUEST,
      code: 'ar_',
      more: ({ agent, agentEpoch, details }: ApprovalRequestDocument) => ({
        approval: {
          agent,
          ...(agentEpoch !== undefined && { agentEpoch }),
          ...(details && { details }),
        },
      }),
    },
    deps,
  );

  /** The client is the agent, or an application that shows the page itself. */
  const traceOf = ({ id, clientId, resources: [granted] = [], approval }: TracedGrant): string =>
    [clientId, granted?.resource, id, ...(approval?.details ? [hashOf(approval.details)] : [])].join(' ');

  const traceOfRequest = ({ id, details, ...request }: ApprovalRequestDocument): string =>
    traceOf({ ...request, id: pending.grantIdOf({ id }), approval: details && { details } });

  const recordUse = (grant: GrantDocument, ip: string) =>
    audit.record({ event: 'approval.used', subject: grant.sub, ip, detail: traceOf(grant) });

  /** What is asked for at one resource, or what is wrong with it. */
  const readTarget = async (
    { authorization_details: text, scope }: Fields,
    named: readonly string[],
  ): Promise<{ target: Target; details?: AuthorizationDetail } | RuleViolation> => {
    const read = text === undefined ? undefined : await readDetails(text, named, resources);
    if (read && 'error' in read) return read;
    const { resource, details } = read ?? {};
    const found = await findTargets(resource ? [resource.identifier] : named, scope, resources);
    if ('error' in found) return found;
    const [target, ...others] = found;
    if (!target || others.length > 0)
      return { error: 'invalid_target', description: 'Ask for the approval at one resource.' };
    // Details alone stand for no scope.
    const asked: Target = { resource: target.resource, scopes: target.isDefault ? [] : target.scopes };
    return details ? { target: asked, details } : { target: asked };
  };

  /** The person that a hint names. `null` if there is none. @throws invalid_request, expired_login_hint_token */
  const findPerson = async (fields: Fields, agent: Principal, { resource }: Target, ip: string) => {
    const { login_hint: hint, login_hint_token: token, id_token_hint: idToken } = fields;
    if ([hint, token, idToken].filter((one) => one !== undefined).length !== 1)
      throw oidcErrors.invalid_request({
        message: 'Send one of login_hint, login_hint_token and id_token_hint.',
      });
    if (idToken !== undefined) {
      const read = await deps.readHint(idToken);
      if (!read)
        throw oidcErrors.invalid_request({ message: 'id_token_hint is no id_token of this provider.' });
      return directory.findPrincipal(read.sub);
    }
    if (hint !== undefined) {
      const named = await directory.findByName(hint);
      return named && directory.findPrincipal(named.id);
    }
    const claims = await findAccessTokenFor(resource, token ?? '', ip, deps);
    if (claims?.act?.sub !== agent.id) throw oidcErrors.expired_login_hint_token();
    return directory.findPrincipal(claims.sub);
  };

  /** The person, if they may be asked once more. */
  const findAskable = async (person: Principal | null, agent: Principal, target: Target) => {
    if (person?.kind !== 'human' || findRefusal({ targets: [target] }, person)) return null;
    const where = {
      ...{ sub: person.id, agent: agent.id, state: 'pending' as const },
      expiresAt: { gt: clock.now() },
    };
    return (await requests.count(where, MAX_OPEN)) < MAX_OPEN ? person : null;
  };

  /** A request with what it is about, if it is as when it was made. */
  const complete = async (stored: ApprovalRequestDocument): Promise<ApprovalRequest | null> => {
    const [{ resource: identifier, scopes } = { resource: '', scopes: [] }] = stored.resources ?? [];
    const [agent, resource] = await Promise.all([
      directory.findPrincipal(stored.agent),
      resources.find(identifier),
    ]);
    if (!agent || agent.epoch !== stored.agentEpoch || !resource) return null;
    const isKnown = stored.details === undefined || isDeclared(stored.details, resource);
    const target = { resource, scopes };
    return isKnown && !findRefusal({ targets: [target], isDelegated: true }, agent)
      ? { stored, agent, target }
      : null;
  };

  return {
    readTarget,
    viewOf,
    traceOf,
    recordUse,

    /** Whether the person has to sign in again: it is too long ago, or was without the passkey that the person has. */
    async mustSignIn({ principal, session }: SignedInUser): Promise<boolean> {
      const isFresh = isRecent(session.authTime, { now: clock.now(), within: SIGN_IN_AGE_MS });
      const isByPasskey = session.amr?.includes(AMR.passkey[0]) === true;
      return !isFresh || (!isByPasskey && (await passkeys?.has(principal.id)) === true);
    },

    /**
     * Asks a person. The answer is the same if there is none of this name.
     * @throws invalid_request, invalid_scope, invalid_target, invalid_authorization_details, invalid_binding_message, RATE_LIMITED
     */
    async begin(
      client: AgentClient,
      { fields, resources: named }: { fields: Fields; resources: readonly string[] },
      { ip }: Pick<RequestSource, 'ip'>,
    ): Promise<{ code: string; expiresIn: number }> {
      const { agent } = client;
      if (isPublicClient(client))
        throw oidcErrors.unauthorized_client({
          message: 'A client that cannot authenticate asks for nothing.',
        });
      await throttle.count(REQUESTS_OF_ADDRESS, ip);
      await throttle.countKey(REQUESTS_OF_CLIENT, agent.id, ip);
      const { binding_message: bindingMessage, requested_expiry: expiry } = fields;
      if (bindingMessage !== undefined && !isBindingMessage(bindingMessage))
        throw oidcErrors.invalid_binding_message();
      const expiresIn = readExpiry(expiry);
      const read = await readTarget(fields, named);
      if ('error' in read) throw errorOf(read);
      const { target, details } = read;
      if (!details && target.scopes.length === 0)
        throw oidcErrors.invalid_request({
          message: 'Send authorization_details, or a scope of the resource.',
        });
      const refusal = findRefusal({ targets: [target], isDelegated: true, ip }, agent);
      if (refusal)
        throw errorOf({ ...refusal, error: refusal.isByScope ? 'invalid_scope' : 'invalid_target' });
      const token = agent.notificationEndpoint === undefined ? undefined : readNotificationToken(fields);
      const person = await findPerson(fields, agent, target, ip);
      // By the name that the agent has given, whether or not there is a person.
      const asked = sha256(JSON.stringify([agent.id, fields['login_hint']?.toLowerCase() ?? person?.id]));
      const now = clock.now();
      const open = { asked, state: 'pending', expiresAt: { gt: now } } as const;
      if ((await requests.count(open, MAX_OPEN)) >= MAX_OPEN)
        throw oidcErrors.access_denied({
          message: `${MAX_OPEN} requests to this person are not decided yet. Wait for one of them.`,
        });
      const askable = await findAskable(person, agent, target);
      const { resource, scopes } = target;
      const id = newId(APPROVAL_REQUEST, clock, random);
      const code = pending.newCode(id);
      const request: ApprovalRequestDocument = {
        ...{ id, asked, codeHash: sha256(code), clientId: client.id, scope: '' },
        resources: [{ resource: resource.identifier, scopes }],
        agent: agent.id,
        ...(agent.epoch !== undefined && { agentEpoch: agent.epoch }),
        ...(askable && { sub: askable.id }),
        ...(details && { details }),
        ...(bindingMessage !== undefined && { bindingMessage }),
        ...(token !== undefined && { ping: backchannel.sealPing({ code, token }) }),
        createdAt: now,
        expiresAt: now + expiresIn * SECOND,
        interval: INTERVAL,
        state: 'pending',
      };
      const isMailed =
        askable && mailApproval && (await throttle.tryCountKey(MAILS_TO_PERSON, askable.id, ip));
      await commit([
        requests.inserting(request),
        audit.entry({
          event: 'approval.requested',
          ...(askable && { subject: askable.id }),
          ip,
          detail: traceOfRequest(request),
        }),
        isMailed
          ? mailApproval(askable, {
              id,
              agent: agent.name ?? agent.handle,
              resource: resource.name,
              link: `${issuer()}/approve/${id}`,
              expiresAt: request.expiresAt,
            })
          : undefined,
      ]);
      return { code, expiresIn };
    },

    /** The request of a page, decided or not, for the person whom it asks. `null` if there is none, or it has ended. */
    async find(id: string, sub: string): Promise<ApprovalRequest | null> {
      const stored = /^apr_[0-9a-f]{32}$/.test(id) ? await requests.findOne({ id }) : null;
      return stored?.sub === sub && pending.isOpen(stored) ? complete(stored) : null;
    },

    /** What waits for a person, the latest first. */
    async list(sub: string): Promise<ApprovalRequest[]> {
      const where = { sub, state: 'pending' as const, expiresAt: { gt: clock.now() } };
      const { items } = await requests.page({ where, sort: 'id', desc: true, limit: 100 });
      return (await Promise.all(items.map(complete))).filter((one) => one !== null);
    },

    /** Returns whether it is decided so now. */
    async decide(
      { stored, target }: ApprovalRequest,
      decision: 'allow' | 'deny',
      { principal, session }: SignedInUser,
      ip: string,
    ): Promise<boolean> {
      const by = { subject: principal.id, ip, detail: traceOfRequest(stored) };
      const { id, agent, ping, expiresAt } = stored;
      const notice = ping === undefined ? undefined : backchannel.ping(id, agent, ping, expiresAt);
      if (decision === 'deny') return pending.decide(stored, { state: 'denied' }, by, [notice]);
      if (findRefusal({ targets: [target] }, principal)) return false;
      const approval = {
        sub: principal.id,
        ...(principal.epoch !== undefined && { epoch: principal.epoch }),
        ...(session.amr && { amr: session.amr }),
        authTime: session.authTime,
        approvedAt: clock.now(),
      };
      return pending.decide(stored, { state: 'approved', approval }, by, [
        sessions.extending(session),
        notice,
      ]);
    },

    /**
     * Exchanges `auth_req_id` for an access token, once (CIBA §10.1).
     * @throws authorization_pending, slow_down, access_denied, expired_token, invalid_grant, invalid_request, invalid_target
     */
    poll: (client: AgentClient, request: TokenRequest): Promise<TokenResponse> =>
      pending.poll(client, 'auth_req_id', request, (grant) => recordUse(grant, request.ip)),

    /** Removes what was asked of a person who is deleted. */
    async forget(sub: string) {
      await requests.deleteMany({ sub });
    },
  };
}

const isBindingMessage = (text: string): boolean =>
  matchesSchema(text, DisplayName) && charactersIn(text) <= MAX_BINDING_MESSAGE;

/** @throws invalid_request */
function readExpiry(text: string | undefined): number {
  if (text === undefined) return DEFAULT_LIFETIME_SECONDS;
  if (!/^[1-9]\d{0,8}$/.test(text))
    throw oidcErrors.invalid_request({ message: 'requested_expiry must be a positive number of seconds.' });
  return Math.min(Number(text), PENDING_LIFETIME_MS / SECOND);
}

/** With it, the agent recognizes the request that it gets at its own endpoint (CIBA §7.1). @throws invalid_request */
function readNotificationToken({ client_notification_token: token = '' }: Fields): string {
  if (/^[\w.~+/=-]{1,1024}$/.test(token)) return token;
  throw oidcErrors.invalid_request({
    message:
      'An agent with a notification endpoint sends client_notification_token: 1 to 1024 characters of a bearer token.',
  });
}
