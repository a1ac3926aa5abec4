/** The same as `api.mjs` for idp. Forms of OAuth are described here, because their routes accept any field. */

const text = (description, more = {}) => ({ type: 'string', description, ...more });
const form = (properties, required = []) => ({ type: 'object', properties, required });

const CLIENT_FIELDS = {
  client_id: text('The client, unless it authenticates with HTTP Basic.'),
  client_secret: text('Its secret, unless it is public or authenticates with HTTP Basic.', {
    writeOnly: true,
  }),
};
const TOKEN_FORM = {
  token: text('The access token or the refresh token.', { writeOnly: true }),
  token_type_hint: text('Ignored: the token shows its type.'),
  ...CLIENT_FIELDS,
};

const METADATA = {
  description: 'The metadata of the provider.',
  schema: {
    type: 'object',
    properties: {
      issuer: { type: 'string' },
      authorization_endpoint: { type: 'string' },
      token_endpoint: { type: 'string' },
      jwks_uri: { type: 'string' },
    },
    required: ['issuer', 'authorization_endpoint', 'token_endpoint', 'jwks_uri'],
    additionalProperties: true,
  },
};
const JWKS = {
  description: 'A JWK Set.',
  schema: {
    type: 'object',
    properties: { keys: { type: 'array', items: { type: 'object' } } },
    required: ['keys'],
  },
};
const CLAIMS = {
  description: 'The claims that the scope of the token covers.',
  schema: {
    type: 'object',
    properties: {
      sub: { type: 'string' },
      name: { type: 'string' },
      preferred_username: { type: 'string' },
      email: { type: 'string' },
      email_verified: { type: 'boolean' },
    },
    required: ['sub'],
    additionalProperties: true,
  },
};

const AUTHORIZATION = {
  client_id: 'The client.',
  redirect_uri: 'Where the response is sent: one of the registered addresses.',
  response_type: '`code`.',
  response_mode: '`query` or `form_post`.',
  scope: '`openid`, and `profile`, `email`, `offline_access`; with `resource` also scopes of the API.',
  resource: 'The API for which the application needs an access token (RFC 8707). May be repeated.',
  requested_actor: 'The `sub` of an agent that shall act for the person (docs/idp/delegation.md).',
  delegation_expires_in: 'With `requested_actor`: the seconds until the agent may no longer act.',
  authorization_details:
    'One action that the person shall approve, as JSON; nothing else is granted then (docs/idp/approvals.md).',
  delegation_max_depth: 'With `requested_actor`: how many agents may follow one another.',
  state: 'Returned unchanged.',
  nonce: 'Returned in the id_token.',
  code_challenge: 'The SHA-256 of the code verifier in base64url. Public clients must send it.',
  code_challenge_method: '`S256`.',
  prompt: '`none`, `login`, `consent`, `select_account` or `create`.',
  max_age: 'The age of the sign-in in seconds at most.',
  login_hint: 'The user name for the form.',
  ui_locales: 'The languages of the pages.',
  acr_values: 'What the sign-in should prove.',
};
const page = { description: 'A page, or the form that posts the response.', type: 'text/html' };
const AUTHORIZED = {
  200: page,
  302: { description: 'To the application, with `code` or `error`.', headers: ['location'] },
  303: { description: 'To a page of the provider.', headers: ['location'] },
};

const LOGOUT = {
  id_token_hint: 'An id_token of the session.',
  logout_hint: 'Ignored.',
  client_id: 'The client.',
  post_logout_redirect_uri: 'One of the registered addresses.',
  state: 'Returned unchanged.',
  ui_locales: 'The languages of the pages.',
};
const LOGGED_OUT = {
  200: page,
  302: { description: 'To the application.', headers: ['location'] },
  303: { description: 'To a page of the provider.', headers: ['location'] },
};

const fields = (parameters, required) =>
  form(Object.fromEntries(Object.entries(parameters).map(([name, about]) => [name, text(about)])), required);

