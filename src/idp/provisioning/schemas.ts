import { Type } from 'typebox';
import { option } from '../../core/config/options.js';
import {
  After,
  Closed,
  DisplayName,
  Next,
  PasswordInput,
  Time,
  Timestamp,
  toTimestamp,
} from '../../core/http/schemas.js';
import { defined } from '../../core/kernel/fields.js';
import { newToken, secretWeakness } from '../../core/kernel/secrets.js';
import type { Page } from '../../core/storage/collection.js';
import { agentDetails, agentFields, agentView } from './agent-schemas.js';
import { nativeSchemeProblem } from './client-uris.js';
import { ID_TOKEN_ALGORITHMS } from './clients.js';
import { type ClientDocument, KINDS, type PrincipalDocument } from './store.js';

export const provisioningOptions = {
  disableSignup: option(Type.Boolean({ default: false, accepts: '0 or 1' }), {
    env: 'IDP_DISABLE_SIGNUP',
    doc: '1 disables sign-up at /v1/accounts, 0 allows anyone to sign up. The administrator endpoints are not affected.',
    shown: '0',
    // Any other value prevents the start, so that "true" does not leave sign-up enabled.
    parse: (text) => ({ 0: false, 1: true })[text] ?? text,
  }),
  adminToken: option(Type.Optional(Type.String()), {
    env: 'IDP_ADMIN_TOKEN',
    doc: 'Bearer token for the administrator endpoints, at least 32 characters in production. Without it, they respond with 501 in production.',
    shown: 'random outside production',
    secret: true,
    generate: newToken,
    safe: (token) => secretWeakness(token ?? '', 32),
  }),
  inviteToken: option(Type.Optional(Type.String()), {
    env: 'IDP_INVITE_TOKEN',
    doc: 'Bearer token for invitations, at least 32 characters in production. When set, IDP_ADMIN_TOKEN cannot invite people.',
    secret: true,
    safe: (token) => secretWeakness(token ?? '', 32),
  }),
  nativeSchemes: option(Type.Optional(Type.Array(Type.String())), {
    env: 'IDP_NATIVE_SCHEMES',
    doc: 'Schemes without a dot that redirect URIs of native applications may use, separated by commas, like `cursor,vscode`. Any application on a device can claim such a scheme.',
    check: (schemes) => schemes?.map(nativeSchemeProblem).find((problem) => problem !== undefined),
  }),
};

const Handle = Type.String({
  accepts: 'a handle of 3 to 254 characters',
  trimmed: true,
  examples: ['ada@example.com'],
  minLength: 3,
  maxLength: 254,
});

const ClientName = Type.String({ ...DisplayName, examples: ['My app'] });

export const Address = Type.String({
  description: 'The e-mail address of a person whose handle is not the address.',
  accepts: 'an e-mail address of at most 254 characters',
  trimmed: true,
  examples: ['ada@example.com'],
  minLength: 3,
  maxLength: 254,
});

/** An ignored field would be taken for stored (RFC 7591 §3.2.1), so the routes refuse others by name. */
export const NAMED_FIELDS = { additionalProperties: true };

/** `kind`, `password` and `days` have no type here, so that a wrong one is rejected instead of removed. */
export const Untyped = Type.Optional(Type.Unknown());

export const AccountBody = Type.Object(
  {
    handle: Handle,
    email: Type.Optional(Address),
    password: PasswordInput,
    kind: Untyped,
    name: Type.Optional(DisplayName),
  },
  NAMED_FIELDS,
);

export const identity = { handle: Handle, name: Type.Optional(DisplayName) };

export const AgentBody = Type.Object(
  { ...identity, ...agentDetails, expires_at: Type.Optional(Time), kind: Untyped, password: Untyped },
  NAMED_FIELDS,
);

const principal = {
  sub: Type.String(),
  handle: Type.String(),
  email: Type.Optional(Type.String({ description: 'Beside the handle, if the handle is not the address.' })),
  kind: Type.Enum(KINDS),
  name: Type.String(),
  created_at: Timestamp,
};

export const PrincipalAnswer = Type.Object(principal);

export const AgentAnswer = Type.Object({
  ...principal,
  password: Type.String({ description: 'Shown once; it cannot be retrieved later.' }),
});

export const RotationAnswer = Type.Pick(AgentAnswer, ['sub', 'handle', 'password']);

const Metadata = Type.Record(Type.String(), Type.Unknown(), {
  description:
    'For claims: texts, whole numbers, true or false, and lists of texts. given_name, family_name, nickname, picture and locale are in the scope `profile`.',
});

export const MetadataBody = Closed({ metadata: Metadata });

/** What the operator sees. */
export const PrincipalView = Type.Object({
  ...principal,
  state: Type.Enum(['invited', 'active', 'disabled', 'deleted']),
  updated_at: Timestamp,
  metadata: Type.Optional(Metadata),
  ...agentFields,
  invite_expires_at: Type.Optional(Timestamp),
});

export const PrincipalParameters = Type.Object({ sub: Type.String({ maxLength: 64 }) });

