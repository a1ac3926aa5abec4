import * as oidc from 'openid-client';
import type { SignInChecks } from '../http/provider-sign-in.js';
import { type Clock, HOUR, isRecent } from '../kernel/clock.js';
import { AppError } from '../kernel/errors.js';
import { federationErrors } from './errors.js';
import { isGitHub, KNOWN, type ProviderConfiguration } from './schemas.js';

/** What a provider says about the person who signed in there. */
export interface ProviderIdentity {
  issuer: string;
  subject: string;
  email?: string;
  /** Whether the provider has verified the address. */
  emailVerified: boolean;
  name?: string;
  /** `human` or `agent`, where the provider tells agents from people. */
  kind?: string;
}

/** A provider that users can sign in with. */
export interface Provider {
  name: string;
  label: string;
  /** @throws PROVIDER_UNAVAILABLE */
  authorizationUrl(checks: SignInChecks, redirectUri: string, loginHint: string | undefined): Promise<URL>;
  /**
   * Redeems the code of a response, and validates everything about it.
   * @returns null if the response is an error or invalid
   * @throws PROVIDER_UNAVAILABLE
   */
  identify(response: URL, checks: SignInChecks): Promise<ProviderIdentity | null>;
}

export interface ProviderOptions {
  clock: Pick<Clock, 'now'>;
  /** Whether providers may be addressed by http. */
  allowHttp: boolean;
  /** The `prompt` of every sign-in (OpenID Connect Core §3.1.2.1); absent: none. */
  prompt?: string;
  /** Called with a rejected response of a provider, for the log. */
  onRejected(provider: string, error: unknown): void;
}

/** In seconds; a request of the user waits for it. */
const TIMEOUT = 5;

/** In seconds: how far the clock of a provider may differ. */
const CLOCK_TOLERANCE = 60;

/** How long the metadata of a provider is used. */
const METADATA_MS = HOUR;

export function createProvider(
  name: string,
  configured: ProviderConfiguration,
  options: ProviderOptions,
): Provider {
  return isGitHub(name, configured)
    ? createGitHub(name, configured, options)
    : createOpenIdProvider(name, configured, options);
}

/** Failures of the connection or of the provider, as opposed to a response that is an error or wrong. */
const FAILURES: readonly (string | undefined)[] = [
  undefined,
  'OAUTH_TIMEOUT',
  'OAUTH_ABORT',
  'OAUTH_RESPONSE_IS_NOT_CONFORM',
  'OAUTH_RESPONSE_IS_NOT_JSON',
  'OAUTH_PARSE_ERROR',
];

const isRejection = (error: unknown): boolean =>
  error instanceof oidc.AuthorizationResponseError ||
  error instanceof oidc.WWWAuthenticateChallengeError ||
  (error instanceof oidc.ResponseBodyError && error.status < 500) ||
  (error instanceof oidc.ClientError && !FAILURES.includes(error.code));

const unavailable = (cause: unknown) => federationErrors.PROVIDER_UNAVAILABLE({ cause });

/** Reads who has signed in. Null, after a line in the log, if the provider or a check rejects the response. */
async function identify(
  name: string,
  { onRejected }: ProviderOptions,
  read: () => Promise<ProviderIdentity | null>,
): Promise<ProviderIdentity | null> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof AppError) throw error;
    if (!isRejection(error)) throw unavailable(error);
    onRejected(name, error);
    return null;
  }
}

