import { createECDH, createPrivateKey, sign } from 'node:crypto';
import { promisify } from 'node:util';
import type { JWK } from 'jose';
import {
  digestOf,
  ed25519Key,
  jwsKey,
  type SigningPair,
  signingPair,
} from '../../core/kernel/signing-keys.js';
import type { OidcConfiguration } from './schemas.js';

/** The signature algorithms of id_tokens; the first is the default of every client. */
export const SIGNING_ALGORITHMS = ['EdDSA', 'ES256'] as const;
export type SigningAlgorithm = (typeof SIGNING_ALGORITHMS)[number];

/** The keys: the first of each algorithm signs, all are published. */
export type Keys = ReturnType<typeof createKeys>;

/** `typ` of the header, without which one kind of token could be used as another (RFC 8725 §3.11); `JWT` for id_tokens. */
export type TokenType =
  | 'JWT'
  | 'logout+jwt'
  | 'at+jwt'
  | 'revocations+jwt'
  | 'oauth-id-jag+jwt'
  | 'receipt+jwt';

export interface KeyMaterial {
  /** Ed25519 seeds, 64 hexadecimal characters each; the first signs. */
  seeds: readonly [string, ...string[]];
  /** Private keys on P-256, 64 hexadecimal characters each; the first signs if `signsES256`. */
  es256Keys?: readonly string[];
  /** False while the only ES256 keys are published for a rotation. */
  signsES256?: boolean;
}

/** The configured keys of each algorithm, by their place in a rotation. */
const configuredKeys = (values: OidcConfiguration) => [
  { current: values.ed25519Seed, next: values.ed25519SeedNext, previous: values.ed25519SeedPrevious },
  { current: values.es256Key, next: values.es256KeyNext, previous: values.es256KeyPrevious },
];

/** The configured keys. */
export function keyMaterial(values: OidcConfiguration) {
  const [seeds = [], es256Keys = []] = configuredKeys(values).map((keys) =>
    Object.values(keys).filter((key) => key !== undefined),
  );
  return { seeds: seeds as [string, ...string[]], es256Keys, signsES256: values.es256Key !== undefined };
}

/** A published key, and its place in a rotation. */
export interface PublishedKey {
  id: string;
  algorithm: string;
  use: 'current' | 'next' | 'previous';
}

/** What each published key is for, in the order of `keyMaterial`. */
export function publishedKeys(values: OidcConfiguration, { jwks }: Keys): PublishedKey[] {
  const uses = configuredKeys(values).flatMap((keys) =>
    Object.entries(keys).flatMap(([use, key]) => (key === undefined ? [] : [use as PublishedKey['use']])),
  );
  return jwks.keys.flatMap(({ kid = '', alg = '' }, index) => {
    const use = uses[index];
    return use ? [{ id: kid, algorithm: alg, use }] : [];
  });
}

export function createKeys({ seeds, es256Keys = [], signsES256 = es256Keys.length > 0 }: KeyMaterial) {
  const pairs = [...seeds.map((seed) => signingPair(ed25519Key(seed))), ...es256Keys.map(loadP256)];
  const publicKeys = new Map<string | undefined, SigningPair>(pairs.map((pair) => [pair.jwk.kid, pair]));
  const signing = (algorithm: SigningAlgorithm) => pairs.find(({ jwk }) => jwk.alg === algorithm);
  const signers = new Map(
    SIGNING_ALGORITHMS.flatMap((algorithm) => {
      const pair = algorithm === 'ES256' && !signsES256 ? undefined : signing(algorithm);
      return pair ? [[algorithm, createSigner(algorithm, pair)] as const] : [];
    }),
  );
  return {
    /** The JWK Set (RFC 7517): public keys only. */
    jwks: { keys: pairs.map((pair) => pair.jwk) } satisfies { keys: JWK[] },
    /** The algorithms with a signing key. */
    algorithms: [...signers.keys()],
    /**
     * A JWS (RFC 7515 §7.1) over these claims, which must be complete.
     * @throws if there is no key for the algorithm
     */
    async sign(
      claims: Record<string, unknown>,
      algorithm: SigningAlgorithm = 'EdDSA',
      type?: TokenType,
    ): Promise<string> {
      const signer = signers.get(algorithm);
      if (!signer) throw new Error(`There is no key for ${algorithm}.`);
      return signer(claims, type);
    },
    /** The claims of a JWS of this type that one of these keys signed, expired or not; else `null`. */
    async verify(
      jws: string,
      type: TokenType = 'JWT',
      algorithms: readonly SigningAlgorithm[] = SIGNING_ALGORITHMS,
    ): Promise<Record<string, unknown> | null> {
      const [{ compactVerify }, { JOSEError }] = await Promise.all([
        import('jose/jws/compact/verify'),
        import('jose/errors'),
      ]);
      try {
        const { payload, protectedHeader } = await compactVerify(
          jws,
          ({ kid, alg }) => {
            const pair = publicKeys.get(kid);
            if (pair?.jwk.alg !== alg) throw new JOSEError('unknown key');
            return (pair as SigningPair).publicKey;
          },
          { algorithms: [...algorithms] },
        );
        if (protectedHeader.typ !== type) return null;
        return JSON.parse(Buffer.from(payload).toString()) as Record<string, unknown>;
      } catch (error) {
        if (error instanceof JOSEError) return null;
        throw error;
      }
    },
  };
}

type Signer = (claims: Record<string, unknown>, type?: TokenType) => Promise<string>;

function createSigner(alg: SigningAlgorithm, { privateKey, jwk }: SigningPair): Signer {
  const headerOf = (typ: TokenType) => base64url(JSON.stringify({ alg, typ, kid: jwk.kid }));
  const header = headerOf('JWT');
  const [digest, key] = [digestOf(jwk), jwsKey(privateKey)];
  return async (claims, type) => {
    const input = `${type ? headerOf(type) : header}.${base64url(JSON.stringify(claims))}`;
    const signature = await signInThreadPool(digest, Buffer.from(input), key);
    return `${input}.${signature.toString('base64url')}`;
  };
}

/** The user, client and session in an `id_token_hint`. */
export interface Hint {
  sub: string;
  clientId: string;
  sid?: string;
}

/** Reads an `id_token_hint` issued by this provider, expired ones included (RP-Initiated Logout §4); else `null`. */
export type ReadHint = (idToken: string) => Promise<Hint | null>;

export function createHintReader(keys: Keys, issuer: () => string): ReadHint {
  return async (idToken) => {
    const { iss, sub, aud, sid } = (await keys.verify(idToken)) ?? {};
    if (iss !== issuer() || typeof sub !== 'string' || typeof aud !== 'string') return null;
    return { sub, clientId: aud, ...(typeof sid === 'string' && { sid }) };
  };
}

/** Signs on another thread, which takes a sixth of the event loop time of a signature on this one. */
const signInThreadPool = promisify(sign);

const base64url = (text: string): string => Buffer.from(text).toString('base64url');

function loadP256(secret: string): SigningPair {
  const curve = createECDH('prime256v1');
  curve.setPrivateKey(secret, 'hex');
  const point = curve.getPublicKey();
  const [x, y] = [point.subarray(1, 33).toString('base64url'), point.subarray(33).toString('base64url')];
  const d = Buffer.from(secret, 'hex').toString('base64url');
  return signingPair(createPrivateKey({ key: { kty: 'EC', crv: 'P-256', x, y, d }, format: 'jwk' }));
}
