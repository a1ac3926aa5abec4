import type { Rule } from '../rule.js';

/** Seconds since the person last typed a password (OIDC Core §3.1.2.1). */
export const requireWholeMaxAge: Rule = ({ parameters: { max_age: age = '0' } }) =>
  /^\d{1,10}$/.test(age)
    ? null
    : { error: 'invalid_request', description: 'max_age must be a whole number of seconds.' };
