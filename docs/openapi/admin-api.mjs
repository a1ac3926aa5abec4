/** The same as `api.mjs` for the API of the admin area. */

const NOT_FOUND = ['NOT_FOUND'];
const PROVIDER = ['BILLING_NOT_CONFIGURED', 'PAYMENT_PROVIDER_ERROR'];
const PAGED = 'Pages of 50. `next` is the `after` of the next page, null at the end.';
const SEARCHED = `${PAGED} A search by a part of a text has one page: what finds more than 500 is refused.`;

const user = (verb, summary, more = {}) => [
  `POST /admin/api/users/:id/${verb}`,
  { summary, ...more, errors: [...NOT_FOUND, ...(more.errors ?? [])] },
];

const EACH =
  'Of everything that the query shows, up to 500. `confirm` is their number. Each change has its own audit record; what could not be changed is named.';
const all = (path, verb, id, summary) => [
  `POST /admin/api/${path}/all/${verb}`,
  { id, summary, description: EACH },
];

/** Changes of everything that a search or a filter shows. */
export const adminBulk = Object.fromEntries([
  all(
    'users',
    'send-verification',
    'adminSendVerifications',
    'Send each user the link to confirm the address',
  ),
  all('users', 'grant', 'adminGrantPlans', 'Give each user a plan without payment'),
  all('users', 'end-sessions', 'adminEndSessionsOfAll', 'End all sessions of each user'),
  all('users', 'suspend', 'adminSuspendUsers', 'Suspend each user'),
  all('mails', 'retry', 'adminRetryMails', 'Send each failed e-mail again'),
]);

export const adminUsers = {
  'GET /admin/api/users': { id: 'adminListUsers', summary: 'Users', description: SEARCHED },
  'GET /admin/api/users/:id': { id: 'adminGetUser', summary: 'A user', errors: NOT_FOUND },
  'GET /admin/api/users/:id/sessions': {
    id: 'adminListSessions',
    summary: 'The sessions of a user',
    description: PAGED,
    errors: NOT_FOUND,
  },
  'GET /admin/api/users/:id/purchases': {
    id: 'adminListPurchases',
    summary: 'The one-time purchases of a user',
    description: PAGED,
    errors: NOT_FOUND,
  },
  ...Object.fromEntries([
    user('export', 'Everything that is stored about a user', {
      id: 'adminExportUser',
      responses: { 200: { description: 'The export.', schema: { $ref: '#/components/schemas/Export' } } },
    }),
    user('rename', 'Change the name of a user', { id: 'adminRenameUser' }),
    user('note', 'Replace the note of operators about a user', {
      id: 'adminSetNote',
      description:
        'At most 2,000 characters; without `note` it is removed. `replaces` is the `at` of the note that was read, absent if there was none.',
      errors: ['VERSION_CONFLICT'],
    }),
    user('suspend', 'Suspend a user', { id: 'adminSuspendUser' }),
    user('unsuspend', 'End the suspension of a user', { id: 'adminUnsuspendUser' }),
    user('send-reset', 'Send a user the link to reset the password', { id: 'adminSendReset' }),
    user('send-verification', 'Send a user the link to confirm the address', {
      id: 'adminSendVerification',
    }),
    user('roles', 'Replace the roles of a user', { id: 'adminSetRoles' }),
    user('operator-role', 'Give a user a role in the admin area, or take it', { id: 'adminSetOperatorRole' }),
    user('fields', 'Change the fields of a user', { id: 'adminSetFields' }),
    user('grant', 'Give a user a plan without payment', { id: 'adminGrantPlan' }),
    user('revoke-grant', 'Take back a plan that was given', { id: 'adminRevokeGrant' }),
    user('remove-second-factor', 'Remove the second factor of a user', {
      id: 'adminRemoveSecondFactor',
      errors: ['FACTOR_CHANGED'],
    }),
    user('remove-passkeys', 'Remove the passkeys of a user', { id: 'adminRemovePasskeys' }),
    user('resync', 'Read the subscriptions of a user from the payment provider', {
      id: 'adminResyncUser',
      errors: PROVIDER,
    }),
    user('delete', 'Delete a user', {
      id: 'adminDeleteUser',
      description: '`confirm` is the e-mail address of the user.',
      errors: [...PROVIDER, 'STILL_REFERENCED'],
    }),
    user('end-sessions', 'End all sessions of a user', { id: 'adminEndSessions' }),
    user('sessions/:session/end', 'End a session of a user', { id: 'adminEndSession' }),
  ]),
};

const organization = (verb, summary, more = {}) => [
  `POST /admin/api/organizations/:id/${verb}`,
  { summary, ...more, errors: [...NOT_FOUND, ...(more.errors ?? [])] },
];

