import { createHmac } from 'node:crypto';
import formbody from '@fastify/formbody';
import type { FastifyRequest } from 'fastify';
import type { Scope } from '../../core/http/scope.js';
import { type Clock, HOUR, isUnexpired } from '../../core/kernel/clock.js';
import { secretsEqual } from '../../core/kernel/secrets.js';
import { consoleErrors } from './errors.js';

/** CSRF tokens for forms, which cannot send the header that protects other requests from cross-site use. */
export interface FormTokens {
  issue(): string;
  isValid(token: unknown): boolean;
}

/** How long a page may stay open before its form is submitted. */
const FORM_TOKEN_TTL_MS = 12 * HOUR;

/**
 * @param secret binds the tokens to the credentials or the session of the operator, so that new ones invalidate them in every
 * process
 */
export function createFormTokens({ secret, clock }: { secret: string; clock: Clock }): FormTokens {
  const sign = (expires: string) =>
    createHmac('sha256', `form of the admin area\0${secret}`).update(expires).digest('base64url');
  return {
    issue() {
      const expires = String(clock.now() + FORM_TOKEN_TTL_MS);
      return `${expires}.${sign(expires)}`;
    },
    isValid(token) {
      if (typeof token !== 'string') return false;
      const [, expires = '', signature = ''] = /^(\d{1,15})\.([\w-]{43})$/.exec(token) ?? [];
      const isValid = isUnexpired(Number(expires), { now: clock.now(), life: FORM_TOKEN_TTL_MS });
      return secretsEqual(signature, sign(expires)) && isValid;
    },
  };
}

const BODY_LIMIT = 16 * 1024;

/** Registers routes that accept forms and reject those without a valid token. */
export async function registerForms(
  scope: Scope,
  tokensOf: (request: FastifyRequest) => FormTokens,
  addRoutes: (forms: Scope) => void,
): Promise<void> {
  await scope.register(async (plain) => {
    const forms = plain as Scope;
    await forms.register(formbody, { bodyLimit: BODY_LIMIT });
    forms.addHook('preValidation', (request, _reply, done) => {
      const { token } = (request.body ?? {}) as { token?: unknown };
      done(tokensOf(request).isValid(token) ? undefined : consoleErrors.CSRF_REJECTED());
    });
    addRoutes(forms);
  });
}
