import { defineErrors } from '../../core/kernel/errors.js';

export const agentErrors = defineErrors({
  INSUFFICIENT_SCOPE: [403, 'The access token does not have the scope that this needs.'],
  APPROVAL_REQUIRED: [403, 'The person must approve this.'],
  ACCOUNT_NOT_CONNECTED: [
    403,
    'The person of the access token has not connected their account here with the identity provider.',
  ],
  AGENT_ACCOUNT_TAKEN: [409, 'This account of the identity provider is connected to another user.'],
  ALREADY_CONNECTED: [409, 'Another account of the identity provider is connected. Disconnect it first.'],
  IDENTITY_PROVIDER_UNAVAILABLE: [503, 'The identity provider does not respond. Try again later.'],
});
