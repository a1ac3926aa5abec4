import type { IncomingMessage } from 'node:http';
import querystring from 'node:querystring';
import { Readable } from 'node:stream';
import type {
  FastifyInstance,
  FastifyRequest,
  preParsingHookHandler,
  preValidationHookHandler,
  RequestPayload,
} from 'fastify';
import { httpErrors } from '../kernel/errors.js';

/** Accepts JSON only: with `text/plain`, pages of other origins could send requests without a preflight. */
export function setBodyParser(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  const parse = scope.getDefaultJsonParser('error', 'error');
  scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body, done) => {
    const text = decode(body as Buffer);
    if (text === null) done(httpErrors.INVALID_JSON());
    else if (text === '') done(null, {});
    else parse(request, text, done);
  });
}

/** Methods for which Fastify reads no body. */
export const METHODS_WITHOUT_BODY: ReadonlySet<string> = new Set(['GET', 'HEAD']);

/** Hooks of every route with a body. An absent body becomes `{}`, so that the schema reports missing properties. */
export const readBody: { preParsing: preParsingHookHandler; preValidation: preValidationHookHandler } = {
  preParsing(request, _reply, payload, done) {
    const encoding = request.headers['content-encoding'];
    // A route may have several methods.
    if (METHODS_WITHOUT_BODY.has(request.method)) done(null, payload);
    // No client needs compressed bodies, and a decoder is attack surface.
    else if (encoding !== undefined && encoding !== 'identity') done(httpErrors.UNSUPPORTED_MEDIA_TYPE());
    else done(null, replayReadBody(request, payload));
  },
  preValidation(request, _reply, done) {
    if (request.body === undefined) request.body = {};
    done();
  },
};

const UTF_8 = new TextDecoder('utf-8', { fatal: true });

/** Strict, because replacement characters would make different passwords equal. */
function decode(bytes: Buffer): string | null {
  try {
    return UTF_8.decode(bytes);
  } catch {
    return null;
  }
}

/** Parses a body again that a host's middleware has consumed and kept in `req.body` or `req.rawBody`. */
function replayReadBody(request: FastifyRequest, payload: RequestPayload): RequestPayload {
  if (!request.raw.readableEnded) return payload;
  const { body, rawBody } = request.raw as IncomingMessage & { body?: unknown; rawBody?: unknown };
  const {
    'content-type': type = '',
    'content-length': length,
    'transfer-encoding': coding,
  } = request.headers;
  const absent = length === undefined && coding === undefined ? '' : undefined;
  // express.json() turns an empty body into an object, which would be longer than the header states.
  const read = length === '0' ? '' : [body, rawBody, absent].find((kept) => kept !== undefined);
  // The end event of a stream that has ended is never emitted, so the parser would wait forever.
  if (read === undefined) throw new Error(CONSUMED_BODY);
  const replay: RequestPayload = Readable.from([serialize(read, type)]);
  // Fastify compares the length with the header, but the serialized body may have a different length than the original.
  replay.receivedEncodedLength = Number(length ?? 0);
  return replay;
}

const CONSUMED_BODY =
  'The host consumed the body of this request and kept it neither in req.body nor in req.rawBody. ' +
  'Mount the middleware before any body parser.';

/** Converts a body parsed by the host back to bytes. */
function serialize(parsed: unknown, contentType: string): Buffer {
  if (Buffer.isBuffer(parsed)) return parsed;
  if (typeof parsed === 'string') return Buffer.from(parsed);
  const isForm = contentType.startsWith('application/x-www-form-urlencoded');
  return Buffer.from(
    isForm ? querystring.stringify(parsed as querystring.ParsedUrlQueryInput) : JSON.stringify(parsed),
  );
}
