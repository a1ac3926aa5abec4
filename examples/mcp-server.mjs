// An MCP server whose tools need access tokens of idp: docs/idp/mcp.md.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import Fastify from 'fastify';
import { protectMcp } from 'saas-backend/resource-server';
import { z } from 'zod';

const PORT = Number(process.env.PORT ?? 4000);

/** The notes of each person or agent, in memory. */
const notes = new Map();

function createServer({ subject, kind, actors, clientId, scopes }) {
  const server = new McpServer({ name: 'notes', version: '1.0.0' });
  const answer = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }] });
  server.registerTool(
    'whoami',
    { description: 'Says for whom, by which agents and with which scopes it is called.' },
    async () => answer({ subject, kind, actors, client: clientId, scopes }),
  );
  server.registerTool('list_notes', { description: 'Lists the notes.' }, async () =>
    answer(notes.get(subject) ?? []),
  );
  server.registerTool(
    'add_note',
    { description: 'Adds a note.', inputSchema: { text: z.string().min(1).max(1000) } },
    async ({ text }) => {
      const own = [...(notes.get(subject) ?? []), text].slice(-100);
      notes.set(subject, own);
      return answer({ count: own.length });
    },
  );
  return server;
}

const app = Fastify({ logger: { level: 'warn' } });
protectMcp(app, {
  issuer: process.env.ISSUER ?? 'http://localhost:8080',
  // The identifier that `idp resource add` has registered: the address that clients call.
  resource: process.env.RESOURCE ?? `http://127.0.0.1:${PORT}/mcp`,
  name: 'Notes',
  scopes: ['notes:read'],
  tools: { add_note: { scopes: ['notes:write'] } },
  handler: async ({ request, response, body, token }) => {
    // Without sessions, so that any process can answer any request; streams are not offered.
    if (request.method !== 'POST') return response.writeHead(405, { allow: 'POST' }).end();
    const server = createServer(token);
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    response.on('close', () => void server.close());
    await server.connect(transport);
    await transport.handleRequest(request, response, body);
  },
});

console.log(`The MCP server listens at ${await app.listen({ port: PORT, host: '127.0.0.1' })}`);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void app.close());
