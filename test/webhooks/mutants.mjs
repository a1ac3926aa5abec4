import { runMutants } from '../mutants.mjs';

// Breaks webhooks, one defect at a time, in a copy of the build, and runs the tests that must notice. Exits with 1 when one
// survives or when a text to replace is not found. Run by `npm run test:mutants`.

const ONCE = 'SQLite: an event is sent once to each endpoint that receives it, and signed';
const RETRIES = 'SQLite: a failing delivery is attempted ten times within three days, with the same ID';
const PROCESSES = 'SQLite: four processes make one attempt at a time for each delivery';
const KILLED = 'SQLite: an attempt of a process that was killed is repeated by another after a minute';
const ANNOUNCED = 'SQLite: an announced event is delivered if its change was made, and dropped otherwise';
const ADDED =
  'an endpoint that is added or enabled before a change, but after its announcement, receives the event';
const TWICE = 'SQLite: an event that is recorded twice is delivered once';
const ROTATED = 'the old secret signs beside a new one for a day';
const ENCRYPTED = 'secrets are stored encrypted, and encrypted again with a new key';
const SLOW = 'a slow endpoint does not delay the others';
const BUSY = 'Retry-After delays the next attempt by a day at most, and 410 disables the endpoint';
const PAUSED = 'an endpoint that does not answer is paused, longer each time, and forgiven after a success';
const ANSWER = 'only the beginning of a response is read, of any media type';
const PUBLIC = 'endpoints are public https addresses, also those behind names and redirects';
const UNDER_WAY = 'an attempt that is under way when the endpoint is disabled is not repeated';
const AGAIN = 'deliveries are sent again one by one, or all that have failed';
const STOP = 'a stopping server ends its attempts, and another process continues';

const RENEWED = 'a new key also encrypts the previous secret, until it ends';
const STALE = 'an attempt that began before a success does not disable the endpoint';
const FORGOTTEN = 'SQLite: deliveries of a deleted account lose what is personal, and are sent nevertheless';
const IN_FLIGHT = 'SQLite: an attempt that is under way when the account is deleted leaves nothing personal';
const EXPORTED = 'the export contains deliveries; the deletion of the account removes what they contain';

const inDelivery = (name) => [['delivery', name]];

