import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import { option } from '../../core/config/options.js';
import { pathProblem } from '../../core/config/public-url.js';
import {
  Closed,
  Email,
  Envelope,
  NewUserFieldsInput,
  Nullable,
  OptionalName,
  PasswordInput,
  Session,
  Timestamp,
  Token,
  User,
  UserFieldsInput,
} from '../../core/http/schemas.js';
import { newToken, secretWeakness } from '../../core/kernel/secrets.js';
import { hexKeyWeakness, isHexKey, readSigningKey } from '../../core/kernel/signing-keys.js';
import { roleOptions } from './users/roles.js';

/** Maximum size of a request body in bytes. */
export const BODY_LIMIT = 16 * 1024;

const strongSecret = (secret: string) => secretWeakness(secret, 32);

const accessKey = (env: string, doc: string) =>
  option(Type.Optional(Type.String()), {
    env,
    doc,
    secret: true,
    check(key) {
      const read = readSigningKey(key);
      return 'problem' in read ? read.problem : undefined;
    },
    safe: (key) => (isHexKey(key) ? hexKeyWeakness(key) : undefined),
  });

export const authOptions = {
  jwtAccessKey: accessKey(
    'JWT_ACCESS_KEY',
    'Key that signs access tokens which others verify without a secret (docs/saas/access-tokens.md): an Ed25519 seed of 64 hexadecimal characters, or a private key on P-256 in PEM.',
  ),
  jwtAccessKeyPrevious: accessKey(
    'JWT_ACCESS_KEY_PREVIOUS',
    'Another key that is published and verifies, but does not sign: the next or the previous one of a rotation.',
  ),
  jwtAccessAudience: option(Type.Optional(Type.String()), {
    env: 'JWT_ACCESS_AUDIENCE',
    doc: 'The `aud` of access tokens, for verifiers that expect a certain one. Changing it ends the tokens that were issued before, which clients refresh.',
    shown: 'saas-api',
    check: (audience) =>
      audience === undefined || /^[\x21-\x7e]{1,255}$/.test(audience)
        ? undefined
        : 'must be a name or an address without spaces, of at most 255 characters.',
  }),
  jwtAccessSecret: option(Type.Optional(Type.String()), {
    env: 'JWT_ACCESS_SECRET',
    doc: 'Secret that signs access tokens. At least 32 random bytes in production. With JWT_ACCESS_KEY, it is optional and only verifies.',
    shown: 'random outside production',
    secret: true,
    required: 'production',
    replacedBy: 'jwtAccessKey',
    generate: newToken,
    safe: strongSecret,
  }),
  jwtAccessSecretPrevious: option(Type.Optional(Type.String()), {
    env: 'JWT_ACCESS_SECRET_PREVIOUS',
    doc: 'Previous secret, used only to verify access tokens. Set it to the old secret when you rotate JWT_ACCESS_SECRET.',
    secret: true,
    safe: strongSecret,
  }),
  jwtRefreshSecret: option(Type.String(), {
    env: 'JWT_REFRESH_SECRET',
    doc: 'Secret that signs refresh tokens. At least 32 random bytes in production, different from JWT_ACCESS_SECRET.',
    shown: 'random outside production',
    secret: true,
    required: 'production',
    generate: newToken,
    safe: strongSecret,
  }),
  jwtRefreshSecretPrevious: option(Type.Optional(Type.String()), {
    env: 'JWT_REFRESH_SECRET_PREVIOUS',
    doc: 'Previous secret, used only to verify refresh tokens.',
    secret: true,
    safe: strongSecret,
  }),
  accessTokenTtl: option(Type.Integer({ minimum: 1, maximum: 86_400, default: 900 }), {
    env: 'ACCESS_TOKEN_TTL',
    doc: 'Lifetime of an access token in whole seconds.',
  }),
  refreshTokenTtl: option(Type.Integer({ minimum: 1, maximum: 31_536_000, default: 604_800 }), {
    env: 'REFRESH_TOKEN_TTL',
    doc: 'Lifetime of a refresh token in whole seconds. Each refresh issues a token with the full lifetime.',
  }),
  sessionMaxAge: option(Type.Integer({ minimum: 1, maximum: 157_680_000, default: 2_592_000 }), {
    env: 'SESSION_MAX_AGE',
    doc: 'Maximum lifetime of a session in seconds, regardless of refreshes.',
  }),
  refreshTokenReuseWindow: option(Type.Integer({ minimum: 1, maximum: 600, default: 30 }), {
    env: 'REFRESH_TOKEN_REUSE_WINDOW',
    doc: 'Seconds during which a used refresh token returns the same successor, for parallel requests and lost responses. Later, it ends the session.',
  }),
  requireEmailVerification: option(Type.Boolean({ default: false }), {
    env: 'REQUIRE_EMAIL_VERIFICATION',
    doc: 'Require users to confirm their e-mail address before they can sign in. Responses then do not reveal which addresses are registered.',
  }),
  resetUrlRelative: option(Type.Optional(Type.String()), {
    env: 'RESET_URL_RELATIVE',
    doc: 'Path of your password reset page, relative to PUBLIC_URL. Links append ?token= to it.',
    shown: 'the built-in page',
    check: (path) => pathProblem(path ?? '', '/new-password'),
  }),
  verifyUrlRelative: option(Type.Optional(Type.String()), {
    env: 'VERIFY_URL_RELATIVE',
    doc: 'Path of your e-mail confirmation page, relative to PUBLIC_URL. Links append ?token= to it.',
    shown: 'the built-in page',
    check: (path) => pathProblem(path ?? '', '/confirm-address'),
  }),
  emailLogin: option(Type.Boolean({ default: false }), {
    env: 'EMAIL_LOGIN',
    doc: 'Let users sign in with a code that is sent to their e-mail address (docs/saas/email-login.md). While registration is allowed, new addresses get an account.',
  }),
  emailLoginUrlRelative: option(Type.Optional(Type.String()), {
    env: 'EMAIL_LOGIN_URL_RELATIVE',
    doc: 'Path of your page for the code to sign in, relative to PUBLIC_URL. The link in the e-mail appends ?code= to it.',
    shown: 'the e-mail contains the code without a link',
    check: (path) => pathProblem(path ?? '', '/enter-code'),
  }),
  ...roleOptions,
};

