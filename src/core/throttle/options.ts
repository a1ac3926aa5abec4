import type { Static, TObject } from 'typebox';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { secretWeakness } from '../kernel/secrets.js';
import type { Rate, Rates } from './limits.js';

/** The limits that operators set, and the secret with which their own servers are exempt from them. */

const rateOption = <const N extends number>(
  env: string,
  { most, initial, doc }: { most: number; initial: N; doc: string },
) =>
  option(Type.Integer({ minimum: 1, maximum: most, default: initial }), {
    env,
    doc: `${doc}, at most ${most}: docs/both/limits.md.`,
  });

/** @param prefix of the environment variables @param initial the defaults, which differ between the products */
export const rateLimitOptions = (prefix: string, initial: Record<Rate, number>) => ({
  maxRegistrationsPerHour: rateOption(`${prefix}MAX_REGISTRATIONS_PER_HOUR`, {
    most: 10_000,
    initial: initial.registrations,
    doc: 'New accounts per hour and address',
  }),
  maxLoginsPerMinute: rateOption(`${prefix}MAX_LOGINS_PER_MINUTE`, {
    most: 10_000,
    initial: initial.logins,
    doc: 'Attempts to sign in per minute and address',
  }),
  maxMailRequestsPerHour: rateOption(`${prefix}MAX_MAIL_REQUESTS_PER_HOUR`, {
    most: 10_000,
    initial: initial.mails,
    doc: 'Requests for a link by e-mail per hour and address',
  }),
  maxRequestsPerMinute: rateOption(`${prefix}MAX_REQUESTS_PER_MINUTE`, {
    most: 100_000,
    initial: initial.requests,
    doc: 'Requests per minute and address, in each process',
  }),
  callerSecret: option(Type.Optional(Type.String({ minLength: 32 })), {
    env: `${prefix}CALLER_SECRET`,
    doc: 'Secret of at least 32 characters with which your own servers call on behalf of their users: the limits per address then apply to the addresses that they pass, not to their own. docs/both/limits.md.',
    secret: true,
    safe: (secret) => (secret === undefined ? undefined : secretWeakness(secret, 32)),
  }),
});

export type RateLimitConfiguration = Static<TObject<ReturnType<typeof rateLimitOptions>>>;

/** The numbers of the limits, as options name them. */
export const ratesOf = (values: RateLimitConfiguration): Rates => ({
  registrations: values.maxRegistrationsPerHour,
  logins: values.maxLoginsPerMinute,
  mails: values.maxMailRequestsPerHour,
  requests: values.maxRequestsPerMinute,
});