const mutants = [
  {
    name: 'the body is not signed',
    file: 'signing.js',
    text: '{body}`)',
    replacement: '{timestamp}`)',
    tests: inDelivery(ONCE),
  },
  {
    name: 'events go to every endpoint',
    file: 'outbox.js',
    text: '(events?.includes(name) ?? true)',
    replacement: 'true',
    tests: inDelivery(ONCE),
  },
  {
    name: 'the type is not part of the ID',
    file: 'outbox.js',
    text: '{name}`.replaceAll',
    replacement: '{id}`.replaceAll',
    tests: inDelivery(TWICE),
  },
  {
    name: 'an announced event is sent without its change',
    file: 'outbox.js',
    text: 'if (await wasMade(JSON.parse(proof)))',
    replacement: '',
    tests: inDelivery(ANNOUNCED),
  },
  {
    name: 'an announced event is dropped',
    file: 'outbox.js',
    text: 'await deliver(name, JSON.parse(event), createdAt);',
    replacement: '{}',
    tests: inDelivery(ANNOUNCED),
  },
  {
    name: 'only the endpoints of the announcement receive an event',
    file: 'outbox.js',
    text: 'put: (name, event) => deliver(name, event)',
    replacement: 'put: (name, event) => deliver(name, event, Date.parse(event.at))',
    tests: inDelivery(ADDED),
  },
  {
    name: 'a change has no time',
    file: 'outbox.js',
    text: 'clock.now() - CHANGE_MS',
    replacement: 'clock.now()',
    tests: inDelivery(ANNOUNCED),
  },
  {
    name: 'an attempt is not conditional',
    file: 'sender.js',
    text: 'deliveries.updateOne({ id, attempts, dueAt },',
    replacement: 'deliveries.updateOne({ id },',
    tests: [...inDelivery(PROCESSES), ['processes', PROCESSES]],
  },
  {
    name: 'a previous secret keeps its key',
    file: 'encryption.js',
    text: '!encryption.isCurrent(id, text)',
    replacement: 'text === secret',
    tests: inDelivery(RENEWED),
  },
  {
    name: 'an unreadable secret stops the others',
    file: 'encryption.js',
    text: 'failures.push(error)',
    replacement: '{ throw error; }',
    tests: inDelivery(RENEWED),
  },
  {
    name: 'a stale failure disables the endpoint',
    file: 'health.js',
    text: 'const further = { failingSince };',
    replacement: 'const further = {};',
    tests: inDelivery(STALE),
  },
  {
    name: 'pending deliveries keep the name',
    file: 'personal-data.js',
    text: 'if (reduced !== body)',
    replacement: 'if (false)',
    tests: [['personal-data', FORGOTTEN]],
  },
  {
    name: 'ended deliveries stay',
    file: 'personal-data.js',
    text: 'await deliveries.deleteMany({ userId, dueAt: null });',
    replacement: '',
    tests: [['personal-data', EXPORTED]],
  },
  {
    name: 'the answer to a removed name stays',
    file: 'sender.js',
    text: 'now.body !== sent.body',
    replacement: 'false',
    tests: [['personal-data', IN_FLIGHT]],
  },
  {
    name: 'redirects count as success',
    file: 'sender.js',
    text: 'status < 300',
    replacement: 'status < 400',
    tests: inDelivery(RETRIES),
  },
  {
    name: 'a failed delivery is not repeated',
    file: 'schedule.js',
    text: 'if (planned === undefined)',
    replacement: 'if (planned !== undefined)',
    tests: inDelivery(RETRIES),
  },
  {
    name: 'Retry-After has no bound',
    file: 'schedule.js',
    text: 'Math.min(retryAfterMs ?? 0, MAX_RETRY_AFTER_MS)',
    replacement: 'retryAfterMs ?? 0',
    tests: inDelivery(BUSY),
  },
  {
    name: 'Retry-After makes attempts earlier',
    file: 'schedule.js',
    text: 'Math.max(planned, ',
    replacement: 'Number(',
    tests: inDelivery(BUSY),
  },
  {
    name: 'an endpoint that is gone is called again',
    file: 'health.js',
    text: 'if (status === GONE)',
    replacement: 'if (false)',
    tests: inDelivery(BUSY),
  },
  {
    name: 'an endpoint that fails is never disabled',
    file: 'health.js',
    text: 'if (failingSince <= now - FAILURE_LIMIT_MS)',
    replacement: 'if (false)',
    tests: inDelivery(RETRIES),
  },
  {
    name: 'a dead endpoint is not paused',
    file: 'health.js',
    text: 'const isUnanswered = status === undefined;',
    replacement: 'const isUnanswered = false;',
    tests: inDelivery(PAUSED),
  },
  {
    name: 'a success does not end the failures',
    file: 'health.js',
    text: "unset: ['failingSince', 'lastFailure', 'unanswered', 'pausedUntil']",
    replacement: 'unset: []',
    tests: inDelivery(PAUSED),
  },
  {
    name: 'the old secret does not sign',
    file: 'signing.js',
    text: 'isOverlapping && previousSecret !== undefined',
    replacement: 'false',
    tests: inDelivery(ROTATED),
  },
  {
    name: 'the old secret signs for good',
    file: 'signing.js',
    text: 'isOverlapping && previousSecret',
    replacement: 'previousSecret',
    tests: inDelivery(ROTATED),
  },
  {
    name: 'the old secret signs although it has leaked',
    file: 'service.js',
    text: "{ set, unset: ['previousSecret', 'previousSecretUntil'], inc: { version: 1 } }",
    replacement: '{ set: { ...set, ...previous }, inc: { version: 1 } }',
    tests: inDelivery(ROTATED),
  },
  {
    name: 'secrets are stored as they are',
    file: 'service.js',
    text: 'secret: encryption.encrypt(id, secret),\n                createdAt',
    replacement: 'secret,\n                createdAt',
    tests: inDelivery(ENCRYPTED),
  },
  {
    name: 'secrets keep the old key',
    file: 'encryption.js',
    text: 'if (outdated.length === 0 && !isOver)',
    replacement: 'if (true)',
    tests: inDelivery(ENCRYPTED),
  },
  {
    name: 'endpoints wait for each other',
    file: 'sender.js',
    text: 'running.set(id, one);',
    replacement: 'running.set(id, one); await one;',
    tests: inDelivery(SLOW),
  },
  {
    name: 'attempts at one endpoint are not limited',
    file: 'sender.js',
    text: '{ length: CONCURRENCY }',
    replacement: '{ length: 100 }',
    tests: inDelivery(SLOW),
  },
  {
    name: 'a whole answer is read',
    file: 'sender.js',
    text: 'isExcerpt: true,',
    replacement: '',
    tests: inDelivery(ANSWER),
  },
  {
    name: 'private addresses are endpoints',
    file: 'service.js',
    text: 'isAddress && !isNear && !isPublicAddress(host)',
    replacement: 'false',
    tests: inDelivery(PUBLIC),
  },
  {
    name: 'localhost is not this machine',
    file: 'service.js',
    text: "url.hostname === 'localhost'",
    replacement: "host === 'localhost'",
    tests: inDelivery('in development, endpoints of this machine are also named localhost'),
  },
  {
    name: 'http is allowed everywhere',
    file: 'service.js',
    text: "url.protocol === 'http:' && !isNear",
    replacement: 'false',
    tests: inDelivery(PUBLIC),
  },
  {
    name: 'a disabled endpoint gets what was under way',
    file: 'sender.js',
    text: '{ ...own, dueAt: leased.dueAt ?? 0 }',
    replacement: 'own',
    tests: inDelivery(UNDER_WAY),
  },
  {
    name: 'a pending delivery is sent again',
    file: 'deliveries.js',
    text: '{ id, attempts, dueAt: null }',
    replacement: '{ id, attempts }',
    tests: inDelivery(AGAIN),
  },
  {
    name: 'a disabled endpoint keeps what is pending',
    file: 'service.js',
    text: 'await failPending(deliveries, { endpointId: id, now, batches: 5 });',
    replacement: '',
    tests: inDelivery(AGAIN),
  },
  {
    name: 'no job ends what a disabled endpoint has pending',
    file: 'sender.js',
    text: 'await failDisabled();',
    replacement: '',
    tests: inDelivery(
      'of many failed deliveries, 1,000 at a time are sent again, and a job ends those of a disabled endpoint',
    ),
  },
  {
    name: 'a removed endpoint leaves its deliveries',
    file: 'service.js',
    text: 'await deliveries.deleteMany({ endpointId: id });',
    replacement: '',
    tests: inDelivery(AGAIN),
  },
  {
    name: 'a stopping server blames the endpoint',
    file: 'sender.js',
    text: 'if (cut.aborted)',
    replacement: 'if (false)',
    tests: inDelivery(STOP),
  },
  {
    name: 'an attempt of a killed process is never repeated',
    file: 'sender.js',
    text: 'where: { endpointId, dueAt: { lte: now } }',
    replacement: 'where: { endpointId, dueAt: { lte: now }, attempts: 0 }',
    tests: inDelivery(KILLED),
  },
];

runMutants('webhooks', mutants);
