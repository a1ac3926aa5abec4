import type { Rule } from '../rule.js';

/** Request objects are not supported (OIDC Core §6.1): saying so beats ignoring what they ask for. */
export const refuseRequestObjects: Rule = ({ parameters }) => {
  const name = ['request', 'request_uri'].find((candidate) => parameters[candidate] !== undefined);
  return name ? { error: `${name}_not_supported`, description: `${name} is not supported.` } : null;
};