export const oauth = {
  'GET /authorize': {
    id: 'authorize',
    summary: 'Ask for an authorization code',
    description:
      'Open this address in the browser. Agents send their credentials with HTTP Basic and read the redirect. Errors that are not sent to the application are pages in a browser and JSON otherwise.',
    security: ['agentBasic', null],
    query: AUTHORIZATION,
    required: ['client_id', 'redirect_uri', 'response_type'],
    responses: AUTHORIZED,
    errors: ['invalid_request', 'invalid_credentials', 'browser_basic', 'uri_too_long', 'login_rejected'],
  },
  'POST /authorize': {
    id: 'authorizeByForm',
    summary: 'The same with a form',
    body: fields(AUTHORIZATION, ['client_id', 'redirect_uri', 'response_type']),
    responses: AUTHORIZED,
    errors: ['invalid_request', 'invalid_credentials', 'browser_basic', 'login_rejected', 'uri_too_long'],
  },
  'POST /token': {
    id: 'getTokens',
    summary: 'Exchange a code, a refresh token or a device code for tokens',
    description:
      'With a proof in the header DPoP (RFC 9449), the access token is bound to its key if there is an API for which tokens are issued.',
    body: form(
      {
        grant_type: text(
          '`authorization_code`, `refresh_token`, for agents `client_credentials`, or with IDP_DEVICE_FLOW `urn:ietf:params:oauth:grant-type:device_code`. With IDP_APPROVALS `urn:openid:params:grant-type:ciba` for agents. For agents that act for people `urn:ietf:params:oauth:grant-type:token-exchange` (RFC 8693). With IDP_IDENTITY_ASSERTIONS also that for an identity assertion, and `urn:ietf:params:oauth:grant-type:jwt-bearer` with one.',
          { examples: ['authorization_code'] },
        ),
        code: text('The authorization code.', { writeOnly: true }),
        redirect_uri: text('As in the authorization request.'),
        code_verifier: text('The code verifier (RFC 7636).', { writeOnly: true }),
        refresh_token: text('The refresh token.', { writeOnly: true }),
        assertion: text('An identity assertion of another provider (RFC 7523).', { writeOnly: true }),
        device_code: text('The device code (RFC 8628).', { writeOnly: true }),
        auth_req_id: text('Of a request to /bc-authorize.', { writeOnly: true }),
        subject_token: text(
          'The token of a delegation, an access token that an agent hands on (RFC 8693), or for an identity assertion an id_token or a refresh token.',
          {
            writeOnly: true,
          },
        ),
        subject_token_type: text('Its type.'),
        actor_token: text('An assertion or an access token of the agent that acts.', { writeOnly: true }),
        actor_token_type: text('Its type.'),
        requested_token_type: text(
          '`urn:ietf:params:oauth:token-type:access_token`, if at all, or `urn:ietf:params:oauth:token-type:id-jag` for an identity assertion.',
        ),
        audience: text(
          'Like `resource`, if at all; of an identity assertion, the other authorization server.',
        ),
        scope: text('A part of the granted scope.'),
        resource: text('The API that the access token is for, if several were authorized (RFC 8707).'),
        ...CLIENT_FIELDS,
      },
      ['grant_type'],
    ),
    errors: [
      ...['invalid_request', 'invalid_client', 'invalid_grant', 'invalid_scope', 'unauthorized_client'],
      ...['invalid_target', 'unsupported_grant_type', 'RATE_LIMITED'],
      ...['authorization_pending', 'slow_down', 'access_denied', 'expired_token'],
      ...['invalid_dpop_proof', 'use_dpop_nonce'],
    ],
  },
  'POST /par': {
    id: 'pushAuthorizationRequest',
    summary: 'Store an authorization request for the redirect of the browser (RFC 9126)',
    description:
      'Takes the parameters of `/authorize` and the authentication of the client. `request_uri` replaces the parameters at `/authorize` once, within 90 seconds.',
    body: form(
      {
        response_type: text('`code`.', { examples: ['code'] }),
        redirect_uri: text('A redirect URI of the client.'),
        scope: text('Separated by spaces.'),
        ...CLIENT_FIELDS,
      },
      ['response_type', 'redirect_uri'],
    ),
    errors: [
      ...[
        'invalid_request',
        'invalid_client',
        'invalid_scope',
        'invalid_target',
        'invalid_authorization_details',
      ],
      ...['RATE_LIMITED'],
      ...['unsupported_response_type', 'request_not_supported', 'request_uri_not_supported'],
      ...['invalid_dpop_proof', 'use_dpop_nonce'],
    ],
  },
  'POST /device_authorization': {
    id: 'authorizeDevice',
    summary: 'Ask for a code that a person enters in a browser',
    description:
      'Only with IDP_DEVICE_FLOW, and for clients that were created for it. The device shows the code and polls /token (RFC 8628).',
    body: form({
      scope: text(
        '`openid`, and `profile`, `email`, `offline_access`; with `resource` also scopes of the API.',
      ),
      resource: text('The API that the access token is for (RFC 8707). May be repeated.'),
      ...CLIENT_FIELDS,
    }),
    errors: [
      ...['invalid_request', 'invalid_client', 'invalid_scope', 'invalid_target', 'unauthorized_client'],
      'RATE_LIMITED',
    ],
  },
  'POST /bc-authorize': {
    id: 'requestApproval',
    summary: 'Ask a person to approve one action',
    description:
      'Only with IDP_APPROVALS, and for agents, with their `sub` as `client_id`. The person decides on a page, and the agent polls /token (CIBA, RFC 9396). The answer is the same if there is nobody of the name.',
    body: form({
      authorization_details: text(
        'A JSON array with one object of a `type` that the API has declared, with its fields. Without it, `scope` and `resource` are required.',
      ),
      scope: text('Scopes of the API.'),
      resource: text('The API, if several have declared the type.'),
      login_hint: text('The user name or the e-mail address of the person.'),
      login_hint_token: text(
        'Instead of it, an access token with which the agent acts for the person at the API.',
        { writeOnly: true },
      ),
      id_token_hint: text('Instead of it, an id_token of the person.', { writeOnly: true }),
      client_notification_token: text(
        'Of an agent with a notification endpoint: the bearer token of the request that it gets there.',
        { writeOnly: true },
      ),
      binding_message: text('What the agent shows as well, at most 100 characters.'),
      requested_expiry: text('Seconds, at most 600. Default: 300.'),
      ...CLIENT_FIELDS,
    }),
    errors: [
      ...['invalid_request', 'invalid_client', 'invalid_scope', 'invalid_target', 'unauthorized_client'],
      ...['invalid_authorization_details', 'invalid_binding_message', 'expired_login_hint_token'],
      ...['access_denied', 'RATE_LIMITED'],
    ],
  },
  'POST /revoke': {
    id: 'revokeToken',
    summary: 'Revoke a token',
    body: form(TOKEN_FORM, ['token']),
    responses: { 200: { description: 'The token is not valid, or never was.' } },
    errors: ['invalid_request', 'invalid_client', 'RATE_LIMITED'],
  },
  'POST /introspect': {
    id: 'introspectToken',
    summary: 'Whether a token is active',
    description: 'Public clients cannot use it.',
    body: form(TOKEN_FORM, ['token']),
    errors: ['invalid_request', 'invalid_client', 'RATE_LIMITED'],
  },
  'GET /userinfo': {
    id: 'getUserinfo',
    summary: 'The claims about a user',
    responses: { 200: CLAIMS },
    errors: ['invalid_token', 'invalid_request'],
  },
  'POST /userinfo': {
    id: 'postUserinfo',
    summary: 'The same with the token in the header or in a form',
    body: form({ access_token: text('The access token, unless it is in the header.', { writeOnly: true }) }),
    security: ['accessToken', 'boundAccessToken', null],
    responses: { 200: CLAIMS },
    errors: ['invalid_token', 'invalid_request'],
  },
  'GET /logout': {
    id: 'logout',
    summary: 'End the session of a browser',
    description: 'Open this address in the browser (OpenID Connect RP-Initiated Logout).',
    query: LOGOUT,
    responses: LOGGED_OUT,
    errors: ['invalid_request'],
  },
  'POST /logout': {
    id: 'logoutByForm',
    summary: 'The same with a form',
    body: fields(LOGOUT),
    responses: LOGGED_OUT,
    errors: ['invalid_request', 'login_rejected'],
  },
};

