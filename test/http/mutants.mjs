import { runMutants } from '../mutants.mjs';

// Breaks the answers to requests without a route, one defect at a time. Run by `npm run test:mutants`.

const ALLOWED = [
  'scope',
  'a method that a path does not have is answered 405 with those it has, and has no effect',
];
const IN_HOST = [
  '../host/fastify',
  'in a host, a method that a path does not have is 405 only for our routes below our prefixes',
];
const HIDDEN = ['../host/fastify', "a route that a host's hook hides looks like an unknown route"];

const unknown = (name, text, replacement, test) => ({
  ...{ name, text, replacement },
  file: 'unknown-requests.js',
  tests: [test],
});

const grouped = (name, text, replacement, title) => ({
  ...{ name, text, replacement },
  file: 'grouped-responses.js',
  tests: [['grouped-responses', title]],
});

const streams = (name, text, replacement, title) => ({
  ...{ name, text, replacement },
  file: 'streams.js',
  tests: [['streams', title]],
});

runMutants('http', [
  streams(
    'a stream does not wait for its connection',
    'await drained(socket)',
    'await 0',
    'requests that are pipelined after an unread stream do not cause it to be read',
  ),
  streams(
    'a stream that waits does not notice that its connection closes',
    ".on('close', settle)",
    '',
    'a stream ends when its client disconnects, also while it waits or is queued',
  ),
  streams(
    'a queued stream does not notice that its connection closes',
    "socket.once('close', destroy)",
    '0',
    'a stream ends when its client disconnects, also while it waits or is queued',
  ),
  grouped(
    'responses are not grouped',
    'last > 1',
    'last > 9',
    'responses of one turn of the event loop are sent after its requests were processed',
  ),
  grouped(
    'every response waits',
    'last > 1',
    'last > 0',
    'a client that is alone does not wait for the end of the turn',
  ),
  grouped(
    'an error of a grouped response is not caught',
    'done(error);',
    'throw error;',
    'a response that fails when it is sent is an error, and the others of its turn are sent',
  ),
  grouped(
    'streams wait, too',
    ' && !(payload instanceof Readable)',
    '',
    'a stream that fails before the end of the turn ends only its own response',
  ),
  unknown('the query counts as path', "url.split('?', 1).join()", 'url', ALLOWED),
  unknown('a prefix with a slash is unknown', "routePath === ''", 'false', ALLOWED),
  unknown('every prefix has a slash', 'server.hasRoute({ method: one, url: route.url })', 'true', IN_HOST),
  unknown('OPTIONS without CORS is 405', "method === 'OPTIONS'", 'false', ALLOWED),
  unknown('a hidden route is 405', 'allowed.has(method)', 'false', HIDDEN),
  unknown('an empty segment is a parameter', " && path[index] !== ''", '', ALLOWED),
  unknown('a longer path matches', 'segments.length === path.length &&', '', ALLOWED),
  unknown('QUERY without a type is 400', "'FST_ERR_ROUTE_MISSING_CONTENT_TYPE'", "''", ALLOWED),
  unknown('only one scope counts', '.get(server.server)', '.get(server)', IN_HOST),
]);