export const adminOrganizations = {
  'GET /admin/api/organizations': {
    id: 'adminListOrganizations',
    summary: 'Organizations',
    description: `\`q\` is any part of a name or a slug, or an ID. ${SEARCHED}`,
  },
  'GET /admin/api/organizations/:id': {
    id: 'adminGetOrganization',
    summary: 'An organization',
    errors: NOT_FOUND,
  },
  'GET /admin/api/organizations/:id/members': {
    id: 'adminListMembers',
    summary: 'The members of an organization',
    description: PAGED,
    errors: NOT_FOUND,
  },
  ...Object.fromEntries([
    organization('rename', 'Change the name and the slug of an organization', {
      id: 'adminRenameOrganization',
      errors: ['SLUG_TAKEN', 'ORGANIZATION_NOT_FOUND'],
    }),
    organization('add-member', 'Make a user a member of an organization', {
      id: 'adminAddMember',
      errors: [
        'ALREADY_MEMBER',
        'TOO_MANY_MEMBERS',
        'SEATS_TAKEN',
        'TOO_MANY_ORGANIZATIONS',
        'ORGANIZATION_NOT_FOUND',
      ],
    }),
    organization('members/:user/role', 'Change the role of a member', {
      id: 'adminChangeRole',
      errors: ['LAST_OWNER', 'ORGANIZATION_NOT_FOUND'],
    }),
    organization('members/:user/remove', 'Remove a member of an organization', {
      id: 'adminRemoveMember',
      errors: ['LAST_OWNER', 'ORGANIZATION_NOT_FOUND'],
    }),
    organization('grant', 'Give an organization a plan without payment', {
      id: 'adminGrantOrganizationPlan',
    }),
    organization('revoke-grant', 'Take back a plan that was given to an organization', {
      id: 'adminRevokeOrganizationGrant',
    }),
    organization('resync', 'Read the subscriptions of an organization from the payment provider', {
      id: 'adminResyncOrganization',
      errors: PROVIDER,
    }),
    organization('delete', 'Delete an organization', {
      id: 'adminDeleteOrganization',
      description: '`confirm` is the name of the organization.',
      errors: [...PROVIDER, 'STILL_REFERENCED', 'ORGANIZATION_NOT_FOUND'],
    }),
  ]),
};

const subscription = (verb, summary, more = {}) => [
  `POST /admin/api/subscriptions/:id/${verb}`,
  {
    summary,
    ...more,
    errors: [
      ...[...NOT_FOUND, ...PROVIDER, 'SUBSCRIPTION_NOT_FOUND', 'SUBSCRIPTION_NOT_CHANGEABLE'],
      ...(more.errors ?? []),
    ],
  },
];

