import { HOUR, MINUTE } from '../kernel/clock.js';
import { atMost } from '../throttle/throttle.js';
import { UNLOCK_LIFE } from './links.js';

/** Links of one kind in mails to one address, whoever asks for them: the key is the address, lower-case. */
const mailTo = (kind: string) => atMost(`mail.${kind}`, 3, 15 * MINUTE);

/** How often an address block may do what costs us or others something. */
export const authLimits = {
  login: atMost('login', 30, MINUTE),
  register: atMost('register', 10, HOUR),
  /** Asking for a link by mail. */
  mail: atMost('mail', 10, HOUR),
  /** One for each kind: nobody uses up somebody's links to a new password by asking for others. */
  mailTo: {
    reset: mailTo('reset'),
    verify: mailTo('verify'),
    change: mailTo('change'),
    /** Nobody asks for these links, and each is valid until the next one may be sent. */
    unlock: atMost('mail.unlock', 1, UNLOCK_LIFE),
  },
  /** Exports of one account. */
  export: atMost('export', 10, HOUR),
  /** Presenting such a link. */
  link: atMost('link', 30, MINUTE),
};
