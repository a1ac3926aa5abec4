import type { FastifyRequest } from 'fastify';
import { parseBasic } from '../../core/http/authorization.js';
import { isSimpleCrossSite } from '../../core/http/browser.js';
import { requestSource } from '../../core/http/routes.js';
import { AppError } from '../../core/kernel/errors.js';
import { isSub } from './directory.js';
import type { OidcShared } from './shared.js';

/** The endpoints of applications. */
const ENDPOINTS = ['/authorize', '/token', '/par', '/device_authorization', '/revoke', '/introspect'];

const REFUSALS = new Set([
  ...['invalid_client', 'invalid_grant', 'invalid_request', 'invalid_scope', 'invalid_target'],
  ...['unauthorized_client', 'unsupported_grant_type', 'unsupported_response_type'],
  ...['request_not_supported', 'request_uri_not_supported', 'invalid_dpop_proof'],
]);

/** Longest text of a request that is repeated. */
const MAX_LENGTH = 300;

/** What strangers have sent, on one line. */
const shown = (text: string): string => text.replace(/[\p{C}\p{Z}]+/gu, ' ').slice(0, MAX_LENGTH);

/** Anything else in the field may be a secret that was sent in the wrong place. */
const isClientId = (text: string): boolean =>
  /^cid_[\w-]+$/.test(text) || isSub(text) || /^https?:\/\/[^?#@]+$/.test(text);

/** Requests of applications that were refused: which one, with which address, and why. Operators look them up. */
export function createRefusals({ directory, assertions, audit, log }: OidcShared) {
  /** Records a refusal in the log and the audit. Neither contains a secret. */
  const record = async (
    {
      clientId,
      redirectUri,
      reason,
    }: Record<'clientId' | 'redirectUri', string | undefined> & { reason: string },
    ip: string,
  ) => {
    const client = clientId !== undefined && isClientId(clientId) ? shown(clientId) : undefined;
    const address = redirectUri === undefined ? undefined : shown(redirectUri);
    log.info({ client, redirectUri: address, reason, ip }, 'a request of an application was refused');
    // Without the store, the client counts as unknown: the refusal has its own answer.
    const find = (id: string) =>
      directory.findClient(id).then(
        (found) => found !== null,
        () => false,
      );
    const isKnown = clientId !== undefined && (await find(clientId));
    const parts = [reason, address, ...(isKnown ? [] : [client && `client_id ${client}`])];
    await audit.recordFailure({
      event: 'client.refused',
      ...(isKnown && { subject: clientId }),
      ip,
      detail: parts.filter(Boolean).join(' '),
    });
  };

  return {
    record,

    /** The same for an error of a request to an endpoint of applications; other errors are no refusal. */
    async recordError(error: unknown, request: FastifyRequest) {
      if (!(error instanceof AppError) || !REFUSALS.has(error.code)) return;
      if (!ENDPOINTS.some((path) => request.routeOptions.url?.endsWith(path))) return;
      // A page of another site has sent it from the browser of a visitor, who is no application.
      if (isSimpleCrossSite(request.headers)) return;
      const fields = (request.method === 'GET' ? request.query : request.body) as Record<string, unknown>;
      // Not a fault of the application: every idle session ends in a refused refresh.
      if (error.code === 'invalid_grant' && fields?.['grant_type'] === 'refresh_token') return;
      const field = (name: string) => {
        const value = fields?.[name];
        return typeof value === 'string' && value !== '' ? value : undefined;
      };
      const basic = parseBasic(request.headers.authorization ?? '')?.username;
      const assertion = field('client_assertion');
      const clientId = field('client_id') ?? basic ?? (assertion && assertions.subjectOf(assertion));
      const reason = error.code === 'invalid_client' ? `${error.code}: ${error.message}` : error.message;
      await record({ clientId, redirectUri: field('redirect_uri'), reason }, requestSource(request).ip);
    },
  };
}
