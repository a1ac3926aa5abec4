import { defineErrors } from '../../core/kernel/errors.js';

export const provisioningErrors = defineErrors({
  invalid_kind: [400, "kind must be 'agent' or 'human'."],
  kind_not_allowed: [400, 'This endpoint creates agents only.'],
  invalid_client_metadata: [400, 'The client metadata is not supported.'],
  invalid_days: [400, 'days must be a whole number from 1 to 30.'],
  browser_basic: [400, 'HTTP Basic authentication is for agents. Use the sign-in form in a browser.'],
  invalid_credentials: [401, 'The handle or password is incorrect.'],
  signup_disabled: [403, 'Sign-up is disabled. Contact the operator.'],
  foreign_form: [403, 'The form was submitted from another site. Open the link again.'],
  link_unknown: [404, 'This link is invalid or has expired. Ask the sender for a new one.'],
  handle_taken: [409, 'This handle is already taken.'],
  email_taken: [409, 'This e-mail address is already taken.'],
  wrong_state: [409, 'The current state of the principal does not allow this operation.'],
  link_spent: [410, 'This link is invalid or has expired. Ask the sender for a new one.'],
  passwords_differ: [422, 'The passwords do not match.'],
  admin_api_disabled: [501, 'The administrator endpoints are disabled: IDP_ADMIN_TOKEN is not set.'],
});
