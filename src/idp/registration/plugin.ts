import type { FastifyRequest } from 'fastify';
import { parseBearer } from '../../core/http/authorization.js';
import { access, type FastifyTypebox, type Guard, requestSource } from '../../core/http/routes.js';
import type { Throttle } from '../../core/throttle/throttle.js';
import { RegistrationAnswer, RegistrationBody } from './schemas.js';
import { invalidToken, type Registration } from './service.js';

/** The token of a request that the guard has accepted. */
const accepted = new WeakMap<FastifyRequest, string>();

/** Finds the initial access token before the body is read. Failures of an address are limited. */
export function registrationGuard(registration: Registration, throttle: Throttle): Guard {
  return async (request) => {
    const tokenId = await throttle.attemptAsOperator(requestSource(request).ip, () =>
      registration.authorize(parseBearer(request.headers.authorization)),
    );
    if (tokenId === null) throw invalidToken();
    accepted.set(request, tokenId);
  };
}

/** The client registration endpoint (RFC 7591 §3). */
export async function registrationPlugin(
  fastify: FastifyTypebox,
  { registration }: { registration: Registration },
): Promise<void> {
  fastify.post(
    '/register',
    {
      config: access('registration'),
      schema: { body: RegistrationBody, response: { 201: RegistrationAnswer } },
    },
    async (request, reply) => {
      const tokenId = accepted.get(request) ?? '';
      return reply.code(201).send(await registration.register(tokenId, request.body, requestSource(request)));
    },
  );
}
