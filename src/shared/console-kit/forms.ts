import { createHmac } from 'node:crypto';
import formbody from '@fastify/formbody';
import type { FastifyRequest } from 'fastify';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { type Clock, HOUR, isUnexpired } from '../../core/kernel/clock.js';
import { secretsEqual } from '../../core/kernel/secrets.js';
import { consoleErrors } from './errors.js';

/** CSRF tokens for forms, which cannot send the header that protects other requests from cross-site use. */
export type FormTokens = ReturnType<typeof createFormTokens>;

/** How long a page may stay open before its form is submitted. */
const FORM_TOKEN_TTL_MS = 12 * HOUR;

/**
 * @param secret binds the tokens to the credentials or the session of the operator, so that new ones invalidate them in every
 * process
 */
export function createFormTokens({ secret, clock }: { secret: string; clock: Clock }) {
  const sign = (expires: string) =>
    createHmac('sha256', `form of the admin area\0${secret}`).update(expires).digest('base64url');
  return {
    issue(): string {
      const expires = String(clock.now() + FORM_TOKEN_TTL_MS);
      return `${expires}.${sign(expires)}`;
    },
    isValid(token: unknown): boolean {
      if (typeof token !== 'string') return false;
      const [, expires = '', signature = ''] = /^(\d{1,15})\.([\w-]{43})$/.exec(token) ?? [];
      const isValid = isUnexpired(Number(expires), { now: clock.now(), life: FORM_TOKEN_TTL_MS });
      return secretsEqual(signature, sign(expires)) && isValid;
    },
  };
}

/** The longest text has 10,000 characters, of nine bytes each in a form. */
const BODY_LIMIT = 128 * 1024;

/** Registers routes that accept forms and reject those without a valid token. */
export async function registerForms(
  fastify: FastifyTypebox,
  tokensOf: (request: FastifyRequest) => FormTokens,
  addRoutes: (forms: FastifyTypebox) => void,
): Promise<void> {
  await fastify.register(async (plain) => {
    const forms = plain as FastifyTypebox;
    await forms.register(formbody, { bodyLimit: BODY_LIMIT });
    forms.addHook('preValidation', (request, _reply, done) => {
      const { token } = (request.body ?? {}) as { token?: unknown };
      done(tokensOf(request).isValid(token) ? undefined : consoleErrors.CSRF_REJECTED());
    });
    addRoutes(forms);
  });
}
