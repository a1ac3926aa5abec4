import { isDeepStrictEqual } from 'node:util';
import { ConfigurationError } from '../core/config/configuration-error.js';
import { metadataPath } from '../core/http/authorization.js';
import {
  createDpopVerifier,
  createMemoryReplayCache,
  DpopError,
  type ReplayCache,
} from '../core/http/dpop.js';
import { type Clock, SECOND, systemClock, toSeconds } from '../core/kernel/clock.js';
import { type AccessClaims, type AccessToken, type ApprovalDetails, accessTokenOf } from './access-token.js';
import { challengeOf, ResourceError, type ResourceErrorCode } from './errors.js';
import { createIssuerSource, type Fetch, type Issuer, type TrustedIssuer } from './issuer.js';
import { type DescribedResource, metadataOf, metadataUrl, type ResourceMetadata } from './metadata.js';
import { followRevocations, type Revocations } from './revocations.js';

/** Which access tokens an API accepts. */
export interface ResourceServerOptions extends DescribedResource, TrustedIssuer {
  /** Further issuers, each with rules of its own. */
  otherIssuers?: readonly TrustedIssuer[];
  /** Accept only access tokens that are bound to a key (DPoP, RFC 9449). Default: false; bound ones always need a proof. */
  requireDpop?: boolean;
  /** Remembers which DPoP proofs and approvals were used. Default: the memory of this process. Several processes need a shared one. */
  replayCache?: ReplayCache;
  /**
   * Seconds without an answer from the issuer's list of revoked tokens after which no token is accepted, 3 to 600. Default:
   * 30. `false` accepts revoked tokens until they expire, within ten minutes.
   */
  maxRevocationSilence?: number | false;
  /** Called when the issuer cannot be reached. Default: nothing; requests are refused with 503 meanwhile. */
  onFailure?(error: unknown): void;
  /** The source of the time; tests replace it. Default: that of the system. */
  clock?: Clock;
  /** Default: the global `fetch`. */
  fetch?: Fetch;
}

/** What a route demands of a token. */
export interface TokenDemands {
  /** All of these. */
  scopes?: readonly string[];
  /** One of these ways to sign in, as the issuer's `acr_values_supported` names them (RFC 9470 §4). */
  acr?: readonly string[];
  /** Seconds since the person signed in, at most. */
  maxAge?: number;
}

/** The parts of a request that matter, in any framework. */
export interface ProtectedRequest {
  /** In capital letters. */
  method: string;
  /** Absolute, as the client has called it; only for DPoP. */
  url: string;
  /** Values of the headers Authorization and DPoP, one for each line. */
  authorization: readonly string[];
  /** The same for the header DPoP. */
  dpop: readonly string[];
}

/** Verifies the access tokens of an API, in any framework. */
export interface ResourceServer {
  /** What the API publishes about itself (RFC 9728). */
  metadata: ResourceMetadata;
  /** Where to serve the metadata, from the root of the host. */
  metadataPath: string;
  /** Reads the issuer's metadata and its list of revoked tokens, so that the first request does not wait for them. */
  ready(): Promise<void>;
  /**
   * @param request of `fetch`, or its parts
   * @throws ResourceError with the status and the headers of the answer
   */
  verify(request: ProtectedRequest | Request, demands?: TokenDemands): Promise<AccessToken>;
  /**
   * Demands more of a verified token, for instance once the body of the request says what it asks for.
   * @throws ResourceError
   */
  require(token: AccessToken, demands: TokenDemands): void;
  /**
   * Demands that a person has approved exactly this with the token, and uses it up: another request with it is refused. The refusal
   * is a 403 whose body contains the `authorization_details` that the agent asks the provider for.
   * @throws ResourceError
   */
  requireApproval(token: AccessToken, details: ApprovalDetails): Promise<Approved>;
  /** Ends the requests in the background. */
  close(): void;
}

/** Who has approved what a token is used for. */
export interface Approved {
  /** The person: `subject` of the token. */
  by: string;
  /** The approval in the audit of the provider. */
  txn: string | undefined;
}

/** The clocks of issuer and resource server may differ by this much. */
const SKEW_S = 5;

/**
 * Accepts the access tokens that an issuer has made for one resource (RFC 9068).
 * @throws ConfigurationError naming every problem
 */
