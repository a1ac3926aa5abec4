import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { SECOND } from '../core/kernel/clock.js';
import { AppError, httpErrors } from '../core/kernel/errors.js';
import type { AccessToken, ApprovalDetails } from './access-token.js';
import { ResourceError } from './errors.js';
import { METADATA_HEADERS } from './metadata.js';
import { readRequest } from './plugin.js';
import {
  type Approved,
  createResourceServer,
  type ResourceServerOptions,
  type TokenDemands,
} from './service.js';

/** A request for an MCP endpoint whose token permits everything that it asks for. */
export interface McpCall<Person = undefined> {
  /** Of Node, with `auth` for the MCP SDK: its tools find it at `extra.authInfo`. `auth.token` is the ID of the token only. */
  request: IncomingMessage;
  /** Of Node; the handler ends it. */
  response: ServerResponse;
  /** The parsed body. */
  body: unknown;
  /** For whom, by which agents and with which scopes. */
  token: AccessToken;
  /** What `identify` has found: inside saasBackend the same as `request.saas`, with `user`. */
  saas: Person;
  /** Demands that a person has approved exactly this with the token, and uses it up. @throws ResourceError, which the handler passes on */
  approve(details: ApprovalDetails): Promise<Approved>;
}

/** What calls of a tool need. */
export interface McpToolDemands extends TokenDemands {
  /** What a person has to approve once for a call with these arguments; checked before the handler gets the request. */
  approval?(args: Readonly<Record<string, unknown>>): ApprovalDetails;
}

/** The options of an MCP endpoint. Its path is that of `resource`, which is the address that clients call, byte for byte. */
export interface ProtectMcpOptions<Person = undefined> extends ResourceServerOptions {
  /** What each request needs. */
  scopes?: readonly string[];
  /** What calls of a tool need beside `scopes`, by its name. */
  tools?: Readonly<Record<string, McpToolDemands>>;
  /** Origins of pages that may send requests. Default: the origin of `resource`; requests of programs have none. */
  origins?: readonly string[];
  /** Finds the person of a verified token: `...fastify.saas.agentTokens()` has it. */
  identify?(token: AccessToken, ip: string): Promise<Person>;
  /** Answers POST, GET and DELETE, as a rule with a transport of an MCP SDK. */
  handler(call: McpCall<Person>): unknown;
}

/** A request of Express, with the body as a parser has left it. */
export type ExpressRequest = IncomingMessage & { body?: unknown; ip?: string | undefined };