function createOpenIdProvider(
  name: string,
  {
    issuer = KNOWN.google,
    clientId,
    clientSecret,
    label,
    scope = 'openid email profile',
  }: ProviderConfiguration,
  options: ProviderOptions,
): Provider {
  let known: { configuration: Promise<oidc.Configuration>; at: number } | undefined;

  const discover = (): Promise<oidc.Configuration> => {
    const authentication = clientSecret === undefined ? oidc.None() : oidc.ClientSecretPost(clientSecret);
    const execute = options.allowHttp ? [oidc.allowInsecureRequests] : [];
    return oidc
      .discovery(new URL(issuer), clientId, { [oidc.clockTolerance]: CLOCK_TOLERANCE }, authentication, {
        timeout: TIMEOUT,
        // The signature of the id_token is verified, too, not only the connection that it came over.
        execute: [oidc.enableNonRepudiationChecks, ...execute],
      })
      .catch((error: unknown) => {
        throw unavailable(error);
      });
  };

  /** The metadata. A failure is not remembered. */
  const configuration = (): Promise<oidc.Configuration> => {
    const now = options.clock.now();
    if (known && isRecent(known.at, { now, within: METADATA_MS })) return known.configuration;
    const found = { configuration: discover(), at: now };
    known = found;
    found.configuration.catch(() => {
      if (known === found) known = undefined;
    });
    return found.configuration;
  };

  return {
    name,
    label: label ?? (name === 'google' ? 'Google' : name),

    async authorizationUrl({ state, nonce, codeVerifier }, redirectUri, loginHint) {
      return oidc.buildAuthorizationUrl(await configuration(), {
        ...{ redirect_uri: redirectUri, scope, state, nonce, code_challenge_method: 'S256' },
        code_challenge: await oidc.calculatePKCECodeChallenge(codeVerifier),
        ...(loginHint && { login_hint: loginHint }),
        ...(options.prompt && { prompt: options.prompt }),
      });
    },

    identify: (response, { state, nonce, codeVerifier }) =>
      identify(name, options, async () => {
        const found = await configuration();
        const tokens = await oidc.authorizationCodeGrant(found, response, {
          ...{ expectedState: state, expectedNonce: nonce, pkceCodeVerifier: codeVerifier },
          idTokenExpected: true,
        });
        const claims = tokens.claims();
        if (!claims) return null;
        // Some providers put the address into the response of the userinfo endpoint only.
        const lacksEmail =
          claims['email'] === undefined && found.serverMetadata().userinfo_endpoint !== undefined;
        const more = lacksEmail ? await oidc.fetchUserInfo(found, tokens.access_token, claims.sub) : {};
        return identityOf({ ...more, ...claims }, claims.iss);
      }),
  };
}

function identityOf(claims: Record<string, unknown>, issuer: string): ProviderIdentity {
  const { sub, email, email_verified: emailVerified, name, kind } = claims;
  return {
    issuer,
    subject: String(sub),
    ...(typeof email === 'string' && { email }),
    // Some providers send it as text.
    emailVerified: emailVerified === true || emailVerified === 'true',
    ...(typeof name === 'string' && { name }),
    ...(typeof kind === 'string' && { kind }),
  };
}

/** GitHub, which is no OpenID provider: the account is read with the access token. */
function createGitHub(
  name: string,
  {
    clientId,
    clientSecret = '',
    label = 'GitHub',
    scope = 'read:user user:email',
    url,
  }: ProviderConfiguration,
  options: ProviderOptions,
): Provider {
  const base = url?.replace(/\/$/, '') ?? KNOWN.github;
  const api = url === undefined ? 'https://api.github.com' : `${base}/api/v3`;
  const configuration = new oidc.Configuration(
    {
      issuer: base,
      authorization_endpoint: `${base}/login/oauth/authorize`,
      token_endpoint: `${base}/login/oauth/access_token`,
    },
    clientId,
    undefined,
    oidc.ClientSecretPost(clientSecret),
  );
  configuration.timeout = TIMEOUT;
  if (options.allowHttp) oidc.allowInsecureRequests(configuration);

  const read = async (token: string, path: string): Promise<unknown> => {
    const headers = new Headers({ accept: 'application/vnd.github+json' });
    const answer = await oidc.fetchProtectedResource(
      configuration,
      token,
      new URL(api + path),
      'GET',
      null,
      headers,
    );
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
    return answer.json();
  };

  return {
    name,
    label,

    async authorizationUrl({ state, codeVerifier }, redirectUri, loginHint) {
      return oidc.buildAuthorizationUrl(configuration, {
        ...{ redirect_uri: redirectUri, scope, state, code_challenge_method: 'S256' },
        code_challenge: await oidc.calculatePKCECodeChallenge(codeVerifier),
        ...(loginHint && { login: loginHint }),
      });
    },

    identify: (response, { state, codeVerifier }) =>
      identify(name, options, async () => {
        const { access_token: token } = await oidc.authorizationCodeGrant(configuration, response, {
          expectedState: state,
          pkceCodeVerifier: codeVerifier,
        });
        const [user, emails] = (await Promise.all([read(token, '/user'), read(token, '/user/emails')])) as [
          { id?: unknown; name?: unknown },
          { email?: unknown; primary?: unknown; verified?: unknown }[],
        ];
        // Names can be given to another account; the number cannot.
        if (!Number.isSafeInteger(user.id)) return null;
        const primary = emails.find((one) => one.primary === true);
        return {
          issuer: base,
          subject: String(user.id),
          ...(typeof primary?.email === 'string' && { email: primary.email }),
          emailVerified: primary?.verified === true,
          ...(typeof user.name === 'string' && { name: user.name }),
        };
      }),
  };
}