export function createResourceServer(options: ResourceServerOptions): ResourceServer {
  requireValid(options);
  const { resource, requireDpop = false, maxRevocationSilence = 30, onFailure = () => {} } = options;
  const { clock = systemClock, fetch = globalThis.fetch } = options;
  const trusted = issuersOf(options);
  const sources = new Map(
    trusted.map((rules): [string, Source] => [
      rules.issuer,
      { rules, read: createIssuerSource(rules, { clock, fetch }).get, revocations: undefined },
    ]),
  );
  const replay = options.replayCache ?? createMemoryReplayCache(clock);
  const dpop = createDpopVerifier({ clock, replay });

  const refuse = (code: ResourceErrorCode, message: string, more: Challenge = {}) => {
    const { scheme = requireDpop ? 'DPoP' : 'Bearer', cause, authorizationDetails, ...parameters } = more;
    const challenge = challengeOf(scheme, {
      ...(scheme === 'DPoP' && { algs: metadata.dpop_signing_alg_values_supported.join(' ') }),
      // RFC 6750 §3.1: no error without a token.
      ...(code !== 'missing_token' && { error: code, error_description: message }),
      ...parameters,
      // Also where the application answers with bodies of its own.
      ...(authorizationDetails && { authorization_details: asciiJson(authorizationDetails) }),
      resource_metadata: metadataUrl(resource),
    });
    const headers = { 'www-authenticate': challenge };
    return new ResourceError(code, message, headers, { cause, authorizationDetails });
  };

  const connect = async (source: Source): Promise<Issuer> => {
    const { issuer } = source.rules;
    try {
      const found = await source.read();
      if (maxRevocationSilence !== false && found.revocationsUri !== undefined) {
        const maxSilenceMs = maxRevocationSilence * SECOND;
        const following = { clock, fetch, issuer, maxSilenceMs, onFailure };
        source.revocations ??= followRevocations(found, found.revocationsUri, following);
        await source.revocations.ready();
      }
      return found;
    } catch (error) {
      onFailure(error);
      throw unavailable(error);
    }
  };

  /** The issuer that a token names. Its keys alone decide, so that no issuer speaks for another one. */
  const sourceOf = async ({ token, ...about }: Presented): Promise<Source> => {
    const { decodeJwt } = await import('jose');
    let cause: unknown;
    try {
      const source = sources.get(String(decodeJwt(token).iss));
      if (source) return source;
    } catch (error) {
      cause = error;
    }
    throw refuse('invalid_token', 'The access token is of no issuer of this resource.', { ...about, cause });
  };

  const claimsOf = async (source: Source, { token, ...about }: Presented): Promise<AccessClaims> => {
    const { keys } = await connect(source);
    const { jwtVerify, errors } = await import('jose');
    const { issuer, audience = resource, algorithms = ALGORITHMS, typ = 'at+jwt' } = source.rules;
    try {
      const { payload, protectedHeader } = await jwtVerify(token, keys, {
        issuer,
        audience,
        ...(typ === 'at+jwt' && { typ }),
        algorithms: [...algorithms],
        requiredClaims: REQUIRED_CLAIMS[typ],
        clockTolerance: SKEW_S,
        currentDate: new Date(clock.now()),
      });
      // RFC 7519 §5.1: the type may be absent.
      if (typ === 'JWT' && !/^jwt$/i.test(protectedHeader.typ ?? 'JWT'))
        throw new errors.JWTInvalid('another type');
      return payload as AccessClaims;
    } catch (error) {
      const isUnreachable =
        error instanceof errors.JWKSTimeout ||
        !(error instanceof errors.JOSEError) ||
        isKeyServerError(error);
      if (!isUnreachable) throw refuse('invalid_token', reasonOf(error), { ...about, cause: error });
      onFailure(error);
      throw unavailable(error);
    }
  };

  /** RFC 9449 §7.1: a token that is bound to a key is worth nothing without a proof. */
  const requireProof = async (
    claims: AccessClaims,
    { token, ...about }: Presented,
    request: ProtectedRequest,
  ): Promise<void> => {
    const bound = (claims['cnf'] as { jkt?: unknown } | undefined)?.jkt;
    const { scheme, scope } = about;
    if (bound === undefined) {
      if (scheme === 'DPoP') throw refuse('invalid_token', 'The access token is bound to no key.', about);
      if (requireDpop)
        throw refuse('invalid_token', 'Only access tokens that are bound to a key are accepted.', { scope });
      return;
    }
    if (scheme !== 'DPoP')
      throw refuse('invalid_token', 'The access token needs a DPoP proof.', { scheme: 'DPoP', scope });
    const proof = { proofs: request.dpop, method: request.method, url: request.url, accessToken: token };
    const used = await dpop.verify(proof).catch((error: unknown) => {
      if (error instanceof DpopError) throw refuse(error.code, error.message, { scheme });
      throw error;
    });
    if (used !== bound) throw refuse('invalid_token', 'The access token is bound to another key.', about);
  };

  const requireDemands = (token: AccessToken, { scopes = [], acr, maxAge }: TokenDemands) => {
    const scheme = token.claims['cnf'] === undefined ? 'Bearer' : 'DPoP';
    const missing = scopes.filter((scope) => !token.scopes.includes(scope));
    if (missing.length > 0) {
      // Clients ask for exactly the scopes of the challenge, so it names those that they have, too.
      const scope = [...new Set([...token.scopes, ...scopes])].join(' ');
      throw refuse('insufficient_scope', `The access token lacks ${missing.join(' ')}.`, { scheme, scope });
    }
    const isStrong = acr === undefined || (token.acr !== undefined && acr.includes(token.acr));
    const age = toSeconds(clock.now()) - (token.authTime ?? 0) / SECOND;
    if (isStrong && (maxAge === undefined || age <= maxAge + SKEW_S)) return;
    throw refuse('insufficient_user_authentication', 'The person must sign in again for this.', {
      scheme,
      acr_values: acr?.join(' '),
      max_age: maxAge?.toString(),
    });
  };

  const metadata = metadataOf(options, {
    // Clients find no metadata of the others.
    issuers: trusted.flatMap(({ issuer, jwksUri }) => (jwksUri === undefined ? [issuer] : [])),
    isDpopRequired: requireDpop,
  });

  return {
    metadata,
    metadataPath: metadataPath(resource),
    ready: async () => void (await Promise.all([...sources.values()].map(connect))),

    async verify(received, demands = {}) {
      const request = received instanceof Request ? partsOf(received) : received;
      const scope = demands.scopes?.join(' ');
      const [header] = request.authorization;
      if (header === undefined) throw refuse('missing_token', 'An access token is required.', { scope });
      if (request.authorization.length > 1)
        throw refuse('invalid_request', 'There must be one header Authorization.');
      const read = readAuthorization(header);
      if (!read) throw refuse('missing_token', 'An access token is required.', { scope });
      const presented = { ...read, scope };
      const source = await sourceOf(presented);
      const claims = await claimsOf(source, presented);
      await requireProof(claims, presented, request);
      const { revocations } = source;
      if (revocations && !revocations.isCurrent())
        throw unavailable(new Error('The list of revoked tokens is too old.'));
      if (revocations?.includes(claims))
        throw refuse('invalid_token', 'The access token was revoked.', { scheme: read.scheme, scope });
      const verified = accessTokenOf(claims);
      requireDemands(verified, demands);
      return verified;
    },

    require: requireDemands,

    async requireApproval(token, given) {
      // As in a token, where no value is undefined.
      const details: ApprovalDetails = JSON.parse(JSON.stringify(given));
      const [approved, ...others] = token.authorizationDetails;
      const isApproved = others.length === 0 && token.id !== '' && isDeepStrictEqual(approved, details);
      const { iss, txn, cnf } = token.claims;
      const key = `approval ${iss} ${token.id}`;
      if (isApproved && (await replay.claim(key, token.expiresAt + SKEW_S * SECOND)))
        return { by: token.subject, txn: typeof txn === 'string' ? txn : undefined };
      // RFC 6750 §3.1: neither RFC 9396 nor RFC 9470 has a code for this.
      throw refuse(
        'insufficient_scope',
        isApproved ? 'The approval was used already.' : 'A person must approve this.',
        { scheme: cnf === undefined ? 'Bearer' : 'DPoP', authorizationDetails: [details] },
      );
    },

    close() {
      for (const { revocations } of sources.values()) revocations?.stop();
    },
  };
}

