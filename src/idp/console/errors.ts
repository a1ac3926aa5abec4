import { defineErrors } from '../../core/kernel/errors.js';

export const operatorErrors = defineErrors({
  operators_only: [
    403,
    'This account is not an operator. On the host of the provider, idp operator grant makes it one. To use another account, sign out at /logout first.',
  ],
  foreign_request: [403, 'The form was submitted from another site. Open the page again.'],
});
