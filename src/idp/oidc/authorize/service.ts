import { defined } from '../../../core/kernel/fields.js';
import { newId, newToken, sha256 } from '../../../core/kernel/secrets.js';
import { findRefusal, type Refusal } from '../admission.js';
import type { Approvals } from '../approvals/service.js';
import type { BackchannelLogout } from '../backchannel/service.js';
import { acrOf } from '../claims.js';
import type { Consent } from '../consents.js';
import type { DelegationRequest } from '../delegations/request.js';
import type { Principal } from '../directory.js';
import { CODE_LIFETIME_MS, newGrantToken } from '../grant-tokens.js';
import { namesIn, scopesOf } from '../resources.js';
import type { SessionService } from '../sessions.js';
import type { OidcShared } from '../shared.js';
import { GRANT, type GrantedDelegation, type SessionDocument } from '../store.js';
import { traced } from '../traces.js';
import type {
  ClientInteraction,
  FirstPartyPage,
  Interaction,
  InteractionTokens,
} from './interaction-token.js';
import { type PushedRequest, REQUEST_URI, wasUsed } from './pushed-request.js';
import {
  type AuthorizationRequest,
  type ErrorResponse,
  type ValidationResult,
  validateAuthorizationRequest,
} from './request.js';
import type { AuthorizationResponse } from './response.js';
import { isWebUri, type Parameters, type RuleViolation } from './rules.js';

/** Responds to authorization requests with a code or an error, possibly after a form. */
export type Authorization = ReturnType<typeof createAuthorization>;

export interface Authentication {
  principal: Principal;
  /** Absent if the request itself contained the credentials. */
  session?: SessionDocument | undefined;
  /** Read before the principal is authorized: a later revocation applies to the grant. */
  consent: Consent;
  /** Whether the person has allowed what the request asks for on a page of its own: a delegation, or one action. */
  wasAsked?: boolean;
  /** Whether an earlier session is used, without a sign-in. */
  isSilent?: boolean;
}

/** What the form of a consent page is bound to: the session, and the state of the consent. */
export interface ConsentBinding {
  sid: string;
  /** How often the user had revoked the consent. */
  revocations: number;
}

export type ResumedInteraction =
  | {
      validated: ValidationResult;
      boundTo: Partial<ConsentBinding>;
      proven: Interaction['proven'];
      isExpired: boolean;
    }
  | (FirstPartyPage & { proven: Interaction['proven']; isExpired: boolean });

/** The error for a principal that may not use the application or an API. */
export const refusalViolation = ({ description, isByGroup }: Refusal): RuleViolation => ({
  error: 'access_denied',
  description,
  ...(isByGroup && { asksOperator: true }),
});

const OTHER_USER: RuleViolation = {
  error: 'login_required',
  description: 'The signed-in user is not the user of id_token_hint.',
};

const SESSION_ENDED: RuleViolation = {
  error: 'login_required',
  description: 'The user has signed out in the meantime.',
};

