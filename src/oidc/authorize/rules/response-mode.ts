import type { Rule } from '../rule.js';

/** The answer travels in the query. */
export const requireQueryMode: Rule = ({ parameters: { response_mode: mode = 'query' } }) =>
  mode === 'query' ? null : { error: 'invalid_request', description: 'response_mode must be query.' };
