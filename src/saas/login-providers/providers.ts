import * as oidc from 'openid-client';
import { type Clock, HOUR, isRecent, SECOND } from '../../core/kernel/clock.js';
import { AppError } from '../../core/kernel/errors.js';
import { boundedFetch } from '../../core/outbound/bounded-fetch.js';
import type { SignInChecks } from '../../core/outbound/provider-sign-in.js';
import { federationErrors } from './errors.js';
import {
  identityOf,
  issuerProblem,
  knowsNonce,
  nameFromApple,
  type ProviderIdentity,
  readTokens,
  TENANT,
} from './provider-responses.js';
import { isGitHub, KNOWN_PROVIDERS, type ProviderConfiguration } from './schemas.js';

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
  clock: Clock;
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

/** The provider has not asked the person again. */
class StaleSignIn extends Error {
  override readonly name = 'StaleSignIn';
  override readonly message = 'The sign-in at the provider is too old.';
}

const isRejection = (error: unknown): boolean =>
  error instanceof StaleSignIn ||
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
    issuer = KNOWN_PROVIDERS.google,
    clientId,
    clientSecret,
    label,
    scope = 'openid email profile',
    responseMode,
    trustEmail = false,
    nonce: hasNonce,
  }: ProviderConfiguration,
  options: ProviderOptions,
): Provider {
  let known: { metadata: Promise<oidc.ServerMetadata>; at: number } | undefined;
  let keys: oidc.ExportedJWKSCache | undefined;

  const authentication = clientSecret === undefined ? oidc.None() : oidc.ClientSecretPost(clientSecret);
  const clientMetadata = { [oidc.clockTolerance]: CLOCK_TOLERANCE };

  const discover = async (): Promise<oidc.ServerMetadata> => {
    const address = new URL(`${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`);
    const found = await oidc
      .discovery(address, clientId, clientMetadata, authentication, {
        [oidc.customFetch]: boundedFetch,
        timeout: TIMEOUT,
        execute: options.allowHttp ? [oidc.allowInsecureRequests] : [],
      })
      .catch((error: unknown) => {
        throw unavailable(error);
      });
    const metadata = found.serverMetadata();
    const problem = issuerProblem(metadata.issuer, issuer, { trustEmail });
    if (problem !== undefined) throw unavailable(new Error(`LOGIN_PROVIDERS, ${name}: ${problem}`));
    return metadata;
  };

  /** A failure is not remembered. */
  const metadataOf = (): Promise<oidc.ServerMetadata> => {
    const now = options.clock.now();
    if (known && isRecent(known.at, { now, within: METADATA_MS })) return known.metadata;
    const found = { metadata: discover(), at: now };
    known = found;
    found.metadata.catch(() => {
      if (known === found) known = undefined;
    });
    return found.metadata;
  };

  const configurationOf = (
    metadata: oidc.ServerMetadata,
    fetch: oidc.CustomFetch = boundedFetch,
  ): oidc.Configuration => {
    const configuration = new oidc.Configuration(metadata, clientId, clientMetadata, authentication);
    configuration.timeout = TIMEOUT;
    configuration[oidc.customFetch] = fetch;
    // The signature of the id_token is verified, too, not only the connection that it came over.
    oidc.enableNonRepudiationChecks(configuration);
    if (options.allowHttp) oidc.allowInsecureRequests(configuration);
    if (keys) oidc.setJwksCache(configuration, keys);
    return configuration;
  };

  /**
   * Redeems the code of a response. What the provider answers is read before it is validated, because it decides what is expected:
   * the issuer, if each tenant has its own, and the nonce, which some providers do not know.
   */
  const redeem = async (
    metadata: oidc.ServerMetadata,
    response: URL,
    { state, nonce, codeVerifier }: SignInChecks,
  ) => {
    const expected = { expectedState: state, pkceCodeVerifier: codeVerifier, idTokenExpected: true };
    const received: Response[] = [];
    const sending = configurationOf(metadata, async (url, init) => {
      received.push(await boundedFetch(url, init));
      throw new Error('The answer is validated below.');
    });
    await oidc.authorizationCodeGrant(sending, response, expected).catch((error: unknown) => {
      if (received.length === 0) throw error;
    });
    const [answer, claims] = await readTokens(received[0] as Response);
    const answers = [answer];
    const validating = configurationOf(
      { ...metadata, issuer: metadata.issuer.replace(TENANT, () => String(claims['tid'])) },
      async (url, init) => answers.pop() ?? boundedFetch(url, init),
    );
    const needsNonce = claims['nonce'] !== undefined || (hasNonce ?? knowsNonce(metadata));
    const tokens = await oidc.authorizationCodeGrant(validating, response, {
      ...expected,
      ...(needsNonce && { expectedNonce: nonce }),
    });
    keys = oidc.getJwksCache(validating);
    return { validating, tokens };
  };

  return {
    name,
    label: label ?? (name === 'google' ? 'Google' : name),

    async authorizationUrl({ state, nonce, codeVerifier, maxAge }, redirectUri, loginHint) {
      // Google knows no other prompt that asks the person.
      const again = issuer === KNOWN_PROVIDERS.google ? 'select_account' : 'login';
      const prompt = maxAge === undefined ? options.prompt : again;
      return oidc.buildAuthorizationUrl(configurationOf(await metadataOf()), {
        redirect_uri: redirectUri,
        scope,
        state,
        nonce,
        code_challenge_method: 'S256',
        code_challenge: await oidc.calculatePKCECodeChallenge(codeVerifier),
        ...(responseMode && { response_mode: responseMode }),
        ...(loginHint && { login_hint: loginHint }),
        ...(prompt && { prompt }),
        ...(maxAge !== undefined && { max_age: `${maxAge}` }),
      });
    },

    identify: (response, checks) =>
      identify(name, options, async () => {
        const metadata = await metadataOf();
        const { validating, tokens } = await redeem(metadata, response, checks);
        const claims = tokens.claims();
        if (!claims) return null;
        // Some providers put the address into the response of the userinfo endpoint only.
        const lacksEmail = claims['email'] === undefined && metadata.userinfo_endpoint !== undefined;
        const more = lacksEmail ? await oidc.fetchUserInfo(validating, tokens.access_token, claims.sub) : {};
        const identity = identityOf({ ...nameFromApple(response), ...more, ...claims }, { trustEmail });
        if (isStale(identity, checks, options.clock)) throw new StaleSignIn();
        return identity;
      }),
  };
}

/** Whether the person was not asked again, although the sign-in has to be recent. */
const isStale = ({ authenticatedAt }: ProviderIdentity, { maxAge }: SignInChecks, clock: Clock): boolean =>
  maxAge !== undefined &&
  authenticatedAt !== undefined &&
  clock.now() - authenticatedAt > (maxAge + CLOCK_TOLERANCE) * SECOND;

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
  const base = url?.replace(/\/$/, '') ?? KNOWN_PROVIDERS.github;
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
  configuration[oidc.customFetch] = boundedFetch;
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

    async authorizationUrl({ state, codeVerifier, maxAge }, redirectUri, loginHint) {
      return oidc.buildAuthorizationUrl(configuration, {
        redirect_uri: redirectUri,
        scope,
        state,
        code_challenge_method: 'S256',
        code_challenge: await oidc.calculatePKCECodeChallenge(codeVerifier),
        ...(loginHint && { login: loginHint }),
        ...(maxAge !== undefined && { prompt: 'select_account' }),
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
