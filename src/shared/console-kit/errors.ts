import { defineErrors } from '../../core/kernel/errors.js';

export const consoleErrors = defineErrors({
  CSRF_REJECTED: [
    403,
    'The request did not come from the admin area, or the form is older than 12 hours: reload the page. API clients must send the X-Requested-With header.',
  ],
});
