import { findRefusal } from '../admission.js';
import type { SignedInUser } from '../sessions.js';
import type { AuthorizationRequest } from './request.js';
import type { RuleViolation } from './rules.js';

/** A page that the user must complete before the response to the application. */
export type InteractionKind = 'login' | 'sign-up' | 'consent';

/** Whether the request asks for a new account (Initiating User Registration via OpenID Connect 1.0). */
export const asksForSignUp = ({ hintedSub, ...request }: AuthorizationRequest): boolean =>
  hintedSub === undefined && promptsOf(request).includes('create');

/**
 * Whether the user has signed in for this request, which satisfies it: a pushed one keeps its `prompt` and its `max_age` when it
 * is opened again.
 */
const hasSignedInFor = ({ pushed }: AuthorizationRequest, { session }: SignedInUser): boolean =>
  pushed !== undefined && pushed.page === undefined && session.authTime >= pushed.pushedAt;

/** The interaction that a request requires (OIDC Core §3.1.2.3); `null` if none is required. */
export function requiredInteraction(
  request: AuthorizationRequest,
  user: SignedInUser | null,
  {
    now,
    hasConsent,
    canStepUp,
    mustSignIn,
  }: { now: number; hasConsent: boolean; canStepUp: boolean; mustSignIn: boolean },
): InteractionKind | null {
  const { parameters, client, delegation, details, hintedSub } = request;
  if (asksForSignUp(request) && !(user && hasSignedInFor(request, user))) return 'sign-up';
  if (!user) return 'login';
  const { principal } = user;
  const prompts = promptsOf(request);
  const asksForLogin =
    prompts.includes('login') ||
    prompts.includes('select_account') ||
    isTooOld(parameters['max_age'], user, now);
  const refusal = findRefusal(request, principal);
  // A principal that may not use the client or a resource gets the refusal at once; another account may be in the group.
  if (refusal && !(refusal.isByGroup && asksForLogin)) return null;
  if (
    (asksForLogin && !hasSignedInFor(request, user)) ||
    isTooOld(delegation?.maxSignInAge, user, now) ||
    mustSignIn ||
    (canStepUp && needsSecondFactor(request, user)) ||
    (hintedSub ?? principal.id) !== principal.id
  )
    return 'login';
  if (prompts.includes('consent') || delegation || details) return 'consent';
  return client.trusted || hasConsent ? null : 'consent';
}

export function promptsOf({
  parameters: { prompt = '' },
}: Pick<AuthorizationRequest, 'parameters'>): string[] {
  return prompt.split(' ');
}

/** The errors for `prompt=none`, which forbids every page (OIDC Core §3.1.2.6). */
export const INTERACTION_ERRORS: Readonly<Record<'login' | 'consent', RuleViolation>> = {
  login: { error: 'login_required', description: 'The user is not signed in.' },
  consent: { error: 'consent_required', description: 'The user has not given consent.' },
};

/** Whether the application asks for a second factor that the sign-in had not (RFC 9470 §5). */
export function needsSecondFactor(
  { parameters: { acr_values: values = '' } }: Pick<AuthorizationRequest, 'parameters'>,
  { session }: SignedInUser,
): boolean {
  return session.amr === undefined && values.split(' ')[0] === 'mfa';
}

/** Includes equality, so that `max_age=0` always requires a sign-in. */
function isTooOld(maxAge: string | number | undefined, { session }: SignedInUser, now: number): boolean {
  return maxAge !== undefined && session.authTime + Number(maxAge) * 1000 <= now;
}
