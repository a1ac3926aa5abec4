import { domainToASCII, domainToUnicode } from 'node:url';
import { Email, fits } from '../http/schemas.js';

/**
 * Domains whose addresses the operator has invited by mail, so that whoever came by an invitation has proved to read
 * it. A domain is meant alone, without those below it.
 */

/** Says what is wrong with a domain of the configuration, or `undefined`. */
export function emailDomainProblem(domain: string): string | undefined {
  return isDomain(canonical(domain))
    ? undefined
    : `must list domains like example.com: ${JSON.stringify(domain)} is not a domain.`;
}

/**
 * Whether an address is in one of these domains. A domain with letters beyond ASCII has two spellings, and what is
 * neither of them is another domain, however much a resolver would make of it.
 */
export function createDomainCheck(domains: readonly string[]): (address: string) => boolean {
  const spellings = new Set(
    domains
      .map(canonical)
      .flatMap((domain) => [domainToASCII(domain), domainToUnicode(domainToASCII(domain))]),
  );
  return (address) => spellings.has(address.slice(address.lastIndexOf('@') + 1));
}

/** Whether a handle is an e-mail address: ASCII, apart from a domain in its other spelling. */
export function isEmailAddress(handle: string): boolean {
  const at = handle.lastIndexOf('@');
  const domain = handle.slice(at + 1);
  return at > 0 && isDomain(domain) && fits(`${handle.slice(0, at)}@${domainToASCII(domain)}`, Email);
}

/** Whether a domain in canonical form is one of its two spellings. */
function isDomain(domain: string): boolean {
  const ascii = domainToASCII(domain);
  return (domain === ascii || domain === domainToUnicode(ascii)) && LABELS.test(ascii);
}

/** As handles are stored. */
const canonical = (domain: string): string => domain.toLowerCase().normalize('NFC');

/** Two labels or more, none of them empty; the last is no number, or it would be an address of a machine. */
const LABELS = /^([a-z\d]([a-z\d-]*[a-z\d])?\.)+[a-z]([a-z\d-]*[a-z\d])?$/;
