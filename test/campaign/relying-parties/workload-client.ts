/**
 * A client of MCP that proves itself with the token of its platform: the SDK as it is, which asks the authorization server of the MCP
 * server for an access token. The conformance program runs it against its own servers, and a test against idp.
 */

import type { OAuthClientProvider } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { OAuthTokens } from '@modelcontextprotocol/sdk/shared/auth.js';
import { JWT_BEARER } from '../../../src/idp/oidc/identity-assertions/trust.js';

/** @returns the names of the tools */
export async function listTools(
  url: string,
  { clientId, assertion, scope }: { clientId: string; assertion: string; scope?: string },
): Promise<string[]> {
  let tokens: OAuthTokens | undefined;
  const authProvider: OAuthClientProvider = {
    redirectUrl: undefined,
    clientMetadata: { redirect_uris: [], token_endpoint_auth_method: 'none', grant_types: [JWT_BEARER] },
    clientInformation: () => ({ client_id: clientId }),
    tokens: () => tokens,
    saveTokens: (saved) => {
      tokens = saved;
    },
    redirectToAuthorization: () => undefined,
    saveCodeVerifier: () => undefined,
    codeVerifier: () => '',
    prepareTokenRequest: () =>
      new URLSearchParams({ grant_type: JWT_BEARER, assertion, ...(scope !== undefined && { scope }) }),
  };
  const client = new Client({ name: 'workload', version: '1.0.0' });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }) as never);
  const { tools } = await client.listTools();
  await client.close();
  return tools.map(({ name }) => name);
}

// As the conformance program starts it: with what it knows in the environment, and the address as the last argument.
const context = process.env['MCP_CONFORMANCE_CONTEXT'];
if (context !== undefined) {
  const { client_id: clientId, valid_jwt: assertion } = JSON.parse(context) as Record<string, string>;
  await listTools(process.argv.at(-1) ?? '', { clientId: clientId ?? '', assertion: assertion ?? '' });
}
