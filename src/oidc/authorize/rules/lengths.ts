import type { Rule } from '../rule.js';

const MOST = Object.entries({ state: 2048, nonce: 512, scope: 1024 });

/** What is stored or echoed has an end. */
export const limitLengths: Rule = ({ parameters }) => {
  const long = MOST.find(([name, most]) => (parameters[name]?.length ?? 0) > most);
  return long
    ? { error: 'invalid_request', description: `${long[0]} is longer than ${long[1]} characters.` }
    : null;
};
