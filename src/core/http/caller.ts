import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { EXEMPT_CALLER, plainAddress, UNKNOWN_ADDRESS } from '../kernel/addresses.js';
import { invalidFields } from '../kernel/errors.js';
import { secretsEqual } from '../kernel/secrets.js';

/**
 * Server-side callers, such as a website that renders its pages on a server: all its users arrive from one address. With the
 * shared secret, such a caller passes the address of the user instead.
 */
const SECRET_HEADER = 'x-caller-secret';
const END_USER_HEADER = 'x-end-user-ip';

/** The addresses that callers have passed. */
const passed = new WeakMap<object, string>();

/** The address that limits and the audit count a request by: of the client or, for a caller with the secret, of its user. */
export const clientAddress = (request: FastifyRequest): string =>
  passed.get(request) ?? plainAddress(request.ip);

/** The address of the user that a caller with the secret has passed. */
export function passedAddress(request: object): string | undefined {
  const address = passed.get(request);
  return address === EXEMPT_CALLER ? undefined : address;
}

/** Reads the headers of a caller. A wrong secret is an error, because its limits would silently be those of one address. */
export function identifyCaller(secret: string | undefined): onRequestHookHandler {
  return (request, _reply, done) => {
    const { [SECRET_HEADER]: presented, [END_USER_HEADER]: endUser } = request.headers;
    if (presented === undefined) {
      done();
      return;
    }
    if (secret === undefined || !secretsEqual(String(presented), secret)) {
      done(invalidFields({ path: SECRET_HEADER, message: 'is not the configured secret of callers' }));
      return;
    }
    const address = endUser === undefined ? EXEMPT_CALLER : plainAddress(String(endUser));
    if (address === UNKNOWN_ADDRESS) {
      done(invalidFields({ path: END_USER_HEADER, message: 'must be one IP address' }));
      return;
    }
    passed.set(request, address);
    done();
  };
}