/** A handler of Express. */
export type ExpressHandler = (
  request: ExpressRequest,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/** An application of Express. */
export type ExpressApplication = Record<
  'get' | 'post' | 'delete',
  (path: string, handler: ExpressHandler) => unknown
>;

/**
 * Protects an MCP endpoint of an application of Fastify or Express: serves its metadata (RFC 9728), answers with challenges, and hands
 * permitted requests to the handler. Call it at the root of the application; with Express, after `app.use(express.json())`.
 *
 * @returns how to end the requests in the background; Fastify does so when it closes
 * @throws ConfigurationError naming every problem
 */
export function protectMcp<Person = undefined>(
  app: FastifyInstance | ExpressApplication,
  options: ProtectMcpOptions<Person>,
): { close(): void } {
  const { resource, scopes = [], tools = {}, handler } = options;
  const isFastify = 'decorateRequest' in app;
  if (isFastify && app.prefix !== '') throw new Error('Call protectMcp at the root of the application.');
  const server = createResourceServer({
    ...(isFastify && {
      onFailure: (err) => app.log.warn({ err }, 'the identity provider cannot be reached'),
    }),
    ...options,
    scopes: scopesOf([{ scopes }, ...Object.values(tools)]),
  });
  const { origin, pathname } = new URL(resource);
  const { origins = [origin] } = options;

  /** @throws ResourceError, AppError */
  const admit = async (request: IncomingMessage, body: unknown, ip: string) => {
    const { origin: page, 'content-type': type = '' } = request.headers;
    if (page !== undefined && !origins.includes(page))
      throw httpErrors.FORBIDDEN({ message: `Pages of ${page} may not send requests to this endpoint.` });
    const calls = callsIn(body, tools);
    const asked = calls.map(({ demands }) => demands);
    // One challenge names all that the request needs.
    const needed = scopesOf([{ scopes }, ...asked]);
    const token = await server.verify(readRequest(request, resource), { scopes: needed });
    for (const { acr, maxAge } of asked)
      server.require(token, { scopes: needed, ...(acr && { acr }), ...(maxAge !== undefined && { maxAge }) });
    // A body that was not parsed could ask for a tool.
    if (request.method === 'POST' && !(/^application\/json\s*(;|$)/i.test(type) && typeof body === 'object'))
      throw httpErrors.UNSUPPORTED_MEDIA_TYPE({
        message: 'The body must be JSON, and in Express app.use(express.json()) must come before protectMcp.',
      });
    const saas = (await options.identify?.(token, ip)) as Person;
    const approve = (details: ApprovalDetails) => server.requireApproval(token, details);
    // Last, because it uses the approval up.
    for (const { demands, args } of calls) if (demands.approval) await approve(demands.approval(args));
    return { token, saas, approve };
  };

  const answer = async (request: IncomingMessage, response: ServerResponse, body: unknown, ip: string) => {
    try {
      const admitted = await admit(request, body, ip);
      const { id: token, clientId, scopes: granted, expiresAt } = admitted.token;
      const auth = { token, clientId, scopes: [...granted], expiresAt: expiresAt / SECOND, extra: admitted };
      await handler({ request: Object.assign(request, { auth }), response, body, ...admitted });
    } catch (error) {
      // The handler demands approvals, too.
      const isRefusal = error instanceof ResourceError || error instanceof AppError;
      if (!isRefusal || response.headersSent) throw error;
      const refusal =
        error instanceof ResourceError
          ? error.body()
          : { error: error.code, error_description: error.message };
      send(response, refusal, { 'cache-control': 'no-store', ...error.headers }, error.statusCode);
    }
  };

  const { metadata, metadataPath } = server;
  if (isFastify) {
    app.get(metadataPath, async (_, reply) => reply.headers(METADATA_HEADERS).send(metadata));
    app.route({
      method: ['POST', 'GET', 'DELETE'],
      url: pathname,
      handler: async ({ raw, body, ip }, reply) => {
        // Those of hooks, such as CORS.
        for (const [name, value] of Object.entries(reply.getHeaders()))
          reply.raw.setHeader(name, value ?? '');
        reply.hijack();
        await answer(raw, reply.raw, body, ip).catch((err: unknown) => {
          reply.log.error({ err }, 'a request for the MCP endpoint has failed');
          if (reply.raw.headersSent) reply.raw.destroy();
          else send(reply.raw, { error: 'server_error' }, {}, 500);
        });
      },
    });
    app.addHook('onClose', async () => server.close());
  } else {
    app.get(metadataPath, (_, response) => send(response, metadata, METADATA_HEADERS));
    const handle: ExpressHandler = (request, response, next) => {
      const { body, ip = request.socket.remoteAddress ?? '' } = request;
      answer(request, response, body, ip).catch(next);
    };
    for (const method of ['post', 'get', 'delete'] as const) app[method](pathname, handle);
  }
  return server;
}

const scopesOf = (demands: readonly TokenDemands[]): string[] => [
  ...new Set(demands.flatMap(({ scopes = [] }) => scopes)),
];

interface ToolCall {
  demands: McpToolDemands;
  args: Readonly<Record<string, unknown>>;
}

/** The calls of known tools in a body, with what they need. A batch is an array of messages. */
function callsIn(body: unknown, tools: Readonly<Record<string, McpToolDemands>>): ToolCall[] {
  const messages = [body].flat() as ({
    method?: unknown;
    params?: { name?: unknown; arguments?: unknown };
  } | null)[];
  const calls = messages.filter((message) => message?.method === 'tools/call');
  return calls.flatMap((message) => {
    const { name, arguments: given } = message?.params ?? {};
    const args = (typeof given === 'object' && given !== null ? given : {}) as ToolCall['args'];
    // A handler could read another type as the name of any tool.
    if (typeof name !== 'string') return Object.values(tools).map((demands) => ({ demands, args }));
    return Object.hasOwn(tools, name) ? [{ demands: tools[name] as McpToolDemands, args }] : [];
  });
}

function send(
  response: ServerResponse,
  body: object,
  headers: Readonly<Record<string, string>>,
  status = 200,
): void {
  response.writeHead(status, { ...headers, 'content-type': 'application/json' }).end(JSON.stringify(body));
}
