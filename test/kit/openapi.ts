import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { Ajv2020 } from 'ajv/dist/2020.js';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { DocumentedProduct, OpenApiDocument } from '../../src/core/http/openapi.js';
import { routeRules } from '../../src/core/http/scope.js';

/** Compares every answer of a test, also streams, with the OpenAPI document: status, media type, content and error code. */

type Json = Record<string, unknown>;
interface Answer {
  $ref?: string;
  content?: Record<string, { schema?: Json }>;
}

const documents = new Map<DocumentedProduct, ReturnType<typeof open>>();

function open(product: DocumentedProduct) {
  const file = new URL(`../../../docs/openapi/${product}.json`, import.meta.url);
  const document = JSON.parse(readFileSync(file, 'utf8')) as OpenApiDocument;
  const ajv = new Ajv2020({ strict: false, validateFormats: true, inlineRefs: false });
  ajv.addFormat('date-time', /^\d{4,}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/);
  ajv.addSchema(closed(document) as Json, 'document');
  return { document, ajv };
}

/** Objects have no properties that the document does not name, unless it says so. */
function closed(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(closed);
  if (typeof part !== 'object' || part === null) return part;
  const copy = Object.fromEntries(Object.entries(part).map(([name, value]) => [name, closed(value)]));
  const isObject = copy['type'] === 'object' && typeof copy['properties'] === 'object';
  return isObject ? { additionalProperties: false, ...copy } : copy;
}

export interface Checked {
  product: DocumentedProduct;
  /** The path of a route in the document, by its path on the server. */
  pathOf(url: string): string;
}

/** What is wrong with an answer; `undefined` if nothing is, or if the document does not have the route. */
export function problemOf(
  { product, pathOf }: Checked,
  request: Pick<FastifyRequest, 'method' | 'routeOptions'>,
  { status, type, payload }: { status: number; type: string; payload: unknown },
): string | undefined {
  const { url, config } = request.routeOptions;
  if (url === undefined || routeRules({ config }).access === undefined) return undefined;
  const known = documents.get(product) ?? open(product);
  documents.set(product, known);
  const path = pathOf(url).replace(/:(\w+)/g, '{$1}');
  const operation = known.document.paths[path]?.[request.method.toLowerCase()];
  if (!operation) return undefined;
  const [media = ''] = type.split(';');
  // Pages for people, of operations that answer with JSON to applications.
  if (media === 'text/html') return undefined;
  const where = `${request.method} ${path} ${status}`;
  const answers = operation['responses'] as Record<string, Answer>;
  const answer = answers[status];
  const shown = typeof payload === 'string' ? payload.slice(0, 400) : '';
  if (!answer) return `${where} is not in the document: ${shown}`;
  const shared = answer.$ref?.slice('#/components/responses/'.length);
  const resolved = shared ? (known.document.components['responses']?.[shared] as Answer) : answer;
  if (typeof payload !== 'string' || payload === '')
    return resolved.content && `${where} is empty, and in the document it is not.`;
  if (!resolved.content?.[media])
    return `${where} is ${media || 'of no type'}, which the document does not have.`;
  if (media !== 'application/json') return undefined;
  const place = shared
    ? ['components', 'responses', shared]
    : ['paths', path, request.method.toLowerCase(), 'responses', String(status)];
  const pointer = [...place, 'content', media, 'schema'].map(escaped).join('/');
  const validate = known.ajv.getSchema(`document#/${pointer}`);
  if (!validate) throw new Error(`${where} has no schema`);
  if (validate(JSON.parse(payload))) return undefined;
  return `${where} does not fit the document: ${known.ajv.errorsText(validate.errors)}: ${shown}`;
}

const escaped = (part: string) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'));

/** Calls back with the text of a stream, before its end is read; never if it ends early. */
function onText(stream: Readable, callback: (text: string) => void): void {
  const chunks: Buffer[] = [];
  const push = stream.push.bind(stream);
  stream.push = (chunk: Buffer | string | null, encoding?: BufferEncoding) => {
    if (chunk === null) callback(Buffer.concat(chunks).toString());
    else chunks.push(Buffer.from(chunk as string, encoding));
    return push(chunk, encoding);
  };
}

/** Fails the test for each answer that the document does not describe. Call it before the routes are registered. */
export function checkAnswers(
  t: { fail(problem: string): unknown },
  fastify: FastifyInstance,
  checked: Checked,
): void {
  fastify.addHook('onSend', async (request: FastifyRequest, reply: FastifyReply, sent: unknown) => {
    const type = String(reply.getHeader('content-type') ?? '');
    const { statusCode: status } = reply;
    const check = (payload: unknown) => {
      const problem = problemOf(checked, request, { status, type, payload });
      if (problem !== undefined) t.fail(problem);
    };
    if (sent instanceof Readable) onText(sent, check);
    else check(sent);
    return sent;
  });
}

/** Paths below a prefix, and below that of the admin area. */
export function saasPaths({
  prefix = '/api',
  adminPath = '/admin',
}: {
  prefix?: string;
  adminPath?: string | false;
}): Checked {
  const replaced = (url: string, from: string, to: string) =>
    url.startsWith(`${from}/`) ? to + url.slice(from.length) : undefined;
  return {
    product: 'saas-backend',
    pathOf: (url) =>
      replaced(url, prefix, '/api') ??
      (adminPath === false ? undefined : replaced(url, adminPath, '/admin')) ??
      url,
  };
}

export const idpPaths = (prefix = ''): Checked => ({
  product: 'idp',
  pathOf: (url) => (url.startsWith(prefix) ? url.slice(prefix.length) : url),
});
