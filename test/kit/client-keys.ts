import { generateKeyPairSync, type JsonWebKey, type KeyObject, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SignJWT } from 'jose';
import type { Test } from 'tap';

/** Clients that sign, and hosts that publish their documents. */

export const ASSERTION_TYPE = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';

export interface ClientKey {
  /** The public key with `kid`. */
  jwk: JsonWebKey & { kid: string };
  privateKey: KeyObject;
  algorithm: 'EdDSA' | 'ES256' | 'PS256' | 'RS256';
}

export function clientKey(algorithm: ClientKey['algorithm'] = 'EdDSA', kid = `key-${algorithm}`): ClientKey {
  const { publicKey, privateKey } =
    algorithm === 'EdDSA'
      ? generateKeyPairSync('ed25519')
      : algorithm === 'ES256'
        ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
        : generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { jwk: { ...publicKey.export({ format: 'jwk' }), kid }, privateKey, algorithm };
}

export interface AssertionOptions {
  clientId: string;
  issuer: string;
  /** Milliseconds. */
  now: number;
  claims?: Record<string, unknown>;
  header?: Record<string, unknown>;
}

/** A client assertion; `undefined` in `claims` and `header` leaves one out. */
export function assertion(
  { privateKey, algorithm, jwk }: ClientKey,
  { clientId, issuer, now, claims = {}, header = {} }: AssertionOptions,
): Promise<string> {
  const seconds = Math.floor(now / 1000);
  const whole = {
    iss: clientId,
    sub: clientId,
    aud: issuer,
    iat: seconds,
    exp: seconds + 60,
    jti: randomUUID(),
    ...claims,
  };
  return new SignJWT(JSON.parse(JSON.stringify(whole)))
    .setProtectedHeader({ alg: algorithm, kid: jwk.kid, ...header })
    .sign(privateKey);
}

/** The fields of a token request that authenticate it. */
export const asserted = (text: string) => ({
  client_assertion_type: ASSERTION_TYPE,
  client_assertion: text,
});

export interface DocumentHost {
  url: string;
  /** The paths of the requests. */
  requests: string[];
  /** What it answers; JSON by default. */
  answer: RequestListener;
  /** Its documents by their paths. */
  documents: Record<string, unknown>;
  /** Headers of its documents. */
  headers: Record<string, string>;
  stop(): void;
}

/** A host on 127.0.0.1 that serves JSON documents. */
export async function documentHost(t: Test): Promise<DocumentHost> {
  const host: DocumentHost = {
    url: '',
    requests: [],
    documents: {},
    headers: { 'content-type': 'application/json' },
    answer(request, response) {
      const document = host.documents[request.url ?? ''];
      if (document === undefined) return void response.writeHead(404).end();
      response.writeHead(200, host.headers).end(JSON.stringify(document));
    },
    stop: () => void server.close(),
  };
  const server = createServer((request, response) => {
    host.requests.push(request.url ?? '');
    host.answer(request, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  host.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return host;
}
