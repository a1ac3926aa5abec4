/** The operations of both products that watch the service, and the document itself. */

const TEXT = { type: 'string' };
const METRICS = {
  200: { description: 'The Prometheus text format.', type: 'text/plain', schema: TEXT, example: 'up 1\n' },
};
const state = {
  type: 'object',
  properties: {
    status: { const: 'ok' },
    product: { type: 'string', description: 'The program. Only for requests from the same machine.' },
    unlistedProxy: {
      type: 'string',
      description: 'A proxy that is not trusted. Only for requests from the same machine.',
    },
  },
  required: ['status'],
};

const stateAnswer = (isEnveloped) => ({
  200: {
    description: 'The process runs.',
    schema: isEnveloped
      ? {
          type: 'object',
          properties: { success: { const: true }, data: state },
          required: ['success', 'data'],
        }
      : state,
  },
});

/** Under a path of the product, and at the root of its server. */
export const operationsAt = (prefix, { isEnveloped, suffix = '' }) => ({
  [`GET ${prefix}/health`]: {
    id: `getHealth${suffix}`,
    summary: 'Whether the process runs',
    description: 'Also while it stops. Requests from the same machine get further details.',
    responses: stateAnswer(isEnveloped),
    isOpen: true,
  },
  [`GET ${prefix}/ready`]: {
    id: `getReadiness${suffix}`,
    summary: 'Whether the service can answer requests',
    description: 'Checks the store; 503 while the server stops.',
    responses: stateAnswer(isEnveloped),
  },
  [`GET ${prefix}/metrics`]: {
    id: `getMetrics${suffix}`,
    summary: 'Metrics for Prometheus',
    responses: METRICS,
  },
});

/** For a scheduler, with either method. */
export const cronAt = (prefix) =>
  Object.fromEntries(
    ['GET', 'POST'].map((method) => [
      `${method} ${prefix}/cron`,
      {
        id: method === 'GET' ? 'runDueJobs' : 'runDueJobsByPost',
        summary: 'Run the background jobs that are due',
        description:
          'For a scheduler, with CRON_SECRET. It fails if one of the jobs has failed; all others have run.',
        responses: { 204: { description: 'They have run.' } },
      },
    ]),
  );

export const documentAt = (prefix) => ({
  [`GET ${prefix}/openapi.json`]: {
    id: 'getApiDescription',
    summary: 'This document',
    description: 'Contains the operations that this installation has.',
    responses: {
      200: { description: 'An OpenAPI document.', schema: { type: 'object' }, example: { openapi: '3.1.0' } },
    },
  },
});
