import type { FastifyInstance, FastifyRequest } from 'fastify';
import { type Advice, applicableAdvice, formatProblem } from '../config/configuration-error.js';
import type { Resolved } from '../config/options.js';
import { createPublicUrl, type PublicUrl } from '../config/public-url.js';
import type { Random } from '../kernel/secrets.js';
import type { AnswerRules } from './answers.js';

/** What the process does at the moment. */
export interface Lifecycle {
  /** Set when the server has begun to stop. */
  draining: boolean;
}

/** What a plugin is told by whoever runs it. */
export interface HostContext {
  lifecycle: Lifecycle;
  publicUrl: PublicUrl;
  /** Where the API is, when a host's middleware chain may have put it elsewhere. */
  mountedAt?(): string;
  /** The identifier that answers carry. A client never chooses it. */
  requestId(request: FastifyRequest): string;
}

/**
 * In an application of somebody else: it runs as long as it runs, its identifiers may come from clients, and
 * without a configured address ours is the one it listens at.
 */
export function pluginContext(
  host: FastifyInstance,
  { configured, port, path = '' }: { configured: string | undefined; port: number; path?: string },
  random: Random,
): HostContext {
  const publicUrl = createPublicUrl(configured, port, path);
  assumePortOf(host, publicUrl);
  return { lifecycle: { draining: false }, publicUrl, requestId: createRequestIdGenerator(random) };
}

/** Tells the address its port when the server listens; hooks that are added later may ask for it. */
export function assumePortOf(server: FastifyInstance, publicUrl: PublicUrl): void {
  server.addHook('onListen', async () => {
    const address = server.server.address();
    if (address !== null && typeof address === 'object') publicUrl.assumePort(address.port);
  });
}

/** Logs what is unwise about a configuration, what was made up for development, and where that is kept. */
export function logConfiguration(
  host: FastifyInstance,
  { warnings, generated }: Resolved<unknown>,
  advice: readonly Advice[],
): void {
  for (const warning of warnings) host.log.warn(formatProblem(warning));
  for (const { about, message, remedy } of applicableAdvice(advice))
    host.log.warn(`${about} ${message}. ${remedy}`);
  if (generated.names.length === 0) return;
  host.log.warn(`${generated.names.join(', ')}: generated for development and saved in ${generated.file}.`);
}

/** What follows from the host context for every answer. */
export function answerRules({
  lifecycle,
  publicUrl,
  requestId,
}: HostContext): Omit<AnswerRules, 'renderError'> {
  return {
    requestId,
    isDraining: () => lifecycle.draining,
    https: () => publicUrl.get().startsWith('https:'),
  };
}

/** In a server of our own, which names each request itself. */
export function serverContext(publicUrl: string | undefined, port: number, path = ''): HostContext {
  return {
    lifecycle: { draining: false },
    publicUrl: createPublicUrl(publicUrl, port, path),
    requestId: (request) => request.id,
  };
}

/** Generates request IDs that are unique across processes. The client never chooses them. */
export function createRequestIdGenerator(random: Random): () => string {
  const process = random.bytes(6).toString('hex');
  let count = 0;
  return () => `req_${process}${(count++).toString(36)}`;
}
