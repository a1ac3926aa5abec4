import { createHmac } from 'node:crypto';
import formbody from '@fastify/formbody';
import type { Scope } from '../http/scope.js';
import { type Clock, HOUR, isUnexpired } from '../kernel/clock.js';
import { secretsEqual } from '../kernel/secrets.js';
import { adminErrors } from './guard.js';

/**
 * Forms of the admin area. They cannot send the header that keeps foreign pages out, so each carries a token that
 * only our own pages hold.
 */
export interface FormTokens {
  issue(): string;
  isValid(token: unknown): boolean;
}

/** As long as a page may stay open before it is sent. */
const LIFE = 12 * HOUR;

/** Tokens bound to the operator's credentials: new credentials void all of them, in every process. */
export function createFormTokens({ secret, clock }: { secret: string; clock: Clock }): FormTokens {
  const sign = (expires: string) =>
    createHmac('sha256', `form of the admin area\0${secret}`).update(expires).digest('base64url');
  return {
    issue() {
      const expires = String(clock.now() + LIFE);
      return `${expires}.${sign(expires)}`;
    },
    isValid(token) {
      const [, expires = '', signature = ''] = /^(\d{1,15})\.([\w-]{43})$/.exec(String(token)) ?? [];
      const holds = isUnexpired(Number(expires), { now: clock.now(), life: LIFE });
      return secretsEqual(signature, sign(expires)) && holds;
    },
  };
}

const BODY_LIMIT = 16 * 1024;

/** Opens a scope whose routes read forms, and refuse those without a token of ours. */
export async function openForms(
  scope: Scope,
  tokens: FormTokens,
  build: (forms: Scope) => void,
): Promise<void> {
  await scope.register(async (plain) => {
    const forms = plain as Scope;
    await forms.register(formbody, { bodyLimit: BODY_LIMIT });
    forms.addHook('preValidation', (request, _reply, done) => {
      const { token } = (request.body ?? {}) as { token?: unknown };
      done(tokens.isValid(token) ? undefined : adminErrors.CSRF_REJECTED());
    });
    build(forms);
  });
}
