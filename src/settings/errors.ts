import { defineErrors } from '../kernel/errors.js';

export const settingsErrors = defineErrors({
  VERSION_CONFLICT: [
    409,
    'Somebody changed the settings in the meantime. Read them again and repeat the change.',
  ],
  MAINTENANCE: [503, 'The service is under maintenance. Try again later.'],
});