export const discovery = {
  'GET /.well-known/openid-configuration': {
    id: 'getOpenidConfiguration',
    summary: 'Provider metadata (OpenID Connect Discovery)',
    responses: { 200: METADATA },
    isOpen: true,
  },
  'GET /.well-known/oauth-authorization-server': {
    id: 'getAuthorizationServerMetadata',
    summary: 'Provider metadata (RFC 8414)',
    responses: { 200: METADATA },
    isOpen: true,
  },
  'GET /.well-known/jwks.json': {
    id: 'getJwks',
    summary: 'The public keys',
    responses: { 200: JWKS },
    isOpen: true,
  },
  'GET /.well-known/webfinger': {
    id: 'getWebfinger',
    summary: 'The issuer of an e-mail address (RFC 7033)',
    description:
      'For addresses of the host of the issuer and of `IDP_TRUSTED_EMAIL_DOMAINS`, whether or not an account exists. It is at the root of the host, also if the issuer has a path.',
    responses: {
      200: {
        description: 'The links',
        type: 'application/jrd+json',
        schema: { type: 'object' },
        example: {
          subject: 'acct:ada@example.com',
          links: [{ rel: 'http://openid.net/specs/connect/1.0/issuer', href: 'https://id.example.com' }],
        },
      },
    },
    errors: ['invalid_request', 'NOT_FOUND'],
    isOpen: true,
  },
  'GET /revocations': {
    id: 'getRevocations',
    summary: 'The access tokens for APIs that are revoked',
    description:
      'A JWT (`revocations+jwt`) with hashes of what was revoked within the last minutes. With `If-None-Match` and `Prefer: wait=10`, the answer comes when the list has changed. There is none until the first API is registered.',
    responses: {
      200: {
        description: 'The list',
        type: 'application/revocations+jwt',
        schema: { type: 'string' },
        example: 'eyJ0eXAiOiJyZXZvY2F0aW9ucytqd3QiLCJhbGciOiJFZERTQSJ9.eyJyZXZva2VkIjp7fX0.c2lnbmF0dXJl',
      },
      304: { description: 'The list has not changed' },
    },
    errors: ['NOT_FOUND'],
  },
  'GET /jwks': {
    id: 'getJwksAlias',
    summary: 'The public keys, at another address',
    responses: { 200: JWKS },
    isOpen: true,
  },
  'GET /llms.txt': {
    id: 'getGuide',
    summary: 'How an agent signs in, as text',
    responses: {
      200: {
        description: 'The guide.',
        type: 'text/plain',
        schema: { type: 'string' },
        example: '# Sign in',
      },
    },
  },
};