type Scheme = 'Bearer' | 'DPoP';

/** What a request presents, and the scopes that its route needs: clients ask for those of the challenge. */
interface Presented {
  scheme: Scheme;
  token: string;
  scope: string | undefined;
}

/** What is known of an issuer. */
interface Source {
  rules: TrustedIssuer;
  read(): Promise<Issuer>;
  /** Since it has a list of revoked tokens. */
  revocations: Revocations | undefined;
}

const issuersOf = ({ otherIssuers = [], ...first }: ResourceServerOptions): TrustedIssuer[] => [
  first,
  ...otherIssuers,
];

/** Each is made with a key of its type: a key set has no secrets, and jose compares `kty`, `crv` and `alg`. */
const ALGORITHMS = ['EdDSA', 'Ed25519', 'ES256', 'RS256'];

const REQUIRED_CLAIMS = {
  'at+jwt': ['exp', 'iat', 'jti', 'sub', 'client_id'],
  JWT: ['exp', 'iat', 'sub'],
};

/** Parameters of a challenge, and what it is about. */
interface Challenge {
  scheme?: Scheme;
  scope?: string | undefined;
  acr_values?: string | undefined;
  max_age?: string | undefined;
  cause?: unknown;
  authorizationDetails?: readonly object[];
}

const asciiJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll(
    /[^\x20-\x7e]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );

