import { defineErrors } from '../../core/kernel/errors.js';

export const settingsErrors = defineErrors({
  MAINTENANCE: [503, 'The service is under maintenance. Try again later.'],
});
