import type { Clock } from '../../kernel/clock.js';
import { newId, newToken, type Random, sha256 } from '../../kernel/secrets.js';
import type { Audit } from '../../ops/audit.js';
import type { Directory, Principal } from '../model.js';
import { GRANT, type Grants, type InteractionDocument, type Interactions } from '../store.js';
import { withAnswer } from './redirect-uri.js';
import { type AuthorizationRequest, judgeRequest, type Refusal } from './request.js';
import type { Parameters, RuleViolation } from './rule.js';

/** From a request to its answer: an authorization code, an error for the application, or a form in between. */
export interface Authorization {
  /** @throws invalid_request */
  judge(parameters: Parameters): Promise<{ request: AuthorizationRequest } | { refusal: Refusal }>;
  /** The address that tells the application what was wrong. */
  refuse(refusal: Refusal): string;
  /**
   * The address that brings the application its code, or `access_denied` where principals of this kind may not
   * sign in.
   */
  approve(request: AuthorizationRequest, principal: Principal, ip: string): Promise<string>;
  /** Remembers a form that is about to be shown to the browser with this cookie, or a fresh one. */
  beginInteraction(
    parameters: Parameters,
    cookie: string | undefined,
  ): Promise<{ token: string; cookie: string }>;
  /**
   * The interaction that this form belongs to, if it was shown to this browser and is still fresh. Using it does not
   * end it: whoever clicks twice cancels the first answer, and must be led to the application by the second.
   */
  findInteraction(token: string, cookie: string | undefined): Promise<InteractionDocument | null>;
}

export interface AuthorizationDependencies {
  grants: Grants;
  interactions: Interactions;
  directory: Directory;
  issuer(): string;
  audit: Audit;
  clock: Clock;
  random: Random;
}

const CODE_LIFE = 60_000;
const INTERACTION_LIFE = 15 * 60_000;

const DENIED: RuleViolation = {
  error: 'access_denied',
  description: 'This kind of principal may not sign in here.',
};

export function createAuthorization(deps: AuthorizationDependencies): Authorization {
  const { grants, interactions, directory, issuer, audit, clock, random } = deps;

  const refuse = ({ redirectUri, parameters, violation }: Refusal): string =>
    withAnswer(redirectUri, {
      error: violation.error,
      error_description: violation.description,
      state: parameters['state'],
      iss: issuer(),
    });

  return {
    judge: (parameters) => judgeRequest(parameters, directory),
    refuse,

    async approve({ parameters, client, redirectUri, scope }, principal, ip) {
      if (!client.principalKinds.includes(principal.kind)) {
        return refuse({ redirectUri, parameters, violation: DENIED });
      }
      const code = newToken(random, 'ac_');
      const now = clock.now();
      const { nonce, code_challenge: challenge, acr_values: acrValues } = parameters;
      const grant = {
        id: newId(GRANT, clock, random),
        codeHash: sha256(code),
        clientId: client.id,
        sub: principal.id,
        ...(principal.epoch !== undefined && { epoch: principal.epoch }),
        redirectUri,
        scope,
        ...(nonce && { nonce }),
        ...(challenge && { challenge }),
        // Whoever asks gets the one class there is: no level of assurance (OIDC Core §2).
        ...(acrValues && { acr: '0' }),
        authTime: now,
        createdAt: now,
        codeExpiresAt: now + CODE_LIFE,
      };
      await Promise.all([
        grants.insert(grant),
        audit.record({ event: 'login.succeeded', subject: principal.id, ip, detail: client.id }),
      ]);
      return withAnswer(redirectUri, { code, state: parameters['state'], iss: issuer() });
    },

    async beginInteraction(parameters, known) {
      const token = newToken(random);
      const cookie = known !== undefined && isCookie(known) ? known : newToken(random);
      await interactions.insert({
        id: newId('int_', clock, random),
        tokenHash: sha256(token),
        cookieHash: sha256(cookie),
        parameters: { ...parameters },
        expiresAt: clock.now() + INTERACTION_LIFE,
      });
      return { token, cookie };
    },

    async findInteraction(token, cookie) {
      if (cookie === undefined) return null;
      const interaction = await interactions.findOne({ tokenHash: sha256(token) });
      const isTheirs = interaction?.cookieHash === sha256(cookie) && interaction.expiresAt > clock.now();
      return isTheirs ? interaction : null;
    },
  };
}

const isCookie = (value: string): boolean => /^[\w-]{43}$/.test(value);
