import { defineErrors } from '../../core/kernel/errors.js';

export const userPageErrors = defineErrors({
  FORM_REJECTED: [403, 'The form was submitted from another site. Open the page again.'],
});