const KIND = text('`agent` or `human`.', { enum: ['agent', 'human'] });
const NO_KIND = { kind: { ...KIND, enum: ['agent'] }, password: false };

export const provisioning = {
  'POST /v1/accounts': {
    id: 'createAccount',
    summary: 'Create an account for a person or an agent',
    fields: { kind: KIND },
    errors: ['invalid_kind', 'handle_taken', 'email_taken', 'WEAK_PASSWORD'],
  },
  'POST /v1/agents': {
    id: 'createAgent',
    summary: 'Create an agent; its password is shown once',
    fields: NO_KIND,
    errors: ['kind_not_allowed', 'handle_taken'],
  },
  'POST /v1/agents/self/rotate': {
    id: 'rotateAgentPassword',
    summary: 'Replace the password of the agent that calls',
    errors: ['invalid_credentials', 'browser_basic'],
  },
  'DELETE /v1/agents/:sub': {
    id: 'deleteAgent',
    summary: 'Delete an agent',
    responses: { 204: { description: 'The agent is deleted.' } },
    errors: ['NOT_FOUND', 'wrong_state'],
  },
  'POST /v1/invites': {
    id: 'invite',
    summary: 'Invite a person with a link that is shown once',
    fields: {
      days: { type: 'integer', minimum: 1, maximum: 30, description: 'How long the link is valid.' },
      kind: { ...KIND, enum: ['human'] },
      password: false,
    },
    errors: ['invalid_days', 'invalid_kind', 'kind_not_allowed', 'handle_taken', 'email_taken'],
  },
  'GET /v1/invites': {
    id: 'listInvites',
    summary: 'List the invitations that were not accepted, never their links',
  },
  'DELETE /v1/invites/:sub': {
    id: 'withdrawInvite',
    summary: 'Withdraw an invitation that was not accepted',
    responses: { 204: { description: 'The link ends, and the handle is free again.' } },
    errors: ['NOT_FOUND'],
  },
  'POST /v1/clients': {
    id: 'createClient',
    summary: 'Register a client; its secret is shown once',
    description: 'Rejects metadata that is not supported.',
    fields: { id_token_signed_response_alg: { type: 'string', enum: ['EdDSA', 'ES256'] } },
    rejectsUnknown: true,
    errors: ['invalid_client_metadata'],
  },
  'POST /register': {
    id: 'registerClient',
    summary: 'Register the application itself (RFC 7591)',
    description:
      'Available with IDP_CLIENT_REGISTRATION, and with IDP_MCP for public clients without a token. Ignores metadata that is not supported.',
    errors: ['invalid_redirect_uri', 'invalid_client_metadata'],
  },
  'GET /v1/clients': { id: 'listClients', summary: 'The registered clients' },
  'GET /v1/resources': {
    id: 'listResources',
    summary: 'The APIs for which access tokens are issued',
    description: 'Only the command line on the host changes them: `idp resource`.',
  },
  'GET /v1/groups': { id: 'listGroups', summary: 'Groups of people and agents, by name' },
  'POST /v1/groups': {
    id: 'addGroup',
    summary: 'Add a group',
    description: 'Takes the token that may invite people, as every change of a group.',
    errors: ['VALIDATION_ERROR'],
  },
  'DELETE /v1/groups/:group': {
    id: 'removeGroup',
    summary: 'Remove a group',
    responses: { 204: { description: 'The group is removed.' } },
    errors: ['NOT_FOUND'],
  },
  'GET /v1/groups/:group/members': {
    id: 'listGroupMembers',
    summary: 'The members of a group, by handle',
    errors: ['NOT_FOUND'],
  },
  'POST /v1/groups/:group/members': {
    id: 'addGroupMember',
    summary: 'Put a person, an agent or a domain into a group',
    responses: { 204: { description: 'It is a member.' } },
    errors: ['NOT_FOUND', 'VALIDATION_ERROR', 'FORBIDDEN'],
  },
  'DELETE /v1/groups/:group/members/:member': {
    id: 'removeGroupMember',
    summary: 'Take a member out of a group',
    responses: { 204: { description: 'It is no member any more.' } },
    errors: ['NOT_FOUND'],
  },
  'GET /v1/permissions': {
    id: 'listPermissions',
    summary: 'Which agents may do what at which APIs',
    errors: ['VALIDATION_ERROR'],
  },
  'PUT /v1/permissions': {
    id: 'grantPermission',
    summary: 'Let an agent get access tokens for an API',
    description:
      'Replaces an earlier permission of the same agent for the same API. Exists only with IDP_INVITE_TOKEN, whose value differs from that of the administrator.',
    errors: ['VALIDATION_ERROR'],
  },
  'DELETE /v1/permissions': {
    id: 'withdrawPermission',
    summary: 'End a permission, and the tokens that were issued under it',
    responses: { 204: { description: 'It has ended.' } },
    errors: ['NOT_FOUND'],
  },
  'GET /v1/principals': { id: 'listPrincipals', summary: 'People and agents, by handle' },
  'GET /v1/principals/:sub': { id: 'getPrincipal', summary: 'A person or an agent', errors: ['NOT_FOUND'] },
  'PATCH /v1/principals/:sub': {
    id: 'updatePrincipal',
    summary: 'Change what is stored about a person or an agent for claims',
    description: 'Takes the token that may invite people. `null` removes an entry.',
    errors: ['NOT_FOUND', 'VALIDATION_ERROR'],
  },
  'POST /v1/principals/:sub/disable': {
    id: 'disablePrincipal',
    summary: 'Disable a person or an agent, and end all sessions and tokens',
    errors: ['NOT_FOUND', 'wrong_state'],
  },
  'POST /v1/principals/:sub/enable': {
    id: 'enablePrincipal',
    summary: 'Enable a person or an agent again',
    errors: ['NOT_FOUND', 'wrong_state'],
  },
};
