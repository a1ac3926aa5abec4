import { defineErrors } from '../../core/kernel/errors.js';

export const emailErrors = defineErrors({
  MAIL_NOT_RETRYABLE: [
    409,
    'The e-mail cannot be sent again: it has not failed, or its link was deleted with the last attempt. Send a new link from the page of the user.',
  ],
  MAIL_NOT_SENT: [422, 'The test e-mail was not sent.'],
});