export const PrincipalQuery = Type.Object({
  prefix: Type.Optional(
    Type.String({
      accepts: 'the beginning of a handle, without a colon, space or control character',
      examples: ['ada'],
      minLength: 1,
      maxLength: 254,
      pattern: '^[^\\p{C}\\p{Z}:]+$',
    }),
  ),
  after: After,
});

export const PrincipalList = Type.Object({ principals: Type.Array(PrincipalView), next: Next });

/** The form of the page behind a link. */
export const LinkBody = Closed({
  password: Type.String({ maxLength: 4096, writeOnly: true }),
  password_confirm: Type.Optional(Type.String({ maxLength: 4096, writeOnly: true })),
  handle: Type.Optional(
    Type.String({
      description: 'For the link of the first operator only.',
      accepts: 'a handle of at most 254 characters',
      maxLength: 254,
    }),
  ),
});

/** The form for a forgotten password. Any text is accepted, because the response is the same for every user name. */
export const ForgotPasswordBody = Closed({ handle: Type.String({ maxLength: 1024 }) });

/** The form of the page that verifies an address, without a password for a person who is signed in. */
export const VerificationBody = Closed({
  password: Type.Optional(Type.String({ maxLength: 4096, writeOnly: true })),
});

/** The application of an invitation. Anything else is ignored. */
export const DoneQuery = Type.Object({ client_id: Type.Optional(Type.String({ maxLength: 64 })) });

export const LinkParameters = Type.Object({ token: Type.String() });

const Uri = Type.String({
  accepts: 'a URI of at most 2048 characters',
  examples: ['https://app.example.com/callback'],
  minLength: 1,
  maxLength: 2048,
});
const Uris = Type.Array(Uri, {
  accepts: 'a list of 1 to 50 URIs of at most 2048 characters each',
  minItems: 1,
  maxItems: 50,
});
const Kinds = Type.Array(Type.Enum(KINDS), {
  accepts: 'a list of agent, human or both, each once',
  examples: [['human']],
  minItems: 1,
  uniqueItems: true,
});

export const groupNames = (description: string) =>
  Type.Array(Type.String(), {
    description,
    accepts: 'a list of at most 50 names of groups, each once',
    examples: [['staff']],
    maxItems: 50,
    uniqueItems: true,
  });

const AdmittedGroups = groupNames(
  'The groups whose members alone may sign in; empty: everyone of these kinds.',
);

const GroupsClaim = Type.String({
  description:
    'The groups in its claims: `all`, `none`, or names with the names that it gets, like `admins,staff=Employees`.',
  accepts: 'a text of at most 8192 characters',
  examples: ['admins,staff=Employees'],
  maxLength: 8192,
});

const CustomClaims = Type.String({
  description:
    'The claims that it gets from metadata, with the scope `profile`: `claim:type=name`, separated by commas.',
  accepts: 'a text of at most 2048 characters',
  examples: ['department,level:number=grade'],
  maxLength: 2048,
});

const address = (description: string, example: string) =>
  Type.String({
    description,
    accepts: 'an https address of at most 2048 characters',
    examples: [example],
    maxLength: 2048,
    pattern: '^[\\x21-\\x7e]*$',
  });

const LogoUri = address(
  'An image that the pages of sign-in and consent show.',
  'https://app.example.com/logo.png',
);

const LogoutUri = address(
  'Where the application is notified that a session has ended (Back-Channel Logout).',
  'https://app.example.com/backchannel-logout',
);

const JwksUri = address(
  'Where the application publishes the public keys of its assertions (private_key_jwt).',
  'https://app.example.com/jwks.json',
);

const KEYS = {
  description:
    'The public keys of its assertions (private_key_jwt), on Ed25519 or P-256 or of RSA, as a JWK Set.',
};

export const AUTH_METHODS = ['client_secret_basic', 'private_key_jwt', 'none'] as const;

const ID_TOKEN_ALG = {
  description: 'The signature of its id_tokens: EdDSA or ES256, which needs IDP_ES256_KEY.',
};

const STRICT = {
  description: 'Whether it must use PKCE, and people must use the sign-in form instead of HTTP Basic.',
};

export const ClientBody = Type.Object(
  {
    name: Type.Optional(ClientName),
    client_name: Type.Optional(ClientName),
    redirect_uris: Type.Union([Uris, Uri]),
    post_logout_redirect_uris: Type.Optional(Type.Union([Uris, Uri])),
    public: Type.Optional(Type.Boolean()),
    principal_kinds: Type.Optional(Kinds),
    admitted_groups: Type.Optional(AdmittedGroups),
    groups_claim: Type.Optional(GroupsClaim),
    claims: Type.Optional(CustomClaims),
    strict: Type.Optional(Type.Boolean(STRICT)),
    logo_uri: Type.Optional(LogoUri),
    backchannel_logout_uri: Type.Optional(LogoutUri),
    // The service refuses others with invalid_client_metadata (RFC 7591 §3.2.2).
    id_token_signed_response_alg: Type.Optional(Type.Unknown({ ...ID_TOKEN_ALG, examples: ['ES256'] })),
    /** Every logout token contains the session. */
    backchannel_logout_session_required: Type.Optional(Type.Boolean()),
    // The service reads it, and names what is wrong with a key.
    jwks: Type.Optional(Type.Unknown(KEYS)),
    jwks_uri: Type.Optional(JwksUri),
  },
  NAMED_FIELDS,
);