const unavailable = (cause: unknown) =>
  new ResourceError(
    'temporarily_unavailable',
    'The access token cannot be verified now. Try again later.',
    { 'retry-after': '1' },
    { cause },
  );

/** A `Request` joins repeated headers with commas, which neither of these may contain. */
function partsOf({ method, url, headers }: Request): ProtectedRequest {
  const linesOf = (name: string) => headers.get(name) ?? [];
  return { method, url, authorization: [linesOf('authorization')].flat(), dpop: [linesOf('dpop')].flat() };
}

/** Schemes have no case (RFC 9110 §11.1). */
function readAuthorization(header: string): { scheme: Scheme; token: string } | null {
  const [, name = '', token] = /^(bearer|dpop) +([A-Za-z0-9._~+/-]+=*) *$/i.exec(header) ?? [];
  return token === undefined ? null : { scheme: /^dpop$/i.test(name) ? 'DPoP' : 'Bearer', token };
}

/** The code of the generic error of a key server that does not answer with 200 or JSON. */
const isKeyServerError = (error: unknown) => (error as { code?: unknown }).code === 'ERR_JOSE_GENERIC';

function reasonOf(error: unknown): string {
  switch ((error as { code?: unknown }).code) {
    case 'ERR_JWT_EXPIRED':
      return 'The access token has expired.';
    case 'ERR_JWT_CLAIM_VALIDATION_FAILED':
      return 'The access token was not issued for this resource.';
    default:
      return 'The access token is invalid.';
  }
}

function requireValid(options: ResourceServerOptions): void {
  const { resource, maxRevocationSilence = 30 } = options;
  const problems: string[] = [];
  const isSecure = (url: string) => {
    if (!URL.canParse(url)) return false;
    const { protocol, hostname } = new URL(url);
    return protocol === 'https:' || /^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname);
  };
  const issuers = issuersOf(options);
  for (const { issuer, jwksUri = issuer, audience, algorithms = ALGORITHMS, typ = 'at+jwt' } of issuers) {
    if (!isSecure(issuer)) problems.push('issuer must be an https address (http on this machine only).');
    if (!isSecure(jwksUri)) problems.push('jwksUri must be an https address (http on this machine only).');
    if (audience === '') problems.push('audience must not be empty.');
    if (!algorithms.every((name) => /^(EdDSA|Ed25519|(ES|RS|PS)(256|384|512))$/.test(name)))
      problems.push('algorithms must be of public keys, like RS256, ES256 and EdDSA.');
    if (!Object.hasOwn(REQUIRED_CLAIMS, typ)) problems.push('typ must be at+jwt or JWT.');
  }
  if (new Set(issuers.map(({ issuer }) => issuer)).size < issuers.length)
    problems.push('otherIssuers must name each issuer once.');
  if (!isSecure(resource)) problems.push('resource must be an https address (http on this machine only).');
  if (/[?#]/.test(resource)) problems.push('resource must have no query and no fragment.');
  if (maxRevocationSilence !== false && !(maxRevocationSilence >= 3 && maxRevocationSilence <= 600))
    problems.push('maxRevocationSilence must be 3 to 600 seconds, or false.');
  if (problems.length > 0)
    throw new ConfigurationError(
      'The resource server',
      problems.map((message) => ({ message })),
    );
}