export function createAuthorization(
  deps: OidcShared & {
    interactionTokens: InteractionTokens;
    backchannel: BackchannelLogout;
    sessions: SessionService;
    approvals: Approvals | undefined;
  },
) {
  const { grants, interactionTokens, backchannel, sessions, consents, directory, issuer } = deps;
  const { commit, audit, clock, random } = deps;

  const respond = (
    { redirectUri, parameters }: Pick<ErrorResponse, 'redirectUri' | 'parameters'>,
    values: Record<string, string>,
  ): AuthorizationResponse => ({
    redirectUri,
    isFormPost: parameters['response_mode'] === 'form_post' && isWebUri(redirectUri),
    values: { ...values, state: parameters['state'], iss: issuer() },
  });

  /** The error as a response to the application. */
  const errorResponse = ({ violation, ...request }: ErrorResponse): AuthorizationResponse =>
    respond(request, { error: violation.error, error_description: violation.description });

  /** Why this principal must not be authorized, or `null`. */
  const findViolation = (
    { hintedSub, ...request }: AuthorizationRequest,
    principal: Principal,
  ): RuleViolation | null => {
    const refusal = findRefusal(request, principal);
    if (refusal) return refusalViolation(refusal);
    return hintedSub !== undefined && hintedSub !== principal.id ? OTHER_USER : null;
  };

  const give = async (
    { client, targets: [target] }: AuthorizationRequest,
    { agent, lifetimeMs, maxDepth }: DelegationRequest,
    person: Principal,
    { txn, ip }: { txn: string; ip: string },
  ): Promise<GrantedDelegation | undefined> => {
    if (!target) return undefined;
    const { resource, scopes } = target;
    const permission = { person, agent, resource: resource.identifier, scopes, clientId: client.id, txn };
    const given = await deps.delegations.give({ ...permission, maxDepth, lifetimeMs }, ip);
    const { id, agentEpoch, expiresAt } = given;
    return {
      id,
      agent: agent.id,
      ...(agentEpoch !== undefined && { agentEpoch }),
      ...(client.agent && { isClient: true as const }),
      expiresAt,
    };
  };

  const withPushed = (validated: ValidationResult, pushed: PushedRequest | undefined): ValidationResult =>
    'request' in validated && pushed ? { request: { ...validated.request, pushed } } : validated;

  /** The response with a new code, or with an error when this principal must not be authorized. */
  const approve = async (
    request: AuthorizationRequest,
    authentication: Authentication,
    ip: string,
  ): Promise<AuthorizationResponse> => {
    const { principal, session, isSilent = false, wasAsked = false } = authentication;
    const violation = findViolation(request, principal) ?? refuseUnasked(request, wasAsked);
    if (violation) return errorResponse({ ...request, violation });
    const { parameters, client, redirectUri, scope, targets, pushed, details } = request;
    // A client that gets a refresh token without consent is listed, so that the person can revoke it.
    const isUnlisted =
      principal.kind === 'human' &&
      namesIn(scope).includes('offline_access') &&
      !authentication.consent.isConnected;
    const { consent, write: connection } = isUnlisted
      ? await consents.connecting(principal.id, client.id)
      : { ...authentication, write: undefined };
    const id = newId(GRANT, clock, random);
    const code = newGrantToken('ac_', id, random);
    const now = clock.now();
    const delegation =
      request.delegation && (await give(request, request.delegation, principal, { txn: id, ip }));
    const { nonce, code_challenge: challenge, acr_values: acrValues, dpop_jkt: key } = parameters;
    const grant = {
      id,
      codeHash: sha256(code),
      clientId: client.id,
      sub: principal.id,
      ...(principal.epoch !== undefined && { epoch: principal.epoch }),
      redirectUri,
      scope,
      ...(targets.length > 0 && { resources: scopesOf(targets) }),
      ...(nonce && { nonce }),
      ...(delegation && { delegation }),
      ...(details && { approval: { ...(client.agent && actingNow(client.agent)), details } }),
      ...(challenge && { challenge }),
      ...(key && { codeKey: key }),
      // The class of the sign-in, whichever was requested (OIDC Core §3.1.2.1).
      ...(acrValues && { acr: acrOf(session?.amr) }),
      ...(session?.amr && { amr: session.amr }),
      // A delegation outlives the session, and an approval is as those that agents ask for.
      ...(session && !delegation && !details && { sid: session.id }),
      ...(consent.revocations > 0 && { revocations: consent.revocations }),
      authTime: session?.authTime ?? now,
      createdAt: now,
      codeExpiresAt: now + CODE_LIFETIME_MS,
    };
    const signIn = isSilent ? 'login.continued' : 'login.succeeded';
    const event = details ? 'approval.approved' : signIn;
    const agent = principal.kind === 'agent' ? principal : request.delegation?.agent;
    const trace = agent && {
      ...{ txn: id, client: client.id },
      agent: agent.id,
      ...defined({ owner: agent.owner, person: request.delegation && principal.id }),
    };
    const signedIn = trace ? traced(trace) : { detail: client.id };
    const about = grant.approval && deps.approvals ? { detail: deps.approvals.traceOf(grant) } : signedIn;
    const usingPushed = pushed && deps.pushed.using(pushed);
    const outcome = await commit([
      usingPushed,
      connection,
      session && sessions.extending(session),
      session && !delegation && !details ? await backchannel.notice(client, session, scope) : undefined,
      grants.inserting(grant),
      audit.entry({ ...about, event, subject: principal.id, ip }),
    ]);
    if (!outcome.committed) {
      if (outcome.unmet === usingPushed) throw wasUsed();
      // The person has revoked the access since it was read.
      if (outcome.unmet === connection) return approve(request, authentication, ip);
      return errorResponse({ ...request, violation: SESSION_ENDED });
    }
    if (principal.kind === 'agent') directory.recordAgentUse(principal);
    await directory.recordUse(client);
    return respond(request, { code });
  };

  return {
    /** @throws invalid_request */
    async validate(parameters: Parameters, ip: string, pushed?: PushedRequest): Promise<ValidationResult> {
      const findClient = (clientId: string) => directory.resolveClient(clientId, { ip, allowsStale: false });
      return withPushed(await validateAuthorizationRequest(parameters, findClient, deps), pushed);
    },
    errorResponse,
    findViolation,

    approve,

    /**
     * Issues the token of a form that is about to be shown to the browser with this cookie, or with a new one.
     *
     * @param bound what the form of a consent page is bound to, or the principal whose password was given
     */
    beginForm(
      signInRequest: AuthorizationRequest | FirstPartyPage,
      known: string | undefined,
      bound?: ConsentBinding | Pick<Interaction, 'proven'>,
    ): { token: string; cookie: string } {
      const cookie = known !== undefined && isCookie(known) ? known : newToken(random);
      const named = 'returnTo' in signInRequest ? signInRequest : namedIn(signInRequest);
      return { token: interactionTokens.issue({ ...named, ...bound }, cookie), cookie };
    },

    /**
     * The request or the page that a form was shown for, validated again; `null` when the form is invalid or was shown to
     * another browser. A form may be submitted twice: on a double click, the browser discards the first response, and the
     * second one must still redirect to the application. An expired form proves neither a session nor a password.
     *
     * @throws invalid_request
     */
    async resume(token: string, cookie: string | undefined): Promise<ResumedInteraction | null> {
      if (cookie === undefined) return null;
      const verified = interactionTokens.verify(token, cookie);
      if (!verified) return null;
      const { interaction, isExpired } = verified;
      const proven = isExpired ? undefined : interaction.proven;
      if ('returnTo' in interaction) return { ...interaction, proven, isExpired };
      const { parameters, hintedSub } = interaction;
      const { sid, revocations } = interaction;
      const isConsent = !isExpired && sid !== undefined && revocations !== undefined;
      const boundTo = isConsent ? { sid, revocations } : {};
      const { client_id: clientId, request_uri: requestUri = '' } = parameters;
      const opened = requestUri.startsWith(REQUEST_URI)
        ? await deps.pushed.resume(clientId, requestUri)
        : undefined;
      // The metadata of the client was fetched for the form.
      const validated = withPushed(
        await validateAuthorizationRequest(opened?.parameters ?? parameters, directory.findClient, deps),
        opened && { requestUri, pushedAt: opened.pushedAt, isForm: true },
      );
      if ('request' in validated && hintedSub !== undefined) validated.request.hintedSub = hintedSub;
      return { validated, boundTo, proven, isExpired };
    },
  };
}

/** What a form contains of its request: of a pushed one only the name, because the content of a form can be read. */
function namedIn({ parameters, hintedSub, pushed }: AuthorizationRequest): ClientInteraction {
  const { client_id: clientId = '', id_token_hint: _, ...others } = parameters;
  if (pushed) return { parameters: { client_id: clientId, request_uri: pushed.requestUri } };
  return {
    parameters: { client_id: clientId, ...others },
    ...(hintedSub !== undefined && { hintedSub }),
  };
}

/** A delegation and an approval are given by a person who has seen their page, and by nothing else. */
const refuseUnasked = (
  { delegation, details }: AuthorizationRequest,
  wasAsked: boolean,
): RuleViolation | null =>
  (delegation || details) && !wasAsked
    ? {
        error: 'access_denied',
        description: 'Only a person can allow this, on a page in a browser.',
      }
    : null;

const actingNow = ({ id, epoch }: Principal) => ({
  agent: id,
  ...(epoch !== undefined && { agentEpoch: epoch }),
});

const isCookie = (value: string): boolean => /^[\w-]{43}$/.test(value);
