import { HOUR, MINUTE } from '../kernel/clock.js';
import { atMost } from '../ops/throttle.js';

/** How often an address block may do what costs us or others something. */
export const authLimits = {
  login: atMost('login', 30, MINUTE),
  register: atMost('register', 10, HOUR),
  /** Asking for a link by mail. */
  mail: atMost('mail', 10, HOUR),
  /** Mails to one address, whoever asks for them: the key is the address, lower-case. */
  mailTo: atMost('mail.to', 3, 15 * MINUTE),
  /** Presenting such a link. */
  link: atMost('link', 30, MINUTE),
};
