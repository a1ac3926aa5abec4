import { HOUR, MINUTE } from '../../core/kernel/clock.js';
import { fixedWindow, type Limit } from '../../core/throttle/throttle.js';

/** Rate limits. The key is the block of client addresses unless stated otherwise. */

/** The numbers of the limits that options change. */
export const DEFAULT_RATES = { registrations: 30, logins: 60, mails: 10, requests: 300 } as const;

/** Wrong passwords. Generated passwords do not count towards the limit of chosen ones. */
export const FAILURES = {
  password: fixedWindow('failures', DEFAULT_RATES.logins, MINUTE, { rate: 'logins' }),
  agent: fixedWindow('failures.agent', 60, MINUTE),
};

export const REGISTRATIONS = fixedWindow('accounts', DEFAULT_RATES.registrations, HOUR, {
  rate: 'registrations',
  sendsMail: true,
});

/** Agents and invitations. */
export const CREATIONS: Limit = fixedWindow('agents', 60, HOUR, { rate: 'registrations', floor: true });

/** Requests for links by mail. */
export const MAIL_REQUESTS = fixedWindow('mail', DEFAULT_RATES.mails, HOUR, {
  rate: 'mails',
  sendsMail: true,
});

/** Mails with one kind of link to one handle, from any address. */
export const mailsTo = (kind: 'reset' | 'verify') => fixedWindow(`mail.${kind}`, 3, 15 * MINUTE);
