import { defineErrors } from '../../core/kernel/errors.js';

export const webhookErrors = defineErrors({
  TOO_MANY_ENDPOINTS: [409, 'There are as many endpoints as there may be. Remove one first.'],
  ENDPOINT_DISABLED: [409, 'The endpoint is disabled. Enable it first.'],
  DELIVERY_PENDING: [409, 'The delivery is attempted already.'],
});
