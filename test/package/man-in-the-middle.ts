import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';

/** Of one connection, not of the request. Java asks for HTTP/2 with `upgrade`. */
const HOP_BY_HOP = new Set([
  'host',
  'connection',
  'content-length',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** A proxy between an application and the provider that can replace the key. */
export interface Middle {
  readonly url: string;
  /** The target of the requests. */
  target: string;
  /** Publishes other keys under the same kids. */
  swapsKey: boolean;
}

export async function standInTheMiddle(t: Test): Promise<Middle> {
  const foreign = new Map(
    [generateKeyPairSync('ed25519'), generateKeyPairSync('ec', { namedCurve: 'P-256' })].map(
      ({ publicKey }) => {
        const { kty, x, y } = publicKey.export({ format: 'jwk' });
        return [kty, { x, y }];
      },
    ),
  );
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const answer = await fetch(middle.target + request.url, {
      method: request.method ?? 'GET',
      headers: Object.entries(request.headers).flatMap(([name, value]) =>
        HOP_BY_HOP.has(name) ? [] : [[name, String(value)] as [string, string]],
      ),
      redirect: 'manual',
      ...(chunks.length > 0 && { body: Buffer.concat(chunks) }),
    });
    const text = await answer.text();
    const isKeySet = request.url === '/.well-known/jwks.json' || request.url === '/jwks';
    const headers = Object.fromEntries(answer.headers);
    delete headers['content-length'];
    delete headers['transfer-encoding'];
    response.writeHead(answer.status, headers).end(middle.swapsKey && isKeySet ? swap(text) : text);
  });
  const swap = (text: string) => {
    const { keys } = JSON.parse(text) as { keys: { kty: string }[] };
    return JSON.stringify({ keys: keys.map((key) => ({ ...key, ...foreign.get(key.kty) })) });
  };
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const middle: Middle = { url: `http://127.0.0.1:${port}`, target: '', swapsKey: false };
  return middle;
}
