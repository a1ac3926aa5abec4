import { type Static, type TObject, Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { Closed, Email, matchesSchema, Token } from '../../core/http/schemas.js';
import { hexKeyWeakness, isHexKey } from '../../core/kernel/signing-keys.js';
import { MAX_TOKEN_LENGTH } from './authorize/interaction-token.js';
import { emailDomainProblem } from './claims.js';

/** The order of the group of P-256 (SEC 2 §2.4.2): a private key is smaller. */
const P256_ORDER = BigInt('0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551');

/** Private keys published in RFC 6979, 7515 and 7517. */
const PUBLISHED_P256_KEYS = new Set([
  'c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721',
  '8e9b109e719098bf980487df1f5d77e9cb29606ebed2263b5f57c213df84f4b2',
  'f3bd0c07a81fb932781ed52752f60cc89a6be5e51934fe01938ddb55d8f77801',
]);

const isPrivateKey = (hex: string): boolean => BigInt(`0x${hex}`) > 0n && BigInt(`0x${hex}`) < P256_ORDER;

const isHttps = (text: string): boolean => /^https:\/\/[\x21-\x7e]+$/.test(text) && URL.canParse(text);

/** An option with a signing key. */
const signingKey =
  (problemOf: (hex: string) => string | undefined = () => undefined, published?: ReadonlySet<string>) =>
  (env: string, doc: string) => ({
    env,
    doc,
    secret: true,
    check(value: string | undefined) {
      if (value === undefined) return undefined;
      return isHexKey(value) ? problemOf(value) : 'must be 64 hexadecimal characters: openssl rand -hex 32';
    },
    safe: (value: string | undefined) => (value === undefined ? undefined : hexKeyWeakness(value, published)),
  });

const seed = signingKey();
const es256Key = signingKey(
  (hex) =>
    isPrivateKey(hex)
      ? undefined
      : 'is not a private key of P-256. Generate another one: openssl rand -hex 32',
  PUBLISHED_P256_KEYS,
);

/** Any other value than 0 and 1 prevents the start. */
const flag = (env: string, doc: string, safe?: (value: boolean) => string | undefined) =>
  option(Type.Boolean({ default: false, accepts: '0 or 1' }), {
    env,
    doc,
    shown: '0',
    parse: (text) => ({ 0: false, 1: true })[text] ?? text,
    ...(safe && { safe }),
  });

export const oidcOptions = {
  ed25519Seed: option(Type.String(), {
    ...seed(
      'IDP_ED25519_SEED',
      'Seed of the Ed25519 signing key: 32 random bytes as 64 hexadecimal characters.',
    ),
    shown: 'random outside production',
    required: 'production',
    generate: (random) => random.bytes(32).toString('hex'),
  }),
  ed25519SeedNext: option(
    Type.Optional(Type.String()),
    seed(
      'IDP_ED25519_SEED_NEXT',
      'Seed of the next key, published before it signs so that applications know it in time.',
    ),
  ),
  ed25519SeedPrevious: option(
    Type.Optional(Type.String()),
    seed(
      'IDP_ED25519_SEED_PREVIOUS',
      'Seed of the previous key, still published so that the tokens it signed remain verifiable.',
    ),
  ),
  es256Key: option(
    Type.Optional(Type.String()),
    es256Key(
      'IDP_ES256_KEY',
      'Private key on P-256, 32 random bytes as 64 hexadecimal characters, for clients that cannot verify EdDSA: those with `id_token_signed_response_alg` ES256.',
    ),
  ),
  es256KeyNext: option(
    Type.Optional(Type.String()),
    es256Key('IDP_ES256_KEY_NEXT', 'The next ES256 key, published before it signs.'),
  ),
  es256KeyPrevious: option(
    Type.Optional(Type.String()),
    es256Key('IDP_ES256_KEY_PREVIOUS', 'The previous ES256 key, still published.'),
  ),
  trustedEmailDomains: option(Type.Optional(Type.Array(Type.String())), {
    env: 'IDP_TRUSTED_EMAIL_DOMAINS',
    doc: 'Domains, separated by commas, whose addresses you vouch for: email_verified is true for people who accept an invitation to one, and for agents that the operator creates in one.',
    check: (domains) => domains?.map(emailDomainProblem).find((problem) => problem !== undefined),
  }),
  supportContact: option(Type.Optional(Type.String()), {
    env: 'IDP_SUPPORT_CONTACT',
    doc: 'Where people ask for access to an application that admits only certain groups: an e-mail address or an https address, for the page that refuses them.',
    shown: 'the page names the operator',
    check: (contact) =>
      contact === undefined || matchesSchema(contact, Email) || isHttps(contact)
        ? undefined
        : 'must be an e-mail address or an https address, like support@example.com.',
  }),
  backchannelPrivateNetworks: flag(
    'IDP_BACKCHANNEL_PRIVATE_NETWORKS',
    '1 lets idp tell applications in private networks, and without TLS, about ended sessions (`backchannel_logout_uri`), and agents about decided approvals (`--notification-endpoint`). Outside production it always does.',
  ),
  deviceFlow: flag(
    'IDP_DEVICE_FLOW',
    '1 lets people sign in to applications on devices without a browser, by entering a code at `/device` (RFC 8628). It applies to applications that were created with `idp client create --device`.',
  ),
  approvals: option(Type.Boolean({ default: false }), {
    env: 'IDP_APPROVALS',
    doc: 'true lets agents ask a person to approve one action: the person gets an e-mail and decides on a page, and the agent gets an access token for it (CIBA, RFC 9396). `idp resource approval` says for which actions.',
    shown: 'false',
  }),
  identityAssertions: option(Type.Enum(['off', 'issue', 'accept', 'both'], { default: 'off' }), {
    env: 'IDP_IDENTITY_ASSERTIONS',
    doc: 'Whether idp issues identity assertions (ID-JAG) for other authorization servers, accepts those of other providers, or both: off, issue, accept or both. `idp audience` and `idp trusted-issuer` say for whom and of whom.',
  }),
  loopbackDocuments: flag(
    'IDP_LOOPBACK_DOCUMENTS',
    '1 lets idp read the keys and metadata of clients on this machine, without TLS. For development only.',
    (value) => (value ? 'lets anyone make idp call services on its own machine.' : undefined),
  ),
  refreshTokenReuseWindow: option(Type.Integer({ minimum: 1, maximum: 600, default: 30 }), {
    env: 'IDP_REFRESH_TOKEN_REUSE_WINDOW',
    doc: 'Seconds during which a used refresh token returns the same successor, for parallel requests and lost responses. Later, it revokes the grant.',
  }),
  clientAssertions: option(Type.Enum(['issuer', 'token-endpoint'], { default: 'issuer' }), {
    env: 'IDP_CLIENT_ASSERTIONS',
    doc: 'The aud of the assertions of clients: issuer, or token-endpoint to accept the address of /token beside it and assertions that are valid for up to an hour, as Authlib and Spring send them.',
  }),
  basicLogin: option(Type.Enum(['all', 'agents'], { default: 'all' }), {
    env: 'IDP_BASIC_LOGIN',
    doc: 'Who may use HTTP Basic at /authorize: all or agents.',
  }),
};

export type OidcConfiguration = Static<TObject<typeof oidcOptions>>;

/** Any form. Repeated fields are lists, which the validation of the request rejects. */
export const AnyForm = Type.Record(Type.String(), Type.Union([Type.String(), Type.Array(Type.String())]));

/** The token of a form. */
const Interaction = Type.String({ maxLength: MAX_TOKEN_LENGTH, writeOnly: true });

/** Whatever a person types; the rules of handles and passwords apply later. */
const Typed = Type.String({ maxLength: 1024 });
const Password = Type.String({ maxLength: 4096, writeOnly: true });

export const LoginBody = Closed({
  interaction: Interaction,
  handle: Typed,
  password: Password,
});

export const SecondFactorBody = Closed({
  interaction: Interaction,
  code: Type.String({ maxLength: 64, writeOnly: true }),
});

export const PasskeyBody = Closed({
  interaction: Interaction,
  credential: Type.String({
    accepts: 'the credential with which the browser has signed, as JSON',
    maxLength: 4096,
    writeOnly: true,
  }),
});

export const ConsentBody = Closed({
  interaction: Interaction,
  decision: Type.Enum(['allow', 'deny']),
});

export const SignUpBody = Closed({
  interaction: Interaction,
  handle: Typed,
  name: Type.Optional(Typed),
  password: Password,
  password_confirm: Password,
});

export const PasskeySignUpBody = Closed({
  interaction: Interaction,
  handle: Typed,
  name: Typed,
  credential: Type.String({
    accepts: 'the credential that the browser has created, as JSON',
    maxLength: 8 * 1024,
    writeOnly: true,
  }),
});

export type SignUpForm = Static<typeof SignUpBody>;

const AuthorizationDetails = Type.Optional(Type.Array(Type.Record(Type.String(), Type.Unknown())));

export const TokenResponseBody = Type.Object({
  access_token: Token,
  // `N_A` for a token that is no access token (RFC 8693 §2.2.1).
  token_type: Type.Enum(['Bearer', 'DPoP', 'N_A']),
  expires_in: Type.Integer(),
  scope: Type.String(),
  id_token: Type.Optional(Token),
  refresh_token: Type.Optional(Token),
  // The token with which an agent gets further access tokens of a delegation.
  delegation_token: Type.Optional(Token),
  // What a person has approved (RFC 9396 §7).
  authorization_details: AuthorizationDetails,
  // Of a token exchange (RFC 8693 §2.2.1).
  issued_token_type: Type.Optional(Type.String()),
});

export const PushedResponse = Type.Object({
  request_uri: Token,
  expires_in: Type.Integer(),
});

/** For an inactive token, only `active`. */
export const IntrospectionResponse = Type.Object({
  active: Type.Boolean(),
  scope: Type.Optional(Type.String()),
  client_id: Type.Optional(Type.String()),
  token_type: Type.Optional(Type.String()),
  iss: Type.Optional(Type.String()),
  sub: Type.Optional(Type.String()),
  aud: Type.Optional(Type.String()),
  exp: Type.Optional(Type.Integer()),
  iat: Type.Optional(Type.Integer()),
  jti: Type.Optional(Type.String()),
  txn: Type.Optional(Type.String()),
  kind: Type.Optional(Type.String()),
  sub_profile: Type.Optional(Type.String()),
  groups: Type.Optional(Type.Array(Type.String())),
  auth_time: Type.Optional(Type.Integer()),
  acr: Type.Optional(Type.String()),
  amr: Type.Optional(Type.Array(Type.String())),
  sid: Type.Optional(Type.String()),
  cnf: Type.Optional(Type.Object({ jkt: Type.String() })),
  delegation: Type.Optional(Type.String()),
  act: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  authorization_details: AuthorizationDetails,
});
