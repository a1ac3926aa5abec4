import { domainToASCII, domainToUnicode } from 'node:url';
import { Email, matchesSchema } from './schemas.js';

/** E-mail addresses and their domains, of which each may have two spellings: ASCII and Unicode. */

/**
 * The form in which e-mail addresses of saas-backend are stored and compared. Only ASCII letters are changed: the lower case of
 * some other letters is ASCII, such as that of the Kelvin sign, and would prove the address of another person.
 */
export const canonicalEmail = (address: string): string =>
  address.trim().replace(/[A-Z]/g, (letter) => letter.toLowerCase());

/**
 * The mailbox that a user name in canonical form names, in ASCII; `undefined` if the user name is not an e-mail address:
 * ASCII, apart from a domain in its other spelling.
 */
export function mailboxOf(handle: string): string | undefined {
  const at = handle.lastIndexOf('@');
  const domain = handle.slice(at + 1);
  if (at <= 0 || !isDomain(domain)) return undefined;
  const mailbox = `${handle.slice(0, at)}@${domainToASCII(domain)}`;
  return matchesSchema(mailbox, Email) ? mailbox : undefined;
}

/** The e-mail address of a principal: the one that was given, or else a user name that is an address. */
export const addressOf = ({ handle, email }: { handle: string; email?: string }): string | undefined =>
  email ?? (mailboxOf(handle) === undefined ? undefined : handle);

/** Whether a domain in canonical form is one of its two spellings. */
export function isDomain(domain: string): boolean {
  const ascii = domainToASCII(domain);
  return (domain === ascii || domain === domainToUnicode(ascii)) && LABELS.test(ascii);
}

/** Both spellings of a domain in canonical form. */
export const spellingsOf = (domain: string): [ascii: string, unicode: string] => {
  const ascii = domainToASCII(domain);
  return [ascii, domainToUnicode(ascii)];
};

/** The form in which domains are compared, and in which handles are stored. */
export const canonicalDomain = (domain: string): string => domain.toLowerCase().normalize('NFC');

/** At least two non-empty labels. The last one is not a number, which would be an IP address. */
const LABELS = /^([a-z\d]([a-z\d-]*[a-z\d])?\.)+[a-z]([a-z\d-]*[a-z\d])?$/;
