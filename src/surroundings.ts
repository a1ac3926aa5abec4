import type { FastifyRequest } from 'fastify';
import { createPublicUrl, type PublicUrl } from './kernel/public-url.js';
import { requestIds } from './kernel/request-ids.js';
import type { Random } from './kernel/secrets.js';

/** What the process does at the moment. */
export interface Lifecycle {
  /** Set when the server has begun to stop. */
  draining: boolean;
}

/** What a plugin is told by whoever runs it. */
export interface Surroundings {
  lifecycle: Lifecycle;
  publicUrl: PublicUrl;
  /** The identifier that answers carry. A client never chooses it. */
  requestId(request: FastifyRequest): string;
}

/** In an application of somebody else: it runs as long as it runs, and its identifiers may come from clients. */
export function inHost(publicUrl: string | undefined, port: number, random: Random, path = ''): Surroundings {
  return {
    lifecycle: { draining: false },
    publicUrl: createPublicUrl(publicUrl, port, path),
    requestId: requestIds(random),
  };
}

/** In a server of our own, which names each request itself. */
export function inServer(publicUrl: string | undefined, port: number, path = ''): Surroundings {
  return {
    lifecycle: { draining: false },
    publicUrl: createPublicUrl(publicUrl, port, path),
    requestId: (request) => request.id,
  };
}
