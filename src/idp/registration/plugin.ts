import type { FastifyRequest } from 'fastify';
import { parseBearer } from '../../core/http/authorization.js';
import { access, type FastifyTypebox, type Guard, requestSource } from '../../core/http/routes.js';
import { DAY, HOUR } from '../../core/kernel/clock.js';
import { fixedWindow, type Throttle } from '../../core/throttle/throttle.js';
import { RegistrationAnswer, RegistrationBody } from './schemas.js';
import { invalidToken, type Registration } from './service.js';

/** The token of a request that the guard has accepted. */
const accepted = new WeakMap<FastifyRequest, string>();

/** Registrations without a token from one address block and in total, so that a flood stores little. */
const OPEN_REGISTRATIONS = fixedWindow('registration', 20, HOUR);
const ALL_OPEN_REGISTRATIONS = fixedWindow('registration.all', 2000, DAY);

/** Finds the initial access token before the body is read. Failures of an address are limited. */
export function registrationGuard(registration: Registration, throttle: Throttle): Guard {
  return async (request) => {
    if (registration.isOpen && request.headers.authorization === undefined) {
      const { ip } = requestSource(request);
      await throttle.count(OPEN_REGISTRATIONS, ip);
      return throttle.countKey(ALL_OPEN_REGISTRATIONS, 'all', ip);
    }
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
      const tokenId = accepted.get(request);
      return reply.code(201).send(await registration.register(tokenId, request.body, requestSource(request)));
    },
  );
}
