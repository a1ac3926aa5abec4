/**
 * What the schemas of saas-backend's API do not say: operation → ID, summary, and the errors beyond those that follow from
 * the access level, the body and the scope of the route.
 */
import { Type } from 'typebox';
import { Envelope } from '../../dist/src/core/http/schemas.js';
import { PublicSettingsWithCustom } from '../../dist/src/saas/settings/schemas.js';

const { custom, ...always } = PublicSettingsWithCustom.properties;
const PUBLIC_SETTINGS = Envelope(Type.Object({ ...always, custom: Type.Optional(custom) }));

/** Errors of a sign-in, whose account may be suspended or need a second factor. */
const SIGN_IN = ['ACCOUNT_SUSPENDED', 'SECOND_FACTOR_REQUIRED', 'SECOND_FACTOR_ENROLMENT_REQUIRED'];
/** A password or a recent sign-in proves the owner of an account. */
const PROOF = ['INVALID_CREDENTIALS', 'REAUTHENTICATION_REQUIRED'];
/** Calls to the payment provider. */
const PROVIDER = ['BILLING_NOT_CONFIGURED', 'PAYMENT_PROVIDER_ERROR'];
const CHANGE = [
  ...PROVIDER,
  'SUBSCRIPTION_NOT_FOUND',
  'SUBSCRIPTION_NOT_CHANGEABLE',
  'PAYMENT_DECLINED',
  'TAX_LOCATION_INVALID',
  'TAX_NOT_CONFIGURED',
];
const ORDER = [...CHANGE, 'PRICE_NOT_ALLOWED', 'CURRENCY_MISMATCH', 'PROMOTION_NOT_VALID'];

const SENT_ALWAYS =
  'The response is the same whether or not there is such an account. The e-mail is sent afterwards.';

