import { defineErrors } from '../../core/kernel/errors.js';

export const accountErrors = defineErrors({
  sign_in_first: [401, 'You are not signed in. Open this page in a browser and sign in.'],
  login_rejected: [
    403,
    'The form was submitted from another site, belongs to another sign-in, or is older than 12 hours. Open the page again.',
  ],
});
