/** @type {import('../../mutants.mjs').Mutant[]} */
// biome-ignore format: the rows of a table
export default [
  {
    name: 'the body is not signed', file: 'saas/webhooks/signing.ts', in: 'signatureHeaders',
    replace: '{body}`)', by: '{timestamp}`)',
    tests: [['saas/webhooks/delivery', 'an event is sent once to each endpoint that receives it']],
  },
  {
    name: 'redirects count as success', file: 'saas/webhooks/sender.ts', in: 'request',
    replace: 'status < 300', by: 'status < 400',
    tests: [['saas/webhooks/delivery', 'a failing delivery is attempted ten times within three days']],
  },
  {
    name: 'the old secret signs for good', file: 'saas/webhooks/signing.ts', in: 'openSecrets',
    replace: 'isOverlapping && previousSecret', by: 'previousSecret',
    tests: [['saas/webhooks/delivery', 'the old secret signs beside a new one for a day']],
  },
  {
    name: 'secrets are stored as they are', file: 'saas/webhooks/service.ts', in: 'create',
    replace: 'secret: encryption.encrypt(id, secret), createdAt', by: 'secret, createdAt',
    tests: [['saas/webhooks/delivery', 'secrets are stored encrypted, and encrypted again with a new key']],
  },
  {
    name: 'private addresses are endpoints', file: 'saas/webhooks/service.ts', in: 'urlProblem',
    replace: 'isAddress && !isNear && !isPublicAddress(host)', by: 'false',
    tests: [['saas/webhooks/delivery', 'endpoints are public https addresses, also those behind names']],
  },
  {
    name: 'an attempt of a killed process is never repeated', file: 'saas/webhooks/sender.ts', in: 'deliverTo',
    replace: 'where: { endpointId, dueAt: { lte: now } }',
    by: 'where: { endpointId, dueAt: { lte: now }, attempts: 0 }',
    tests: [['saas/webhooks/delivery', 'an attempt of a process that was killed is repeated by another']],
  },
];
