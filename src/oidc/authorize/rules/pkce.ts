import type { Rule } from '../rule.js';

/** S256 only; public clients cannot do without, because nothing else binds their code (RFC 7636, RFC 9700 §2.1.1). */
export const requirePkce: Rule = ({ parameters, client }) => {
  const { code_challenge: challenge, code_challenge_method: method } = parameters;
  const refuse = (description: string) => ({ error: 'invalid_request', description });
  if (challenge === undefined) {
    if (method !== undefined) return refuse('code_challenge is missing.');
    return client.secretHash === undefined ? refuse('Public clients must send a code_challenge.') : null;
  }
  if (method !== 'S256') return refuse('code_challenge_method must be S256.');
  return /^[\w-]{43}$/.test(challenge) ? null : refuse('code_challenge must be 43 base64url characters.');
};
