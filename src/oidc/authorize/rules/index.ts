import type { Rule } from '../rule.js';
import { limitLengths } from './lengths.js';
import { requireWholeMaxAge } from './max-age.js';
import { requirePkce } from './pkce.js';
import { excludeOtherPrompts } from './prompt.js';
import { refuseRequestObjects } from './request-objects.js';
import { requireQueryMode } from './response-mode.js';
import { requireCode } from './response-type.js';

/** In this order; the first violation is the answer. */
export const RULES: readonly Rule[] = [
  limitLengths,
  refuseRequestObjects,
  requireCode,
  requireQueryMode,
  requirePkce,
  excludeOtherPrompts,
  requireWholeMaxAge,
];
