import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { requestSource } from '../../../core/http/routes.js';
import type { ClientCredentials } from '../client-auth.js';
import { oidcErrors } from '../errors.js';
import type { Proofs, Prove, ProvenRequest } from '../proofs.js';
import type { AnyForm } from '../schemas.js';

/** Requests of clients to /token and to the endpoints beside it. */

export type ClientRequest = FastifyRequest<{ Body: Static<typeof AnyForm> }>;

/** A request to /token whose client has authenticated. */
export interface TokenRequest {
  /** The parameters with one value. */
  fields: Readonly<Record<string, string>>;
  /** The values of `resource`. */
  resources: readonly string[];
  /** Absent without a DPoP proof. */
  prove: Prove | undefined;
  ip: string;
}

/** The grant type of devices (RFC 8628 §3.4). */
export const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';

/** The grant type of approvals (CIBA §10.1). */
export const CIBA_GRANT = 'urn:openid:params:grant-type:ciba';

/** The grant type of token exchange (RFC 8693 §2.1). */
export const TOKEN_EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';

/**
 * The credentials of a request, with all fields that have a value; empty ones count as omitted (RFC 6749 §3.2).
 * @throws invalid_request for a repeated field, except `resource` (RFC 8707 §2)
 */
export function readCredentials(request: ClientRequest): ClientCredentials {
  const { ip, isDisconnected } = requestSource(request);
  const { authorization } = request.headers;
  return { authorization, body: readSingleValues(request.body), ip, isDisconnected };
}

function readSingleValues({ resource: _, ...body }: Static<typeof AnyForm>): Record<string, string> {
  const pairs = Object.entries(body).map(([name, value]) => {
    if (typeof value === 'string') return [name, value] as const;
    const details = [{ path: name.slice(0, 100), message: 'must be a single string' }];
    throw oidcErrors.invalid_request({ details });
  });
  return Object.fromEntries(pairs.filter(([, value]) => value !== ''));
}

/** The values of `resource`, which may be repeated. */
export const readResources = ({ resource = [] }: Static<typeof AnyForm>): string[] =>
  [resource].flat().filter((value) => value !== '');

/** The proof of a request, not yet verified; `undefined` without one. */
export function readProof(
  request: FastifyRequest,
  reply: FastifyReply,
  path: string,
  { proofs }: { proofs: Proofs },
): Prove | undefined {
  if (request.headers['dpop'] === undefined) return undefined;
  // Also with errors, so that the next proof has it.
  reply.header('dpop-nonce', proofs.nonce());
  return proofs.prover(provenBy(request, path));
}

/** Node joins repeated headers with a comma, which no proof contains. */
export const provenBy = ({ method, headers }: FastifyRequest, path: string): ProvenRequest => ({
  method,
  path,
  proofs: [headers['dpop'] ?? []].flat(),
});
