import { access, type FastifyTypebox } from '../../../core/http/routes.js';
import { authenticateClient } from '../client-auth.js';
import { isPublicClient } from '../directory.js';
import { oidcErrors } from '../errors.js';
import { AnyForm, PushedResponse } from '../schemas.js';
import type { OidcServices } from '../services.js';
import { readCredentials, readProof } from '../tokens/request.js';
import { PUBLIC_PUSHES } from './pushed.js';
import { parametersIn, readParameters } from './request.js';
import { errorOf, type Parameters } from './rules.js';

/** The longest request target of /authorize, which the parameters replace. */
const LIMIT_BYTES = 8 * 1024;

/** The pushed authorization request endpoint (RFC 9126): validates a request and keeps it for a minute and a half. */
export async function parPlugin(fastify: FastifyTypebox, services: OidcServices): Promise<void> {
  fastify.post(
    '/par',
    {
      config: access('client', { unmetered: true }),
      bodyLimit: LIMIT_BYTES,
      schema: { body: AnyForm, response: { 201: PushedResponse } },
    },
    async (request, reply) => {
      const { authorization, throttle } = services;
      const credentials = readCredentials(request);
      const { ip } = credentials;
      const client = await authenticateClient(credentials, services);
      if (isPublicClient(client)) await throttle.count(PUBLIC_PUSHES, ip);
      const given = readParameters(parametersIn(request.body));
      let parameters: Parameters = { ...given, client_id: client.id };
      const validated = await authorization.validate(parameters, ip);
      if ('error' in validated) throw errorOf(validated.error.violation);
      const prove = readProof(request, reply, '/par', services);
      const key = await prove?.();
      // RFC 9449 §10.1
      if (key !== undefined && (parameters['dpop_jkt'] ?? key) !== key)
        throw oidcErrors.invalid_dpop_proof({ message: 'dpop_jkt is not the key of the proof.' });
      if (key !== undefined) parameters = { ...parameters, dpop_jkt: key };
      return reply.code(201).send(await services.pushed.push(client.id, parameters));
    },
  );
}