const client = {
  client_id: Type.String(),
  client_name: Type.String(),
  redirect_uris: Type.Array(Type.String()),
  post_logout_redirect_uris: Type.Array(Type.String()),
  public: Type.Boolean(),
  token_endpoint_auth_method: Type.Enum(AUTH_METHODS, {
    description: 'A secret may also be sent in the body (client_secret_post).',
  }),
  jwks: Type.Optional(Type.Unknown(KEYS)),
  jwks_uri: Type.Optional(JwksUri),
  principal_kinds: Kinds,
  admitted_groups: Type.Optional(AdmittedGroups),
  groups_claim: Type.Optional(GroupsClaim),
  claims: Type.Optional(CustomClaims),
  trusted: Type.Boolean(),
  strict: Type.Boolean(STRICT),
  profile: Type.Optional(
    Type.Literal('fapi2', {
      description: 'FAPI 2.0: pushed requests, PKCE, DPoP and private_key_jwt are required.',
    }),
  ),
  grant_types: Type.Optional(
    Type.Array(Type.String(), { description: 'Only for an application that may use the device flow.' }),
  ),
  logo_uri: Type.Optional(LogoUri),
  id_token_signed_response_alg: Type.Optional(Type.Enum(ID_TOKEN_ALGORITHMS, ID_TOKEN_ALG)),
  backchannel_logout_uri: Type.Optional(LogoutUri),
  backchannel_logout_session_required: Type.Optional(Type.Literal(true)),
  origin: Type.Optional(Type.Literal('dynamic', { description: 'The client registered itself (RFC 7591).' })),
  expires_at: Type.Optional(Timestamp),
  created_at: Timestamp,
};

export const ClientAnswer = Type.Object({
  ...client,
  client_secret: Type.Optional(Type.String({ description: 'Shown once; confidential clients only.' })),
});

export const ClientQuery = Type.Object({ after: After });

export const ClientList = Type.Object({ clients: Type.Array(Type.Object(client)), next: Next });

/** The grant types of every client, and the one that the operator allows (RFC 7591 §2, RFC 8628 §3.4). */
const GRANT_TYPES = ['authorization_code', 'refresh_token'];
const DEVICE_GRANT_TYPE = 'urn:ietf:params:oauth:grant-type:device_code';

/** Documents as in responses, without hashes. */
export function principalView({ id, handle, email, kind, name, createdAt }: PrincipalDocument) {
  const names = { handle, ...(email !== undefined && { email }) };
  return { sub: id, ...names, kind, name: name ?? '', created_at: toTimestamp(createdAt) };
}

export function operatorView(principal: PrincipalDocument) {
  const { state, metadata, linkExpiresAt, updatedAt } = principal;
  return {
    ...principalView(principal),
    state,
    updated_at: toTimestamp(updatedAt),
    ...(metadata && { metadata }),
    ...(principal.kind === 'agent' && agentView(principal)),
    ...(state === 'invited' &&
      linkExpiresAt !== undefined && { invite_expires_at: toTimestamp(linkExpiresAt) }),
  };
}

export function principalPage({ items, next }: Page<PrincipalDocument>) {
  return { principals: items.map(operatorView), next };
}

export const clientView = (client: ClientDocument) =>
  defined({
    client_id: client.id,
    client_name: client.name,
    redirect_uris: client.redirectUris,
    post_logout_redirect_uris: client.postLogoutRedirectUris,
    public: authMethodOf(client) === 'none',
    token_endpoint_auth_method: authMethodOf(client),
    jwks: client.jwks && { keys: client.jwks },
    jwks_uri: client.jwksUri,
    principal_kinds: client.principalKinds,
    admitted_groups: client.admittedGroups,
    groups_claim: client.groupsClaim,
    claims: client.claims,
    trusted: client.trusted === true,
    strict: client.strict === true,
    profile: client.profile,
    grant_types: client.device && [...GRANT_TYPES, DEVICE_GRANT_TYPE],
    logo_uri: client.logoUri,
    id_token_signed_response_alg: client.idTokenAlg,
    backchannel_logout_uri: client.backchannelLogoutUri,
    backchannel_logout_session_required:
      client.backchannelLogoutUri === undefined ? undefined : (true as const),
    origin: client.origin,
    expires_at: client.expiresAt === undefined ? undefined : toTimestamp(client.expiresAt),
    created_at: toTimestamp(client.createdAt),
  });

/** How the client authenticates. */
function authMethodOf({ secretHash, jwks, jwksUri }: ClientDocument): (typeof AUTH_METHODS)[number] {
  if (jwks !== undefined || jwksUri !== undefined) return 'private_key_jwt';
  return secretHash === undefined ? 'none' : 'client_secret_basic';
}
