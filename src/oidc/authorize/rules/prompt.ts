import type { Rule } from '../rule.js';

/** `none` forbids every page, so it excludes every other prompt (OIDC Core §3.1.2.1). */
export const excludeOtherPrompts: Rule = ({ parameters: { prompt = '' } }) => {
  const asked = prompt.split(' ');
  return asked.includes('none') && asked.length > 1
    ? { error: 'invalid_request', description: 'prompt=none cannot be combined with other values.' }
    : null;
};