export const authentication = {
  'POST /api/auth/register': {
    id: 'register',
    summary: 'Create an account',
    description:
      'With `REQUIRE_EMAIL_VERIFICATION`, the response is 202 for new and known addresses alike, and the account can be used once its address is confirmed.',
    errors: ['EMAIL_TAKEN', 'REGISTRATION_DISABLED', 'REGISTRATION_REJECTED', 'WEAK_PASSWORD'],
    rejectsUnknown: true,
  },
  'POST /api/auth/login': {
    id: 'login',
    summary: 'Sign in with a password',
    description:
      'If the account has a second factor, the response is 401 `SECOND_FACTOR_REQUIRED` with a `challenge` in `error`, with which `POST /api/auth/second-factor` continues.',
    errors: [...SIGN_IN, 'INVALID_CREDENTIALS', 'EMAIL_NOT_VERIFIED'],
  },
  'POST /api/auth/refresh': {
    id: 'refresh',
    summary: 'Exchange a refresh token for new tokens',
    description: 'A refresh token can be used once. Its reuse ends the session.',
    errors: ['INVALID_REFRESH_TOKEN', 'REFRESH_TOKEN_REUSED', 'ACCOUNT_SUSPENDED'],
  },
  'GET /api/auth/session': {
    id: 'getSession',
    summary: 'Who is signed in',
    description:
      'For servers that render pages: with an access token, or with `Session-Mode: cookie` and the cookie of the browser. Nothing is exchanged, so any number of requests may ask at once. `session` is null for a visitor who is not signed in, which is no error.',
    security: [null, 'accessToken'],
  },
  'POST /api/auth/session/token': {
    id: 'issueAccessToken',
    summary: 'Issue an access token for the session of a cookie',
    description:
      'For servers that call the API for a visitor, with `Session-Mode: cookie` and the cookie of the browser. The refresh token in the cookie is not exchanged.',
    errors: ['INVALID_REFRESH_TOKEN'],
  },
  'GET /api/auth/me': { id: 'getCurrentUser', summary: 'The user and the session of the access token' },
  'GET /api/auth/jwks': {
    id: 'getAccessTokenKeys',
    summary: 'The public keys of access tokens, as a JWK Set',
    description: 'With `JWT_ACCESS_KEY`. Other servers verify access tokens with them.',
  },
  'POST /api/auth/reauthenticate': {
    id: 'reauthenticate',
    summary: 'Prove again that this is the user',
    description:
      'The response is a new session, which routes that need a recent sign-in accept for ten minutes. It replaces that of the request, whose tokens end.',
    errors: ['INVALID_CREDENTIALS', 'SECOND_FACTOR_REQUIRED', 'INVALID_CODE'],
  },
  'POST /api/auth/logout': {
    id: 'logout',
    summary: 'End sessions',
    description:
      'A refresh token or an access token names the session. `scope` is `local` for this one, `others` for all others, `global` for all. A session that has ended is not an error.',
    errors: [
      'INVALID_REFRESH_TOKEN',
      'UNAUTHENTICATED',
      'TOKEN_EXPIRED',
      'ACCOUNT_SUSPENDED',
      'IMPERSONATED',
    ],
    security: ['accessToken', null],
  },
  'POST /api/auth/impersonation': {
    id: 'impersonate',
    summary: 'Act as another user',
    description:
      'For users with one of `IMPERSONATION_ROLES`. The response is a session of the other user that lasts for at most 30 minutes and can only read here; `POST /auth/logout` ends it.',
    errors: ['NOT_FOUND'],
  },
  'GET /api/auth/sessions': { id: 'listSessions', summary: 'The open sessions of the user' },
  'DELETE /api/auth/sessions/:id': { id: 'endSession', summary: 'End a session', errors: ['NOT_FOUND'] },
  'POST /api/auth/forgot-password': {
    id: 'forgotPassword',
    summary: 'Send a link to reset the password',
    description: SENT_ALWAYS,
  },
  'POST /api/auth/resend-verification': {
    id: 'resendVerification',
    summary: 'Send another link to confirm the address',
    description: SENT_ALWAYS,
  },
  'POST /api/auth/reset-password': {
    id: 'resetPassword',
    summary: 'Set a new password with the token of a mailed link',
    errors: ['INVALID_TOKEN', 'WEAK_PASSWORD'],
  },
  'POST /api/auth/verify-email': {
    id: 'verifyEmail',
    summary: 'Confirm an address with the token of a mailed link',
    errors: [
      ...['INVALID_TOKEN', 'WEAK_PASSWORD', 'EMAIL_TAKEN', 'INVALID_CREDENTIALS'],
      ...['UNAUTHENTICATED', 'TOKEN_EXPIRED', 'ACCOUNT_SUSPENDED', 'IMPERSONATED'],
    ],
    security: ['accessToken', null],
  },
  'POST /api/auth/unlock': {
    id: 'unlock',
    summary: 'Allow sign-in from this device again with the token of a mailed link',
    errors: ['INVALID_TOKEN'],
  },
};