export type AuthConfiguration = Static<TObject<typeof authOptions>>;

export const PlainRegisterBody = Closed({
  email: Email,
  password: PasswordInput,
  name: Type.Optional(OptionalName),
});

/** With the option `userFields`. */
export const RegisterBody = Closed({
  ...PlainRegisterBody.properties,
  fields: Type.Optional(NewUserFieldsInput),
});

export const LoginBody = Closed({ email: Email, password: PasswordInput });

const RefreshToken = Type.String({
  minLength: 1,
  maxLength: 4096,
  accepts: 'a refresh token',
  writeOnly: true,
});

export const RefreshBody = Closed({ refreshToken: RefreshToken });

export const LogoutBody = Closed({
  refreshToken: Type.Optional(RefreshToken),
  scope: Type.Enum(['local', 'others', 'global'], { default: 'local' }),
});

const access = {
  accessToken: Token,
  expiresIn: Type.Integer({ description: 'Seconds until the access token expires.' }),
};
const tokens = { ...access, refreshToken: Type.Optional(Token) };

export const AccessTokenAnswer = Envelope(Type.Object(access));

/** @param organization the one that is active in the session */
export const sessionAnswer = (organization: TObject) =>
  Envelope(
    Type.Object({
      session: Type.Union(
        [
          Type.Object({
            user: User,
            session: Session,
            organization: Nullable(organization),
            features: Type.Array(Type.String(), {
              description: 'Of the plans of the active organization, or else of the user.',
            }),
          }),
          Type.Null(),
        ],
        { description: 'Null for a visitor who is not signed in.' },
      ),
    }),
  );

/** A JWK Set (RFC 7517). */
export const JwksAnswer = Type.Object({
  keys: Type.Array(
    Type.Object({
      kty: Type.String(),
      crv: Type.String(),
      x: Type.String(),
      y: Type.Optional(Type.String()),
      kid: Type.String(),
      use: Type.Literal('sig'),
      alg: Type.Enum(['EdDSA', 'ES256']),
    }),
  ),
});

export const TokensAnswer = Envelope(Type.Object(tokens));
export const SignInAnswer = Envelope(Type.Object({ user: User, ...tokens }));
export const MeAnswer = Envelope(
  Type.Object({
    user: User,
    session: Type.Union([Session, Type.Null()], {
      description: 'Null for an API key, and for the access token of an agent or another application.',
    }),
    client: Type.Optional(
      Type.String({ description: 'Without a session: the application that the access token was issued to.' }),
    ),
    key: Type.Optional(
      Type.Object(
        { id: Type.String(), name: Type.String() },
        { description: 'Without a session: the API key.' },
      ),
    ),
    actor: Type.Optional(
      Type.Union(
        [
          Type.Object({
            sub: Type.String(),
            delegation: Type.Optional(Type.String()),
            via: Type.Array(Type.String(), {
              description: 'The agents that have handed the permission on, the last one first.',
            }),
          }),
          Type.Null(),
        ],
        { description: 'Without a session: the agent that acts for the user; null if there is none.' },
      ),
    ),
    scopes: Type.Optional(Type.Array(Type.String())),
  }),
);

export const EmailBody = Closed({ email: Email });

const LinkToken = Type.String({
  minLength: 1,
  maxLength: 512,
  accepts: 'the token of a link',
  writeOnly: true,
});

