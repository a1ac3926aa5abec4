import { HOUR, MINUTE } from '../../core/kernel/clock.js';
import { atMost } from '../../core/throttle/throttle.js';
import { UNLOCK_LINK_TTL_MS, VERIFICATION_LINK_TTL_MS } from './links/link-tokens.js';

/** Mails with one kind of link to one address. The key is the address in lower case, not the client. */
const mailTo = (kind: string) => atMost(`mail.${kind}`, 3, 15 * MINUTE);

/** The numbers of the limits that options change. */
export const DEFAULT_RATES = { registrations: 10, logins: 30, mails: 10, requests: 300 } as const;

/** Rate limits. The key is the block of client addresses unless stated otherwise. */
export const authLimits = {
  login: atMost('login', DEFAULT_RATES.logins, MINUTE, { rate: 'logins' }),
  register: atMost('register', DEFAULT_RATES.registrations, HOUR, { rate: 'registrations', sendsMail: true }),
  /** Requests for a code to sign in. */
  loginCode: atMost('login-code', 60, HOUR, { rate: 'mails', floor: true, sendsMail: true }),
  /** The same for one address; the key is that and the block. */
  loginCodeFrom: atMost('login-code.address', 3, 15 * MINUTE),
  /** Requests for a link by mail. */
  mail: atMost('mail', DEFAULT_RATES.mails, HOUR, { rate: 'mails', sendsMail: true }),
  /** One limit for each kind of link, so that requests for one kind cannot use up another. */
  mailTo: {
    reset: mailTo('reset'),
    verify: mailTo('verify'),
    change: mailTo('change'),
    login: atMost('mail.login', 6, 15 * MINUTE),
    /** Beyond that, for requests from locations that have signed in to the account. */
    knownLogin: atMost('mail.login.known', 3, 15 * MINUTE),
    /** The server sends these links without a request; each is valid until the next one may be sent. */
    unlock: atMost('mail.unlock', 1, UNLOCK_LINK_TTL_MS),
  },
  /** Exports; the key is the account. */
  export: atMost('export', 10, HOUR),
  /** Redeemed links. */
  link: atMost('link', 30, MINUTE),
  /** Passwords that are compared with the one that a link has set; the key is the link. */
  repetition: atMost('link.repetition', 10, VERIFICATION_LINK_TTL_MS),
};
