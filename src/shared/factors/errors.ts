import { defineErrors } from '../../core/kernel/errors.js';

export const factorErrors = defineErrors({
  FACTOR_EXISTS: [409, 'This account has a second factor already. Remove it before you set up another one.'],
  FACTOR_CHANGED: [409, 'The second factor was changed in the meantime. Open the page again.'],
});
