import type { Visitor } from '../sessions.js';
import type { AuthorizationRequest } from './request.js';
import type { RuleViolation } from './rule.js';

/** What has to happen between the person and us before the application gets its answer. */
export type Interaction = 'login' | 'consent';

interface Situation {
  request: AuthorizationRequest;
  /** Who has signed in before, in this browser. */
  visitor: Visitor;
  prompts: readonly string[];
  now: number;
}

/** One reason to ask. */
type Reason = readonly [Interaction, (situation: Situation) => boolean];

/** In this order; the first reason that holds decides. */
const REASONS: readonly Reason[] = [
  ['login', ({ prompts }) => prompts.includes('login') || prompts.includes('select_account')],
  ['login', ({ request, visitor, now }) => isTooOld(request.parameters['max_age'], visitor, now)],
  ['login', ({ request, visitor }) => (request.hintedSub ?? visitor.principal.id) !== visitor.principal.id],
  ['consent', ({ prompts }) => prompts.includes('consent')],
];

/**
 * What a request needs of a person (OIDC Core §3.1.2.3); `null`: nothing, the answer may be silent.
 * @param hasConsent asked last, where nothing else decides
 */
export async function neededInteraction(
  request: AuthorizationRequest,
  visitor: Visitor | null,
  { now, hasConsent }: { now: number; hasConsent(visitor: Visitor): Promise<boolean> },
): Promise<Interaction | null> {
  if (!visitor) return 'login';
  // Whoever is not let in learns it at once.
  if (!request.client.principalKinds.includes(visitor.principal.kind)) return null;
  const prompts = promptsOf(request);
  const reason = REASONS.find(([, holds]) => holds({ request, visitor, prompts, now }));
  if (reason) return reason[0];
  return request.client.trusted || (await hasConsent(visitor)) ? null : 'consent';
}

export function promptsOf({
  parameters: { prompt = '' },
}: Pick<AuthorizationRequest, 'parameters'>): string[] {
  return prompt.split(' ');
}

/** What the application is told where every page is forbidden (OIDC Core §3.1.2.6). */
export const FORBIDDEN_PAGES: Readonly<Record<Interaction, RuleViolation>> = {
  login: { error: 'login_required', description: 'The user is not signed in.' },
  consent: { error: 'consent_required', description: 'The user has not given consent.' },
};

/** At the very second, too, so that 0 always asks. */
function isTooOld(maxAge: string | undefined, { session }: Visitor, now: number): boolean {
  return maxAge !== undefined && session.authTime + Number(maxAge) * 1000 <= now;
}
