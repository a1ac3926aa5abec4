import type { Clock } from '../../kernel/clock.js';
import { newId, newToken, type Random, sha256 } from '../../kernel/secrets.js';
import type { Audit } from '../../ops/audit.js';
import { ACR_VALUES } from '../claims.js';
import { newGrantToken } from '../grant-tokens.js';
import type { ReadHint } from '../hints.js';
import type { Directory, Principal } from '../model.js';
import { GRANT, type Grants, type SessionDocument } from '../store.js';
import { CODE_LIFE } from '../tokens/token-lifetimes.js';
import type { InteractionTokens } from './interaction-token.js';
import { withAnswer } from './redirect-uri.js';
import { type AuthorizationRequest, type Judgement, judgeRequest, type Refusal } from './request.js';
import type { Parameters, RuleViolation } from './rule.js';

/** From a request to its answer: an authorization code, an error for the application, or a form in between. */
export interface Authorization {
  /** @throws invalid_request */
  judge(parameters: Parameters): Promise<Judgement>;
  /** The address that tells the application what was wrong. */
  refuse(refusal: Refusal): string;
  /** Why this principal may not be the answer to the request, or `null`. */
  objection(request: AuthorizationRequest, principal: Principal): RuleViolation | null;
  /** The address that brings the application its code, or the objection to whom it would be for. */
  approve(request: AuthorizationRequest, who: Approved, ip: string): Promise<string>;
  /** Issues the token of a form that is about to be shown to the browser with this cookie, or with a new one. */
  beginInteraction(
    request: AuthorizationRequest,
    cookie: string | undefined,
    sid?: string,
  ): { token: string; cookie: string };
  /**
   * The request that a form was shown for, validated again; `null` when the form is invalid, expired, or was shown to
   * another browser. A form may be submitted twice: a double click cancels the first answer, and the second must still
   * lead to the application.
   *
   * @throws invalid_request
   */
  resume(token: string, cookie: string | undefined): Promise<Resumed | null>;
}

export interface Approved {
  principal: Principal;
  /** Absent: it has proved who it is in the request itself. */
  session?: SessionDocument;
  /** Whether it proved who it is some time before. */
  isSilent?: boolean;
}

export interface Resumed {
  judged: Judgement;
  sid: string | undefined;
}

export interface AuthorizationDependencies {
  grants: Grants;
  interactionTokens: InteractionTokens;
  directory: Directory;
  readHint: ReadHint;
  issuer(): string;
  audit: Audit;
  clock: Clock;
  random: Random;
}

const WRONG_KIND: RuleViolation = {
  error: 'access_denied',
  description: 'This kind of principal is not allowed to sign in to this client.',
};
const SOMEBODY_ELSE: RuleViolation = {
  error: 'login_required',
  description: 'The signed-in user is not the user of id_token_hint.',
};

export function createAuthorization(deps: AuthorizationDependencies): Authorization {
  const { grants, interactionTokens, issuer, audit, clock, random } = deps;

  const refuse = ({ redirectUri, parameters, violation }: Refusal): string =>
    withAnswer(redirectUri, {
      error: violation.error,
      error_description: violation.description,
      state: parameters['state'],
      iss: issuer(),
    });

  const objection = ({ client, hintedSub }: AuthorizationRequest, { id, kind }: Principal) => {
    if (!client.principalKinds.includes(kind)) return WRONG_KIND;
    return hintedSub !== undefined && hintedSub !== id ? SOMEBODY_ELSE : null;
  };

  return {
    judge: (parameters) => judgeRequest(parameters, deps),
    refuse,
    objection,

    async approve(request, { principal, session, isSilent = false }, ip) {
      const violation = objection(request, principal);
      if (violation) return refuse({ ...request, violation });
      const { parameters, client, redirectUri, scope } = request;
      const id = newId(GRANT, clock, random);
      const code = newGrantToken('ac_', id, random);
      const now = clock.now();
      const { nonce, code_challenge: challenge, acr_values: acrValues } = parameters;
      const grant = {
        id,
        codeHash: sha256(code),
        clientId: client.id,
        sub: principal.id,
        ...(principal.epoch !== undefined && { epoch: principal.epoch }),
        redirectUri,
        scope,
        ...(nonce && { nonce }),
        ...(challenge && { challenge }),
        // Whoever asks gets the one class there is.
        ...(acrValues && { acr: ACR_VALUES[0] }),
        ...(session && { sid: session.id }),
        authTime: session?.authTime ?? now,
        createdAt: now,
        codeExpiresAt: now + CODE_LIFE,
      };
      const event = isSilent ? 'login.continued' : 'login.succeeded';
      await Promise.all([
        grants.insert(grant),
        audit.record({ event, subject: principal.id, ip, detail: client.id }),
      ]);
      return withAnswer(redirectUri, { code, state: parameters['state'], iss: issuer() });
    },

    beginInteraction({ parameters: { id_token_hint: _, ...parameters }, hintedSub }, known, sid) {
      const cookie = known !== undefined && isCookie(known) ? known : newToken(random);
      const interaction = {
        parameters,
        ...(hintedSub !== undefined && { hintedSub }),
        ...(sid !== undefined && { sid }),
      };
      return { token: interactionTokens.issue(interaction, cookie), cookie };
    },

    async resume(token, cookie) {
      if (cookie === undefined) return null;
      const interaction = interactionTokens.verify(token, cookie);
      if (!interaction) return null;
      const { parameters, hintedSub, sid } = interaction;
      const judged = await judgeRequest(parameters, deps);
      if ('request' in judged && hintedSub !== undefined) judged.request.hintedSub = hintedSub;
      return { judged, sid };
    },
  };
}

const isCookie = (value: string): boolean => /^[\w-]{43}$/.test(value);