export const LinkQuery = Type.Object({ token: LinkToken });

export const VerifyBody = Closed({
  token: LinkToken,
  password: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        'The current password of the account, or a new one, which ends every session. Required unless the request carries an access token of the account.',
    }),
  ),
});

export const ResetBody = Closed({ token: LinkToken, password: PasswordInput });

export const PasswordBody = Closed({ currentPassword: PasswordInput, newPassword: PasswordInput });

/** Of an account that has one; otherwise, a recent sign-in suffices. */
const OwnPassword = Type.Optional(PasswordInput);

export const EmailChangeBody = Closed({ email: Email, password: OwnPassword });

export const DeletionBody = Closed({ password: OwnPassword });

const Code = Type.String({
  accepts: 'a code of the authenticator app, or a recovery code',
  pattern: '^\\P{Cs}{1,64}$',
  writeOnly: true,
});
const Challenge = Type.String({
  accepts: 'the challenge of an error response',
  pattern: '^[\\w.-]{1,2048}$',
  writeOnly: true,
});

const LoginToken = Type.String({
  accepts: 'the loginToken of the response to the request for the code',
  pattern: '^[\\w.-]{1,1024}$',
  writeOnly: true,
});
const MailedCode = Type.String({
  accepts: 'the code of the e-mail',
  pattern: '^\\P{Cs}{1,64}$',
  writeOnly: true,
});
export const PlainLoginCodeBody = Closed({ loginToken: LoginToken, code: MailedCode });
/** With the option `userFields`. */
export const LoginCodeBody = Closed({
  ...PlainLoginCodeBody.properties,
  fields: Type.Optional(UserFieldsInput),
});
export const LoginTokenAnswer = Envelope(
  Type.Object({
    loginToken: Type.String({ description: 'For the code; only the client that requested it may have it.' }),
    expiresIn: Type.Integer({ description: 'Seconds until the code expires.' }),
  }),
);

export const ReauthenticationBody = Closed({ password: PasswordInput, code: Type.Optional(Code) });
/** The new session. */
export const ReauthenticationAnswer = Envelope(Type.Object({ user: User, session: Session, ...tokens }));

/** Why an operator acts as a user; both read it. */
const Reason = Type.String({
  accepts: 'a reason of 1 to 500 characters, in one line',
  maxLength: 500,
  trimmed: true,
  pattern: '^[^\\p{Cc}\\p{Cs}\\p{Z}][^\\p{Cc}\\p{Cs}]*$',
});

export const ImpersonationBody = Closed({
  userId: Type.Optional(Type.String({ accepts: 'the ID of a user', pattern: '^[\\w-]{1,100}$' })),
  email: Type.Optional(Email),
  reason: Reason,
});

export const CodeBody = Closed({ code: Code });
export const ChallengeBody = Closed({ challenge: Challenge });
export const ChallengeCodeBody = Closed({ challenge: Challenge, code: Code });
export const FactorRemovalBody = Closed({ password: OwnPassword, code: Code });

export const FactorAnswer = Envelope(
  Type.Object({
    enrolledAt: Nullable(Timestamp),
    recoveryCodesLeft: Type.Integer(),
    requiredFrom: Type.Union([Timestamp, Type.Null()], {
      description: 'When sign-in begins to require a second factor; null if it does not, or there is one.',
    }),
  }),
);
export const EnrolmentAnswer = Envelope(
  Type.Object({
    secret: Type.String({ description: 'For typing: Base32 in groups of four characters.' }),
    uri: Type.String({ description: 'The same as a link that telephones open in the app.' }),
    qr: Type.String({ description: 'The same as an SVG image.' }),
  }),
);
const RecoveryCodes = Type.Array(Type.String(), { description: 'They cannot be read again.' });
export const RecoveryCodesAnswer = Envelope(Type.Object({ recoveryCodes: RecoveryCodes }));
export const EnrolledSignInAnswer = Envelope(
  Type.Object({ user: User, ...tokens, recoveryCodes: RecoveryCodes }),
);

const ListedSession = Type.Object({
  ...Session.properties,
  refreshedAt: Timestamp,
  browser: Type.Optional(
    Type.String({ description: 'Of the sign-in, such as `Firefox`; absent if unknown.' }),
  ),
  system: Type.Optional(Type.String({ description: 'Such as `Windows`; absent if unknown.' })),
  place: Type.Optional(Type.String({ description: 'The IPv4 address or the /64 of the sign-in.' })),
  current: Type.Boolean({ description: 'Whether this is the session of the request.' }),
});
export type ListedSession = Static<typeof ListedSession>;

export const SessionsAnswer = Envelope(Type.Object({ sessions: Type.Array(ListedSession) }));

export const SessionParams = Type.Object({
  id: Type.String({ accepts: 'the id of a session', pattern: '^[\\w-]{1,100}$' }),
});
