/**
 * oidc-provider with its memory adapter, as a peer: `peer-server.js <port>`. EdDSA, one client, automatic consent;
 * the header `x-agent` signs the named agent in: no password is hashed and nothing is written to disk.
 */
import { generateKeyPairSync } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import Provider from 'oidc-provider';
import { AGENT_HEADER, PEER_CLIENT } from './peer-flow.js';

const port = Number(process.argv[2]);
const jwk = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      ...PEER_CLIENT,
      id_token_signed_response_alg: 'EdDSA',
      response_types: ['code'],
      grant_types: ['authorization_code'],
    },
  ],
  jwks: { keys: [{ ...(jwk as { kty: 'OKP' }), alg: 'EdDSA', use: 'sig', kid: 'of the bench' }] },
  cookies: { keys: ['secret of a local server'] },
  pkce: { required: () => false },
  features: { devInteractions: { enabled: false } },
  claims: { openid: ['sub'], email: ['email', 'email_verified'] },
  findAccount: (_context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: id, email_verified: true }),
  }),
  interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
  async loadExistingGrant({ oidc }) {
    const { client, session } = oidc;
    const grant = new provider.Grant({
      clientId: client?.clientId as string,
      accountId: session?.accountId as string,
    });
    grant.addOIDCScope('openid email');
    await grant.save();
    return grant;
  },
});

const answer = provider.callback();

async function signIn(request: IncomingMessage, response: ServerResponse): Promise<void> {
  await provider.interactionDetails(request, response);
  const accountId = String(request.headers[AGENT_HEADER]);
  const options = { mergeWithLastSubmission: false };
  await provider.interactionFinished(request, response, { login: { accountId } }, options);
}

createServer((request, response) => {
  const isSignIn = request.url?.startsWith('/interaction/');
  const handle = isSignIn ? signIn : answer;
  handle(request, response).catch((error) => response.writeHead(500).end(String(error)));
}).listen(port, '127.0.0.1');
