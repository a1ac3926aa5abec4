import { sign, verify } from 'node:crypto';
import { access, type FastifyTypebox } from '../../../core/http/routes.js';
import {
  digestOf,
  jwsKey,
  readSigningKey,
  type SigningJwk,
  type SigningPair,
  signingPair,
} from '../../../core/kernel/signing-keys.js';
import { JwksAnswer } from '../schemas.js';

/** Access tokens that others verify with a public key: EdDSA or ES256. */

/** The claims of a token. */
export type Claims = Readonly<Record<string, unknown>>;

/** How long verifiers may keep the public keys. */
const JWKS_SECONDS = 300;

/**
 * @param current signs and verifies; absent: nothing is signed
 * @param previous only verifies
 */
export function openAccessKeys(typ: string, current: string | undefined, previous: string | undefined) {
  const signing = current === undefined ? undefined : pairOf(current);
  const others = previous === undefined ? [] : [pairOf(previous)];
  const pairs = signing ? [signing, ...others] : others;
  const byHeader = new Map(pairs.map((pair) => [headerOf(pair.jwk, typ), pair]));
  return {
    /** Of all keys, for those who verify. */
    jwks: pairs.map(({ jwk }) => jwk),
    sign: signing && createSigner(signing, typ),
    /**
     * A token must have exactly the header with which its key signs: this compares algorithm, type and key at once, before a byte
     * of the token is interpreted (RFC 8725 §3.1).
     */
    verify(token: string): Claims | null {
      const [header = '', payload = '', signature = ''] = token.split('.');
      const pair = byHeader.get(header);
      if (!pair) return null;
      const [input, bytes] = [Buffer.from(`${header}.${payload}`), Buffer.from(signature, 'base64url')];
      if (!verify(digestOf(pair.jwk), input, jwsKey(pair.publicKey), bytes)) return null;
      // Only objects are signed.
      return JSON.parse(Buffer.from(payload, 'base64url').toString()) as Claims;
    },
  };
}

function createSigner({ privateKey, jwk }: SigningPair, typ: string): (claims: Claims) => string {
  const [header, digest, key] = [headerOf(jwk, typ), digestOf(jwk), jwsKey(privateKey)];
  return (claims) => {
    // RFC 9068 §2.2 demands a client: it is the installation, which its address identifies.
    const payload = Buffer.from(JSON.stringify({ ...claims, client_id: claims['iss'] }));
    const input = `${header}.${payload.toString('base64url')}`;
    return `${input}.${sign(digest, Buffer.from(input), key).toString('base64url')}`;
  };
}

function pairOf(text: string): SigningPair {
  const read = readSigningKey(text);
  if ('problem' in read) throw new TypeError(`The key of access tokens ${read.problem}`);
  return signingPair(read.key);
}

const headerOf = ({ alg, kid }: SigningJwk, typ: string): string =>
  Buffer.from(JSON.stringify({ alg, typ, kid })).toString('base64url');

/** The public keys, for those who verify access tokens. */
export async function jwksPlugin(
  fastify: FastifyTypebox,
  { jwks }: { jwks: readonly SigningJwk[] },
): Promise<void> {
  fastify.get(
    '/auth/jwks',
    {
      config: access('public', { duringMaintenance: true, cors: false }),
      schema: { response: { 200: JwksAnswer } },
    },
    async (_request, reply) => {
      // Public data, which pages of any origin may read.
      reply.header('access-control-allow-origin', '*');
      reply.header('cache-control', `public, max-age=${JWKS_SECONDS}`);
      return { keys: [...jwks] };
    },
  );
}
