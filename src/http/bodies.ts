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

/**
 * JSON and nothing else: `text/plain` would let foreign pages send requests without a preflight, and the
 * host's own parsers are no concern of ours.
 */
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

/**
 * What runs on either side of the parser, at every route that takes a body: an absent one is `{}`, and what is
 * required is the schema's to say.
 */
export const readBody: { preParsing: preParsingHookHandler; preValidation: preValidationHookHandler } = {
  preParsing(request, _reply, payload, done) {
    const encoding = request.headers['content-encoding'];
    // A decoder is attack surface that no client of ours needs.
    if (encoding !== undefined && encoding !== 'identity') done(httpErrors.UNSUPPORTED_MEDIA_TYPE());
    else done(null, replayReadBody(request, payload));
  },
  preValidation(request, _reply, done) {
    if (request.body === undefined) request.body = {};
    done();
  },
};

const UTF_8 = new TextDecoder('utf-8', { fatal: true });

/** Bytes that are no UTF-8 would all become the same character, and different passwords the same password. */
function decode(bytes: Buffer): string | null {
  try {
    return UTF_8.decode(bytes);
  } catch {
    return null;
  }
}

/**
 * A host's middleware may have read the body already and left it in `req.body`, or its bytes in `req.rawBody`; then
 * it is parsed again, by our rules.
 */
function replayReadBody(request: FastifyRequest, payload: RequestPayload): RequestPayload {
  if (!request.raw.readableEnded) return payload;
  const { body, rawBody } = request.raw as IncomingMessage & { body?: unknown; rawBody?: unknown };
  const {
    'content-type': type = '',
    'content-length': length,
    'transfer-encoding': coding,
  } = request.headers;
  const absent = length === undefined && coding === undefined ? '' : undefined;
  // Of no bytes express.json() makes an object, and then there are more than the header says.
  const read = length === '0' ? '' : [body, rawBody, absent].find((kept) => kept !== undefined);
  // Whoever waits for the end of what has ended waits for ever.
  if (read === undefined) throw new Error(UNKEPT);
  const replay: RequestPayload = Readable.from([serialize(read, type)]);
  // Its length is not that of the original, which Fastify compares with the header.
  replay.receivedEncodedLength = Number(length ?? 0);
  return replay;
}

const UNKEPT =
  'The host consumed the body of this request and kept it neither in req.body nor in req.rawBody. ' +
  'Mount the middleware before any body parser.';

/** What a host's parser has read, as bytes again. */
function serialize(parsed: unknown, contentType: string): Buffer {
  if (Buffer.isBuffer(parsed)) return parsed;
  if (typeof parsed === 'string') return Buffer.from(parsed);
  const isForm = contentType.startsWith('application/x-www-form-urlencoded');
  return Buffer.from(
    isForm ? querystring.stringify(parsed as querystring.ParsedUrlQueryInput) : JSON.stringify(parsed),
  );
}
