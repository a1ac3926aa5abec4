/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'requests of a closed connection count as waiting', file: 'core/server/connections.ts', in: 'drop',
    replace: 'this.#waiting -= connection.waiting.length;', by: '',
    tests: [['core/server/connections', 'a client that pipelines thousands of requests and reads nothing']],
  },
  {
    name: 'every client chooses its request ID', file: 'core/server/correlation.ts', in: 'createRequestIds',
    replace: ' && isFromProxy(raw, isProxy)', by: '',
    tests: [['core/server/server', 'what a trusted proxy says of a request']],
  },
  {
    name: 'the trace of any client is logged', file: 'core/server/correlation.ts', in: 'logTrace',
    replace: 'isTrusted ?', by: 'true ?',
    tests: [['core/server/server', 'what a trusted proxy says of a request']],
  },
  {
    name: 'a certificate of another name is valid', file: 'core/server/certificate.ts', in: 'readCertificate',
    replace: 'socket.authorized ?', by: 'true ?',
    tests: [['bin/doctor', 'the certificate of the public address']],
  },
  {
    name: 'the trace of any client is continued', file: 'core/ops/telemetry.ts', in: 'openTelemetry',
    replace: 'isInner || !isForwarded ?', by: 'isInner ?',
    tests: [['core/ops/telemetry', 'the trace of a trusted proxy is continued']],
  },
];
