import { defineErrors } from '../kernel/errors.js';

export const settingsErrors = defineErrors({
  VERSION_CONFLICT: [409, 'The settings were changed in the meantime. Reload them and repeat the change.'],
  MAINTENANCE: [503, 'The service is under maintenance. Try again later.'],
});