export const adminOther = {
  'GET /admin/api/overview': { id: 'adminGetOverview', summary: 'The figures of the overview' },
  'GET /admin/api/subscriptions': {
    id: 'adminListSubscriptions',
    summary: 'Subscriptions',
    description: PAGED,
  },
  ...Object.fromEntries([
    subscription('change-plan', 'Change the price of a subscription', {
      id: 'adminChangePlan',
      errors: ['PRICE_NOT_ALLOWED', 'CURRENCY_MISMATCH', 'PAYMENT_DECLINED'],
    }),
    subscription('extend-trial', 'End the trial of a subscription later', {
      id: 'adminExtendTrial',
      description: '`until` is the last day, in UTC.',
    }),
    subscription('coupon', 'Give a subscription the discount of a promotion code or a coupon', {
      id: 'adminApplyCoupon',
      errors: ['PROMOTION_NOT_VALID'],
    }),
    subscription('cancel', 'Cancel a subscription at the end of its period', {
      id: 'adminCancelSubscription',
    }),
    subscription('resume', 'Take back the cancellation of a subscription, or end its pause', {
      id: 'adminResumeSubscription',
      errors: ['PAYMENT_DECLINED', 'PAYMENT_METHOD_REQUIRED'],
    }),
    subscription('cancel-now', 'End a subscription at once', { id: 'adminCancelSubscriptionNow' }),
  ]),
  'POST /admin/api/payments/:id/refund': {
    id: 'adminRefundPayment',
    summary: 'Refund a payment, or a part of it',
    description:
      'Amounts are in the smallest unit of the currency; without `amount`, what is left is refunded. `refundedAmount` is that of the payment as it was read, which makes a request that is sent again refund once.',
    errors: [...NOT_FOUND, ...PROVIDER, 'REFUND_REFUSED', 'VERSION_CONFLICT'],
  },
  'GET /admin/api/payments': { id: 'adminListPayments', summary: 'Payments', description: PAGED },
  'GET /admin/api/billing/duplicate-subscriptions': {
    id: 'adminListDuplicateSubscriptions',
    summary: 'Users with several subscriptions',
  },
  'GET /admin/api/webhooks': {
    id: 'adminListPaymentEvents',
    summary: 'Events of the payment provider',
    description: PAGED,
  },
  'GET /admin/api/webhooks/:id': {
    id: 'adminGetPaymentEvent',
    summary: 'An event of the payment provider',
    errors: NOT_FOUND,
  },
  'POST /admin/api/webhooks/:id/replay': {
    id: 'adminReplayPaymentEvent',
    summary: 'Process an event again',
    errors: [...NOT_FOUND, ...PROVIDER, 'EVENT_BODY_UNAVAILABLE', 'EVENT_IN_PROGRESS'],
  },
  'POST /admin/api/webhooks/:id/assign': {
    id: 'adminAssignPaymentEvent',
    summary: 'Assign an unmatched event to a user and process it',
    errors: [
      ...[...NOT_FOUND, ...PROVIDER, 'EVENT_BODY_UNAVAILABLE', 'EVENT_IN_PROGRESS'],
      'EVENT_ALREADY_MATCHED',
    ],
  },
  'GET /admin/api/endpoints': {
    id: 'adminListEndpoints',
    summary: 'Endpoints of webhooks',
    description: PAGED,
  },
  'POST /admin/api/endpoints/create': {
    id: 'adminCreateEndpoint',
    summary: 'Add an endpoint',
    description:
      'The secret is not shown again. `events` lists names, separated by spaces; without it, the endpoint receives all.',
    errors: ['TOO_MANY_ENDPOINTS'],
  },
  'GET /admin/api/endpoints/:id': { id: 'adminGetEndpoint', summary: 'An endpoint', errors: NOT_FOUND },
  'POST /admin/api/endpoints/:id/update': {
    id: 'adminUpdateEndpoint',
    summary: 'Change an endpoint',
    description: 'What is missing is removed.',
    errors: [...NOT_FOUND, 'VERSION_CONFLICT'],
  },
  'POST /admin/api/endpoints/:id/rotate': {
    id: 'adminRotateEndpointSecret',
    summary: 'Rotate the secret of an endpoint',
    description: 'The old secret signs beside the new one for 24 hours, unless `atOnce` is `yes`.',
    errors: [...NOT_FOUND, 'VERSION_CONFLICT'],
  },
  'POST /admin/api/endpoints/:id/disable': {
    id: 'adminDisableEndpoint',
    summary: 'Disable an endpoint',
    description: 'Its pending deliveries fail.',
    errors: NOT_FOUND,
  },
  'POST /admin/api/endpoints/:id/enable': {
    id: 'adminEnableEndpoint',
    summary: 'Enable an endpoint',
    errors: NOT_FOUND,
  },
  'POST /admin/api/endpoints/:id/remove': {
    id: 'adminRemoveEndpoint',
    summary: 'Remove an endpoint and its deliveries',
    errors: NOT_FOUND,
  },
  'POST /admin/api/endpoints/:id/test': {
    id: 'adminTestEndpoint',
    summary: 'Send the event webhook.test to an endpoint',
    errors: [...NOT_FOUND, 'ENDPOINT_DISABLED'],
  },
  'POST /admin/api/endpoints/:id/resend': {
    id: 'adminResendFailed',
    summary: 'Send the failed deliveries of an endpoint again, at most the oldest 1,000',
    errors: [...NOT_FOUND, 'ENDPOINT_DISABLED'],
  },
  'GET /admin/api/deliveries': {
    id: 'adminListDeliveries',
    summary: 'Deliveries of webhooks',
    description: PAGED,
  },
  'GET /admin/api/deliveries/:id': {
    id: 'adminGetDelivery',
    summary: 'A delivery with its payload and attempts',
    errors: NOT_FOUND,
  },
  'POST /admin/api/deliveries/:id/resend': {
    id: 'adminResendDelivery',
    summary: 'Send a delivery again',
    errors: [...NOT_FOUND, 'ENDPOINT_DISABLED', 'DELIVERY_PENDING'],
  },
  'GET /admin/api/mails': { id: 'adminListMails', summary: 'The outbox', description: PAGED },
  'GET /admin/api/mails/:id': { id: 'adminGetMail', summary: 'An e-mail of the outbox', errors: NOT_FOUND },
  'POST /admin/api/mails/:id/retry': {
    id: 'adminRetryMail',
    summary: 'Send a failed e-mail again',
    errors: [...NOT_FOUND, 'MAIL_NOT_RETRYABLE'],
  },
  'GET /admin/api/mails/templates/:name': {
    id: 'adminPreviewTemplate',
    summary: 'A template with sample data',
    errors: NOT_FOUND,
  },
  'POST /admin/api/mails/templates/:name/test': {
    id: 'adminSendTestMail',
    summary: 'Send a template with sample data',
    errors: [...NOT_FOUND, 'MAIL_NOT_SENT'],
  },
  'GET /admin/api/audit': { id: 'adminListAudit', summary: 'The audit', description: PAGED },
  'GET /admin/api/help': { id: 'adminGetInstallation', summary: 'What this installation has configured' },
  'GET /admin/api/settings': { id: 'adminGetSettings', summary: 'The settings' },
  'PATCH /admin/api/settings': {
    id: 'adminUpdateSettings',
    summary: 'Change the settings',
    description: '`version` is the one that was read.',
    errors: ['VERSION_CONFLICT'],
  },
  'GET /admin/api/settings/custom': {
    id: 'adminGetCustomSettings',
    summary: 'The settings of the host',
  },
  'PATCH /admin/api/settings/custom': {
    id: 'adminUpdateCustomSettings',
    summary: 'Change the settings of the host',
    errors: ['VERSION_CONFLICT'],
  },
};
