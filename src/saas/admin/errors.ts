import { defineErrors } from '../../core/kernel/errors.js';

export const adminErrors = defineErrors({
  ADMIN_NOT_CONFIGURED: [503, 'The admin area is not configured. Set ADMIN_PASSWORD.'],
});
