import { defineErrors } from '../kernel/errors.js';

export const factorErrors = defineErrors({
  factor_changed: [409, 'The second factor was changed in the meantime. Open the page again.'],
});
