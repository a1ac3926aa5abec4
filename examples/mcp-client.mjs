// An agent that calls a tool of the MCP server beside: docs/idp/mcp.md. It learns from the server where tokens come from.
import { ClientCredentialsProvider } from '@modelcontextprotocol/sdk/client/auth-extensions.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [tool = 'whoami', json = '{}'] = process.argv.slice(2);

const authProvider = new ClientCredentialsProvider({
  // The `sub` and the password of an agent.
  clientId: process.env.CLIENT_ID,
  clientSecret: process.env.CLIENT_SECRET,
  // The secret is sent to this provider only, whatever the server says.
  expectedIssuer: process.env.ISSUER ?? 'http://localhost:8080',
  scope: process.env.SCOPE ?? 'notes:read',
});
const url = new URL(process.env.MCP_SERVER ?? 'http://127.0.0.1:4000/mcp');
const client = new Client({ name: 'example', version: '1.0.0' });

await client.connect(new StreamableHTTPClientTransport(url, { authProvider }));
const { content } = await client.callTool({ name: tool, arguments: JSON.parse(json) });
console.log(content[0].text);
await client.close();
