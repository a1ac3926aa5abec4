import { defineErrors, type ErrorDetail, httpErrors } from '../kernel/errors.js';

export const provisioningErrors = defineErrors({
  invalid_kind: [400, "kind must be 'agent' or 'human'."],
  kind_not_allowed: [400, 'This endpoint makes agents only.'],
  invalid_days: [400, 'days must be a whole number from 1 to 30.'],
  browser_basic: [400, 'HTTP Basic is for agents. A browser signs in with the form.'],
  invalid_credentials: [401, 'The handle or the password is wrong.'],
  signup_disabled: [403, 'Sign-up is closed. Ask the operator.'],
  foreign_form: [403, 'This form was sent from somewhere else. Open the link again.'],
  link_unknown: [404, 'This link does not work (any more). Ask whoever gave it to you for a new one.'],
  handle_taken: [409, 'This handle is taken.'],
  wrong_state: [409, 'This is not possible in the state that the principal is in.'],
  link_spent: [410, 'This link does not work (any more). Ask whoever gave it to you for a new one.'],
  passwords_differ: [422, 'The two passwords differ.'],
  admin_api_disabled: [501, 'The operator has not set an administrator token.'],
});

/** What is wrong with the fields of a request. */
export const invalid = (...details: ErrorDetail[]) => httpErrors.VALIDATION_ERROR({ details });
