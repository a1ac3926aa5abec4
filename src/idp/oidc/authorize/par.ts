import { access, type Scope } from '../../../core/http/scope.js';
import type { Throttle } from '../../../core/throttle/throttle.js';
import { authenticateClient, type ClientAuthDependencies } from '../client-auth.js';
import { isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import type { Proofs } from '../proofs.js';
import type { Resources } from '../resources.js';
import { AnyForm, PushedResponse } from '../schemas.js';
import { readCredentials, readProof } from '../tokens/request.js';
import type { PushedAuthorization } from './pushed.js';
import { isParameter, readParameters } from './request.js';
import type { Parameters, RuleViolation } from './rules.js';
import type { Authorization } from './service.js';

export interface ParPluginOptions extends ClientAuthDependencies {
  authorization: Authorization;
  throttle: Pick<Throttle, 'attempt' | 'count'>;
  resources: Resources;
  proofs(): Promise<Proofs>;
  pushed(): Promise<PushedAuthorization>;
}

/** The longest request target of /authorize, which the parameters replace. */
const LIMIT_BYTES = 8 * 1024;

/** The pushed authorization request endpoint (RFC 9126): validates a request and keeps it for a minute and a half. */
export async function parPlugin(scope: Scope, options: ParPluginOptions): Promise<void> {
  scope.post(
    '/par',
    {
      config: access('client', { unmetered: true }),
      bodyLimit: LIMIT_BYTES,
      schema: { body: AnyForm, response: { 201: PushedResponse } },
    },
    async (request, reply) => {
      const { authorization, throttle } = options;
      const credentials = readCredentials(request);
      const { ip } = credentials;
      const client = await authenticateClient(credentials, options);
      const pushed = await options.pushed();
      const { PUBLIC_PUSHES } = await import('./pushed.js');
      if (isPublicClient(client)) await throttle.count(PUBLIC_PUSHES, ip);
      const given = readParameters(searchOf(request.body));
      let parameters: Parameters = { ...given, client_id: client.id };
      const validated = await authorization.validate(parameters, ip);
      if ('error' in validated) throw errorOf(validated.error.violation);
      const prove = await readProof(request, reply, '/par', options);
      const key = await prove?.();
      // RFC 9449 §10.1
      if (key !== undefined && (parameters['dpop_jkt'] ?? key) !== key)
        throw oidcErrors.invalid_dpop_proof({ message: 'dpop_jkt is not the key of the proof.' });
      if (key !== undefined) parameters = { ...parameters, dpop_jkt: key };
      return reply.code(201).send(await pushed.push(client.id, parameters));
    },
  );
}

function searchOf(body: Record<string, string | string[]>): URLSearchParams {
  const search = new URLSearchParams();
  for (const [name, values] of Object.entries(body)) {
    if (isParameter(name)) for (const value of [values].flat()) search.append(name, value);
  }
  return search;
}

/** What /authorize would tell the application in a redirect. */
function errorOf({ error, description }: RuleViolation): Error {
  const known = Object.entries(oidcErrors).find(([code]) => code === error);
  return (known?.[1] ?? oidcErrors.invalid_request)({ message: description });
}
