import type { Client } from '../../model.js';
import type { Parameters } from '../request.js';
import { limitLengths } from './lengths.js';
import { requirePkce } from './pkce.js';
import { excludeOtherPrompts } from './prompt.js';
import { refuseRequestObjects } from './request-objects.js';
import { requireQueryMode } from './response-mode.js';
import { requireCode } from './response-type.js';

/** An error that the application learns by redirect: a code of RFC 6749 §4.1.2.1 or OIDC Core §3.1.2.6, and a sentence. */
export interface RuleViolation {
  error: string;
  description: string;
}

/** One rule about a request whose client and redirect URI are known. */
export type Rule = (request: { parameters: Parameters; client: Client }) => RuleViolation | null;

/** In this order; the first violation is the answer. */
export const RULES: readonly Rule[] = [
  limitLengths,
  refuseRequestObjects,
  requireCode,
  requireQueryMode,
  requirePkce,
  excludeOtherPrompts,
];
