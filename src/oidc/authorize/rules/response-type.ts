import type { Rule } from '../rule.js';

/** The code flow and no other: tokens in addresses leak (RFC 9700 §2.1.2). */
export const requireCode: Rule = ({ parameters: { response_type: type } }) => {
  if (type === 'code') return null;
  return type
    ? { error: 'unsupported_response_type', description: 'response_type must be code.' }
    : { error: 'invalid_request', description: 'response_type is missing.' };
};
