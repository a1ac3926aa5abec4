import type { preValidationHookHandler } from 'fastify';
import type { TObject } from 'typebox';
import { httpErrors } from '../kernel/errors.js';

/** Limits of an error that repeats field names of the request. */
const MAX_LISTED_FIELDS = 20;
const MAX_NAME_LENGTH = 100;

/**
 * Rejects fields that the schema does not have. Most routes ignore them, but a client that sends one to a route with this hook
 * expects it to be stored.
 *
 * @param problem what an unknown field is not
 */
export function rejectUnknownFields({ properties }: TObject, problem: string): preValidationHookHandler {
  const allowed = Object.keys(properties).join(', ');
  return ({ body }, _reply, done) => {
    const isObject = typeof body === 'object' && body !== null && !Array.isArray(body);
    const unknown = Object.keys(isObject ? body : {}).filter((name) => !Object.hasOwn(properties, name));
    const details = unknown.slice(0, MAX_LISTED_FIELDS).map((name) => ({
      path: name.slice(0, MAX_NAME_LENGTH),
      message: `${problem}; allowed fields: ${allowed}`,
    }));
    done(details.length > 0 ? httpErrors.VALIDATION_ERROR({ details }) : undefined);
  };
}
