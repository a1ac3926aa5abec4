// An MCP server whose tools need access tokens of idp: docs/mcp.md.
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import Fastify from 'fastify';
import { protectResource } from 'saas-backend/resource-server';
import { z } from 'zod';

const PORT = Number(process.env.PORT ?? 4000);
const ISSUER = process.env.ISSUER ?? 'http://localhost:8080';
/** The identifier that `idp resource add` has registered: the address that clients call. */
const RESOURCE = process.env.RESOURCE ?? `http://127.0.0.1:${PORT}/mcp`;

const READ = 'notes:read';
const WRITE = 'notes:write';

/** The scopes of tools that need more than the connection itself. */
const SCOPES_OF_TOOLS = { add_note: [READ, WRITE] };

const app = Fastify({ logger: { level: 'warn' } });
await app.register(protectResource, {
  issuer: ISSUER,
  resource: RESOURCE,
  scopes: [READ, WRITE],
  name: 'Notes',
});
const { requireToken } = app.protectedResource;

/** The notes of each person or agent, in memory. */
const notes = new Map();

function createServer(token) {
  const server = new McpServer({ name: 'notes', version: '1.0.0' });
  const answer = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }] });
  server.registerTool(
    'whoami',
    { description: 'Says for whom, by which agents and with which scopes it is called.' },
    async () =>
      answer({
        subject: token.subject,
        kind: token.kind,
        actors: token.actors,
        client: token.clientId,
        scopes: token.scopes,
      }),
  );
  server.registerTool('list_notes', { description: 'Lists the notes.' }, async () =>
    answer(notes.get(token.subject) ?? []),
  );
  server.registerTool(
    'add_note',
    { description: 'Adds a note.', inputSchema: { text: z.string().min(1).max(1000) } },
    async ({ text }) => {
      const own = [...(notes.get(token.subject) ?? []), text].slice(-100);
      notes.set(token.subject, own);
      return answer({ count: own.length });
    },
  );
  return server;
}

/** The scopes of the tools that a message calls. A batch is an array of messages. */
function scopesFor(body) {
  const calls = [body].flat().filter((message) => message?.method === 'tools/call');
  return calls.flatMap(({ params }) => SCOPES_OF_TOOLS[params?.name] ?? []);
}

/** Browsers name the page that sends a request; none may use a name of its own for this machine (DNS rebinding). */
const { host, pathname } = new URL(RESOURCE);
async function refuseForeignPages(request, reply) {
  const { origin } = request.headers;
  const isOwn =
    request.headers.host === host && (origin === undefined || new URL(RESOURCE).origin === origin);
  if (!isOwn) return reply.code(403).send({ error: 'forbidden' });
}

app.post(pathname, {
  onRequest: [refuseForeignPages, requireToken({ scopes: [READ] })],
  // The body is known now. A client whose token lacks a scope asks the person for it and repeats the call.
  preHandler: requireToken(({ body }) => ({ scopes: scopesFor(body) })),
  handler: async (request, reply) => {
    // Without sessions, so that any process can answer any request.
    const server = createServer(request.accessToken);
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    reply.hijack();
    reply.raw.on('close', () => void server.close());
    await server.connect(transport);
    await transport.handleRequest(request.raw, reply.raw, request.body);
  },
});
// Streams and sessions are not offered.
app.route({
  method: ['GET', 'DELETE'],
  url: pathname,
  handler: async (_request, reply) =>
    reply.code(405).header('allow', 'POST').send({ error: 'method_not_allowed' }),
});

console.log(
  `The MCP server of ${RESOURCE} listens at ${await app.listen({ port: PORT, host: '127.0.0.1' })}`,
);
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => void app.close());
