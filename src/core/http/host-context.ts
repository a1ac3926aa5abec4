import type { FastifyInstance, FastifyRequest } from 'fastify';
import {
  applicableWarnings,
  type ConfigurationWarning,
  formatProblem,
} from '../config/configuration-error.js';
import type { Resolved } from '../config/options.js';
import { createPublicUrl, type PublicUrl } from '../config/public-url.js';
import type { Random } from '../kernel/secrets.js';
import { createOutageLog, type OutageLog } from './outage-log.js';
import type { ResponseRules } from './responses.js';

/** The environment of a plugin: a host application or one of the servers. */
export interface HostContext {
  /** `draining` is set when the server starts to stop. */
  lifecycle: { draining: boolean };
  publicUrl: PublicUrl;
  outages: OutageLog;
  /** The path of the API, if a host's middleware chain may have changed it. */
  mountedAt?(): string;
  /** The value of `X-Request-Id`, chosen by this process or by a trusted proxy. */
  requestId(request: FastifyRequest): string;
}

/** The context in a host application, whose own request IDs may come from clients. */
export function pluginContext(
  host: FastifyInstance,
  { configured, port, path }: { configured: string | undefined; port: number; path?: string },
  random: Random,
): HostContext {
  const context = serverContext(configured, port, path);
  assumePortOf(host, context.publicUrl);
  return { ...context, requestId: createRequestIdGenerator(random) };
}

/** Sets the port of a public URL that is not configured when the server listens. */
export function assumePortOf(server: FastifyInstance, publicUrl: PublicUrl): void {
  server.addHook('onListen', async () => {
    const address = server.server.address();
    if (address !== null && typeof address === 'object') publicUrl.assumePort(address.port);
  });
}

/** Logs warnings about a configuration, and which values were generated for development. */
export function logConfiguration(
  host: FastifyInstance,
  { warnings, generated }: Resolved<unknown>,
  advice: readonly ConfigurationWarning[],
): void {
  for (const warning of warnings) host.log.warn(formatProblem(warning));
  for (const { about, message, remedy } of applicableWarnings(advice))
    host.log.warn(`${about} ${message}. ${remedy}`);
  const { names, saved, file } = generated;
  const kept = names.filter((name) => !saved.includes(name));
  if (saved.length > 0) host.log.warn(`${saved.join(', ')}: generated for development and saved in ${file}.`);
  if (kept.length > 0) host.log.warn(`${kept.join(', ')}: for development, from ${file}.`);
}

/** The part of the response rules that depends on the host context. */
export const responseRules = ({ lifecycle, publicUrl, outages, requestId }: HostContext) =>
  ({
    requestId,
    outages,
    isDraining: () => lifecycle.draining,
    https: () => publicUrl.get().startsWith('https:'),
  }) satisfies Partial<ResponseRules>;

/** The context in one of the servers, whose request IDs do not come from clients. */
export function serverContext(publicUrl: string | undefined, port: number, path = ''): HostContext {
  return {
    lifecycle: { draining: false },
    publicUrl: createPublicUrl(publicUrl, port, path),
    outages: createOutageLog(),
    requestId: (request) => request.id,
  };
}

/** Generates request IDs that are unique across processes. The client never chooses them. */
export function createRequestIdGenerator(random: Random): () => string {
  const process = random.bytes(6).toString('hex');
  let count = 0;
  return () => `req_${process}${(count++).toString(36)}`;
}

/** `traceparent` (W3C Trace Context): version, trace, parent and flags; later versions may have more. */
const TRACEPARENT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}(-.*)?$/;

/** The trace that a `traceparent` names; `undefined` if it is not valid. */
export function traceOf(traceparent: unknown): string | undefined {
  const [, version, trace = '', span = '', rest] = TRACEPARENT.exec(String(traceparent)) ?? [];
  const isValid = version !== undefined && version !== 'ff' && (version !== '00' || rest === undefined);
  return isValid && /[^0]/.test(trace) && /[^0]/.test(span) ? trace : undefined;
}