export const secondFactor = {
  'POST /api/auth/second-factor': {
    id: 'completeSignIn',
    summary: 'Complete a sign-in with a code of the second factor',
    errors: ['INVALID_CHALLENGE', 'INVALID_CODE', 'ACCOUNT_SUSPENDED', 'SECOND_FACTOR_ENROLMENT_REQUIRED'],
  },
  'POST /api/auth/second-factor/begin': {
    id: 'beginRequiredSecondFactor',
    summary: 'Begin to set up a second factor that the sign-in requires',
    errors: ['INVALID_CHALLENGE', 'FACTOR_EXISTS', 'FACTOR_CHANGED', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/auth/second-factor/confirm': {
    id: 'confirmRequiredSecondFactor',
    summary: 'Confirm the second factor with its first code, and complete the sign-in',
    errors: [
      'INVALID_CHALLENGE',
      'INVALID_CODE',
      'FACTOR_EXISTS',
      'FACTOR_CHANGED',
      'ACCOUNT_SUSPENDED',
      'SECOND_FACTOR_REQUIRED',
    ],
  },
  'GET /api/user/second-factor': { id: 'getSecondFactor', summary: 'Whether the user has a second factor' },
  'POST /api/user/second-factor/begin': {
    id: 'beginSecondFactor',
    summary: 'Begin to set up a second factor',
    errors: ['EMAIL_NOT_VERIFIED', 'FACTOR_EXISTS', 'FACTOR_CHANGED', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/user/second-factor/confirm': {
    id: 'confirmSecondFactor',
    summary: 'Confirm the second factor with its first code',
    errors: ['INVALID_CODE', 'FACTOR_EXISTS', 'FACTOR_CHANGED', 'NOT_FOUND', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/user/second-factor/recovery-codes': {
    id: 'renewRecoveryCodes',
    summary: 'Replace the recovery codes',
    errors: ['INVALID_CODE', 'FACTOR_CHANGED', 'NOT_FOUND', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/user/second-factor/remove': {
    id: 'removeSecondFactor',
    summary: 'Remove the second factor',
    errors: [...PROOF, 'INVALID_CODE', 'FACTOR_CHANGED', 'NOT_FOUND', 'SECOND_FACTOR_REQUIRED'],
  },
};

export const otherLogins = {
  'POST /api/auth/email-login': {
    id: 'requestLoginCode',
    summary: 'Send a code to sign in',
    description: SENT_ALWAYS,
  },
  'POST /api/auth/email-login/redeem': {
    id: 'redeemLoginCode',
    summary: 'Sign in with a mailed code',
    errors: [
      ...SIGN_IN,
      'INVALID_CODE',
      'CODE_EXPIRED',
      'REGISTRATION_DISABLED',
      'REGISTRATION_REJECTED',
      'EMAIL_TAKEN',
    ],
  },
  'POST /api/auth/passkey/begin': {
    id: 'beginPasskeyLogin',
    summary: 'Begin a sign-in with a passkey',
    description: 'The browser needs `options`, and `POST /api/auth/passkey` the token `ceremony`.',
  },
  'POST /api/auth/passkey': {
    id: 'passkeyLogin',
    summary: 'Sign in with a passkey',
    errors: [
      ...SIGN_IN,
      ...['PASSKEY_EXPIRED', 'INVALID_PASSKEY', 'EMAIL_NOT_VERIFIED', 'INVALID_TOKEN', 'INVALID_CREDENTIALS'],
    ],
  },
  'POST /api/auth/register/passkey/begin': {
    id: 'beginPasskeyRegistration',
    summary: 'Begin the registration with a passkey',
    description: 'The response is the same for every address.',
    errors: ['REGISTRATION_DISABLED'],
    rejectsUnknown: true,
  },
  'POST /api/auth/register/passkey': {
    id: 'registerWithPasskey',
    summary: 'Create an account with a passkey and without a password',
    description:
      'With `REQUIRE_EMAIL_VERIFICATION`, the response is 202, and the account can be used once its address is confirmed.',
    errors: [
      'PASSKEY_EXPIRED',
      'PASSKEY_REJECTED',
      'EMAIL_TAKEN',
      'REGISTRATION_DISABLED',
      'REGISTRATION_REJECTED',
    ],
  },
  'GET /api/user/passkeys': { id: 'listPasskeys', summary: 'The passkeys of the user' },
  'POST /api/user/passkeys/begin': {
    id: 'beginAddingPasskey',
    summary: 'Begin to add a passkey',
    errors: ['EMAIL_NOT_VERIFIED', 'TOO_MANY_PASSKEYS', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/user/passkeys': {
    id: 'addPasskey',
    summary: 'Add a passkey',
    errors: [
      'EMAIL_NOT_VERIFIED',
      'PASSKEY_EXPIRED',
      'PASSKEY_REJECTED',
      'TOO_MANY_PASSKEYS',
      'SECOND_FACTOR_REQUIRED',
    ],
  },
  'POST /api/user/passkeys/rename': {
    id: 'renamePasskey',
    summary: 'Rename a passkey',
    errors: ['NOT_FOUND', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/user/passkeys/remove': {
    id: 'removePasskey',
    summary: 'Remove a passkey',
    description: 'An account with a password sends it, any other one needs a recent sign-in.',
    errors: [...PROOF, 'NOT_FOUND', 'LAST_LOGIN_METHOD', 'SECOND_FACTOR_REQUIRED'],
  },
  'GET /api/auth/providers': { id: 'listProviders', summary: 'The providers at which users can sign in' },
  'GET /api/auth/login/:provider': {
    id: 'beginProviderLogin',
    isForBrowsers: true,
    summary: 'Send the browser to a provider to sign in',
    description:
      'Open this address in the browser; it is not for `fetch`. With `prompt=login`, the provider asks the person to sign in again, so that the session is recent.',
    responses: { 303: { description: 'To the provider.', headers: ['location', 'set-cookie'] } },
    errors: ['RETURN_NOT_ALLOWED', 'PROVIDER_UNAVAILABLE', 'NOT_FOUND'],
  },
  'GET /api/auth/callback/:provider': {
    id: 'finishProviderLogin',
    isForBrowsers: true,
    summary: 'Where a provider sends the browser after the sign-in',
    description: 'Redirects to `returnTo` with a `ticket` for `POST /api/auth/exchange`, or with an `error`.',
    query: { code: 'The authorization code.', state: 'The state of the request.', error: 'The error.' },
    responses: { 303: { description: 'To the application.', headers: ['location'] } },
    errors: ['LOGIN_EXPIRED', 'NOT_FOUND', 'PROVIDER_UNAVAILABLE'],
  },
  'POST /api/auth/callback/:provider': {
    id: 'finishProviderForm',
    hasForm: true,
    isForBrowsers: true,
    summary: 'Where a provider submits its response as a form (`responseMode`)',
    description:
      'Redirects like the address for responses in the query, or to it: browsers send it no cookie.',
    responses: {
      303: {
        description: 'To the application, or to the same address with the query.',
        headers: ['location'],
      },
    },
    errors: ['LOGIN_EXPIRED', 'NOT_FOUND', 'PROVIDER_UNAVAILABLE'],
  },
  'POST /api/auth/exchange': {
    id: 'exchangeTicket',
    summary: 'Exchange the ticket of a provider sign-in for tokens',
    errors: [
      ...[...SIGN_IN, 'INVALID_TICKET', 'ACCOUNT_EXISTS', 'REGISTRATION_DISABLED', 'REGISTRATION_REJECTED'],
      ...['PROVIDER_EMAIL_NOT_VERIFIED', 'EMAIL_NOT_VERIFIED', 'EMAIL_TAKEN'],
    ],
  },
  'GET /api/user/identities': { id: 'listIdentities', summary: 'The connected providers of the user' },
  'POST /api/user/identities': {
    id: 'connectIdentity',
    summary: 'Connect a provider to the account',
    errors: ['INVALID_TICKET', 'IDENTITY_TAKEN', 'EMAIL_NOT_VERIFIED', 'SECOND_FACTOR_REQUIRED'],
  },
  'DELETE /api/user/identities/:id': {
    id: 'disconnectIdentity',
    summary: 'Disconnect a provider from the account',
    errors: ['LAST_LOGIN_METHOD', 'NOT_FOUND', 'SECOND_FACTOR_REQUIRED'],
  },
};

export const agents = {
  'GET /.well-known/oauth-protected-resource/api': {
    id: 'getResourceMetadata',
    summary: 'Where agents get access tokens for the API (RFC 9728)',
    description: 'At the path of `AGENT_RESOURCE` below `/.well-known/oauth-protected-resource`.',
    responses: {
      200: {
        description: 'The metadata.',
        schema: { type: 'object' },
        example: {
          resource: 'https://app.example.com/api',
          authorization_servers: ['https://id.example.com'],
          scopes_supported: ['profile:read', 'billing:read', 'billing:write'],
          bearer_methods_supported: ['header'],
        },
      },
    },
  },
  'GET /api/auth/agents/connect': {
    id: 'beginAgentConnection',
    isForBrowsers: true,
    summary: 'Send the browser to the identity provider, to connect the account of the user there',
    description: 'Open this address in the browser; it is not for `fetch`.',
    responses: {
      303: {
        description: 'To the identity provider, or to `returnTo` with an `error`.',
        headers: ['location', 'set-cookie'],
      },
    },
    errors: ['RETURN_NOT_ALLOWED'],
  },
  'GET /api/auth/agents/callback': {
    id: 'finishAgentConnection',
    isForBrowsers: true,
    summary: 'Where the identity provider sends the browser',
    description:
      'Redirects to `returnTo` with a `ticket` for `POST /api/user/agent-account`, or with an `error`.',
    query: { code: 'The authorization code.', state: 'The state of the request.', error: 'The error.' },
    responses: { 303: { description: 'To the application.', headers: ['location'] } },
    errors: ['LOGIN_EXPIRED'],
  },
  'GET /api/user/agent-account': {
    id: 'getAgentAccount',
    summary: 'Whether an account of the identity provider is connected',
  },
  'POST /api/user/agent-account': {
    id: 'connectAgentAccount',
    summary: 'Connect the account of the identity provider whose agents may act for the user',
    errors: ['INVALID_TICKET', 'AGENT_ACCOUNT_TAKEN', 'ALREADY_CONNECTED', 'EMAIL_NOT_VERIFIED'],
  },
  'DELETE /api/user/agent-account': {
    id: 'disconnectAgentAccount',
    summary: 'Disconnect it, which ends the access of every agent at once',
  },
};

export const account = {
  'POST /api/user/password': {
    id: 'changePassword',
    summary: 'Change the password and end all other sessions',
    errors: ['INVALID_CREDENTIALS', 'WEAK_PASSWORD'],
  },
  'POST /api/user/email': {
    id: 'changeEmail',
    summary: 'Begin to change the e-mail address',
    description:
      'The new address applies once its link is opened. Accounts without a password need a sign-in within the last ten minutes.',
    errors: [...PROOF, 'EMAIL_TAKEN', 'SECOND_FACTOR_REQUIRED'],
  },
  'POST /api/user/delete': {
    id: 'deleteAccount',
    summary: 'Delete the account',
    description: 'Ends its subscriptions and deletes its data. It cannot be undone.',
    errors: ['LAST_OWNER', ...PROOF, ...PROVIDER, 'STILL_REFERENCED', 'SECOND_FACTOR_REQUIRED'],
  },
  'GET /api/user/export': {
    id: 'exportAccount',
    summary: 'Everything that is stored about the user',
    description: 'One at a time. Secrets, hashes and counters are left out.',
    responses: { 200: { description: 'The export.', schema: { $ref: '#/components/schemas/Export' } } },
  },
  'GET /api/user/profile': { id: 'getProfile', summary: 'The profile of the user' },
  'PATCH /api/user/profile': {
    id: 'updateProfile',
    summary: 'Change the profile of the user',
    description:
      'Unlike other routes, it rejects unknown fields. `name` is required without the option `userFields`.',
    rejectsUnknown: true,
    errors: ['NOT_FOUND'],
  },
};

export const billing = {
  'GET /api/billing/plans': { id: 'listPlans', summary: 'The plans for sale', errors: PROVIDER },
  'POST /api/billing/create-checkout-session': {
    id: 'createCheckoutSession',
    summary: 'Open a page on which the user buys a plan',
    errors: [
      ...[...PROVIDER, 'ALREADY_SUBSCRIBED', 'VERSION_CONFLICT', 'PRICE_NOT_ALLOWED', 'CURRENCY_MISMATCH'],
      ...['PROMOTION_NOT_VALID', 'TAX_NOT_CONFIGURED', 'TAX_LOCATION_INVALID', 'PAYMENT_DECLINED'],
    ],
  },
  'POST /api/billing/create-portal-session': {
    id: 'createPortalSession',
    summary: 'Open the page on which the user manages payment methods and invoices',
    errors: [...PROVIDER, 'CUSTOMER_NOT_FOUND'],
  },
  'GET /api/billing/subscription': {
    id: 'getSubscription',
    summary: 'The subscription of the user',
    description: '`entitled` alone decides on access.',
    errors: PROVIDER,
  },
  'GET /api/billing/holdings': {
    id: 'getHoldings',
    summary: 'What the user holds: subscriptions, purchases and grants',
    description: 'Each with its state and what can be done with it, those that give access first.',
    errors: PROVIDER,
  },
  'GET /api/billing/usage': {
    id: 'getUsage',
    summary: 'What the user has used of the limits of the plans',
  },
  'POST /api/billing/sync': {
    id: 'syncSubscription',
    summary: 'Read the subscription from the payment provider',
    description: 'For the page after a purchase, which may be shown before the webhook arrives.',
    errors: [...PROVIDER, 'NOT_FOUND', 'CUSTOMER_NOT_FOUND'],
  },
  'GET /api/billing/invoices': {
    id: 'listInvoices',
    summary: 'The newest invoices of the user',
    errors: PROVIDER,
  },
  'GET /api/billing/purchases': {
    id: 'listPurchases',
    summary: 'The one-time purchases of the user, the newest first',
  },
  'GET /api/billing/subscription/change/preview': {
    id: 'previewSubscriptionChange',
    summary: 'What a change would charge now',
    errors: ORDER,
  },
  'POST /api/billing/subscription/change': {
    id: 'changeSubscription',
    summary: 'Change the price or the quantity of the subscription, now or at the end of the period',
    description:
      'If the bank wants the user to confirm the payment, the answer has `paymentUrl`, and the change is made then.',
    errors: ORDER,
  },
  'POST /api/billing/subscription/change/undo': {
    id: 'undoSubscriptionChange',
    summary: 'Take back a change that is scheduled or awaits its payment',
    errors: CHANGE,
  },
  'POST /api/billing/subscription/add-ons': {
    id: 'setAddOn',
    summary: 'Add an add-on to the subscription, or change its quantity',
    errors: [...ORDER, 'ALREADY_SUBSCRIBED'],
  },
  'GET /api/billing/subscription/add-ons/preview': {
    id: 'previewAddOn',
    summary: 'What an add-on would charge now',
    errors: [...ORDER, 'ALREADY_SUBSCRIBED'],
  },
  'POST /api/billing/subscription/add-ons/remove': {
    id: 'removeAddOn',
    summary: 'Remove an add-on',
    description: 'An item of the subscription ends at once, a subscription of its own with its period.',
    errors: [...CHANGE, 'PRICE_NOT_ALLOWED'],
  },
  'POST /api/billing/subscription/promotion-code': {
    id: 'applyPromotionCode',
    summary: 'Use a promotion code for the subscription',
    errors: [...CHANGE, 'PROMOTION_NOT_VALID', 'RATE_LIMITED'],
  },
  'POST /api/billing/subscription/cancel': {
    id: 'cancelSubscription',
    summary: 'Cancel the subscription, at the end of the period or now',
    errors: CHANGE,
  },
  'POST /api/billing/subscription/resume': {
    id: 'resumeSubscription',
    summary: 'Take back a cancellation, or end a pause and collect the payment',
    errors: [...CHANGE, 'PAYMENT_METHOD_REQUIRED'],
  },
  'POST /api/billing/subscription/pause': {
    id: 'pauseSubscription',
    summary: 'Pause the subscription: no access and no invoices',
    description: 'Only with `BILLING_ALLOW_PAUSE`.',
    errors: [...CHANGE, 'FORBIDDEN'],
  },
  'POST /api/billing/webhook': {
    id: 'receivePaymentEvent',
    summary: 'Receive an event of the payment provider',
    description: 'The signature covers the bytes of the body.',
    security: ['webhookSignature'],
    body: {
      type: 'object',
      description: 'An event of the payment provider.',
      properties: { id: { type: 'string' }, type: { type: 'string' } },
      required: ['id', 'type'],
    },
    errors: ['INVALID_SIGNATURE', 'EVENT_IN_PROGRESS', ...PROVIDER],
  },
};

const OF_MEMBER = ['ORGANIZATION_NOT_FOUND'];
const BY_ROLE = [...OF_MEMBER, 'ROLE_REQUIRED'];

export const organizations = {
  'POST /api/organizations': {
    id: 'createOrganization',
    summary: 'Create an organization, which belongs to the user',
    description: 'Without `slug`, one is made of the name.',
    errors: ['SLUG_TAKEN', 'TOO_MANY_ORGANIZATIONS', 'NOT_FOUND'],
  },
  'GET /api/organizations': {
    id: 'listOrganizations',
    summary: 'The organizations of the user, with the role in each, and the active one of the session',
  },
  'POST /api/organizations/active': {
    id: 'chooseOrganization',
    summary: 'Choose the organization that is active in this session',
    description: 'By ID or slug; `null` for none.',
    errors: OF_MEMBER,
  },
  'GET /api/organizations/:organization': {
    id: 'getOrganization',
    summary: 'An organization of the user',
    errors: OF_MEMBER,
  },
  'PATCH /api/organizations/:organization': {
    id: 'updateOrganization',
    summary: 'Change the name, the slug or the logo',
    description: 'With the permission `organization:update`.',
    errors: [...BY_ROLE, 'SLUG_TAKEN'],
  },
  'DELETE /api/organizations/:organization': {
    id: 'deleteOrganization',
    summary: 'Delete an organization with its data, and cancel its subscriptions',
    description: 'Owners only.',
    errors: [...BY_ROLE, 'PAYMENT_PROVIDER_ERROR'],
  },
  'GET /api/organizations/:organization/members': {
    id: 'listMembers',
    summary: 'The members, the oldest first',
    errors: OF_MEMBER,
  },
  'PATCH /api/organizations/:organization/members/:userId': {
    id: 'changeMember',
    summary: 'Change the role of a member',
    description: 'With the permission `members:manage`, and all permissions of both roles.',
    errors: [...BY_ROLE, 'LAST_OWNER', 'NOT_FOUND'],
  },
  'DELETE /api/organizations/:organization/members/:userId': {
    id: 'removeMember',
    summary: 'Remove a member, or leave',
    description: 'Everyone can leave. With the permission `members:manage`, others can be removed.',
    errors: [...BY_ROLE, 'LAST_OWNER', 'NOT_FOUND'],
  },
  'POST /api/organizations/:organization/transfer': {
    id: 'transferOrganization',
    summary: 'Make another member the owner',
    description: 'The user becomes an admin.',
    errors: [...BY_ROLE, 'NOT_FOUND'],
  },
  'GET /api/organizations/:organization/invitations': {
    id: 'listInvitations',
    summary: 'The open invitations',
    errors: BY_ROLE,
  },
  'POST /api/organizations/:organization/invitations': {
    id: 'inviteMember',
    summary: 'Invite an address, or send an open invitation again',
    description: 'With the permission `members:manage`, and all permissions of the role.',
    errors: [...BY_ROLE, 'ALREADY_MEMBER', 'NOT_FOUND'],
  },
  'DELETE /api/organizations/:organization/invitations/:id': {
    id: 'withdrawInvitation',
    summary: 'Withdraw an invitation',
    errors: [...BY_ROLE, 'NOT_FOUND'],
  },
  'GET /api/user/invitations': {
    id: 'listReceivedInvitations',
    summary: 'The open invitations to the confirmed address of the user',
  },
  'POST /api/user/invitations/accept': {
    id: 'acceptInvitation',
    summary: 'Become a member',
    description:
      'With the `token` of the mail, or the `id` of an invitation to the confirmed address of the user.',
    errors: [
      ...[
        'INVITATION_INVALID',
        'INVITATION_OF_OTHER',
        'TOO_MANY_MEMBERS',
        'SEATS_TAKEN',
        'TOO_MANY_ORGANIZATIONS',
      ],
      ...['ORGANIZATION_NOT_FOUND', 'NOT_FOUND'],
    ],
  },
};

/** @param whose a phrase like "of the user" */
const keysAt = (path, suffix, whose, errors) => ({
  [`GET ${path}`]: {
    id: `list${suffix}ApiKeys`,
    summary: `The API keys ${whose}, the newest first, and the scopes that a key can have`,
    ...(errors.length > 0 && { errors }),
  },
  [`POST ${path}`]: {
    id: `create${suffix}ApiKey`,
    summary: `Create an API key ${whose}`,
    description: '`secret` is the key, which is shown only here.',
    errors: [...errors, 'TOO_MANY_KEYS'],
  },
  [`POST ${path}/:id/rotate`]: {
    id: `rotate${suffix}ApiKey`,
    summary: `Replace an API key ${whose}`,
    description:
      'The new key has the same name, scopes, networks and lifetime. The key before remains valid for a while.',
    errors: [...errors, 'NOT_FOUND', 'KEY_ENDED'],
  },
  [`DELETE ${path}/:id`]: {
    id: `end${suffix}ApiKey`,
    summary: `End an API key ${whose} at once`,
    errors: [...errors, 'NOT_FOUND'],
  },
});

export const keys = {
  ...keysAt('/api/user/keys', '', 'of the user', []),
  ...keysAt('/api/organizations/:organization/keys', 'Organization', 'of an organization', BY_ROLE),
};

export const settings = {
  'GET /api/settings/public': {
    id: 'getPublicSettings',
    summary: 'The settings for pages before sign-in',
    description: '`custom` has the values of the public settings of the host, if there are any.',
    responses: { 200: { description: 'OK', schema: PUBLIC_SETTINGS } },
  },
  'GET /api/global-settings': { id: 'getGlobalSettings', summary: 'The settings for signed-in users' },
};
