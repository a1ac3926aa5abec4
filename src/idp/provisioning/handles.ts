import { invalidFields } from '../../core/kernel/errors.js';

/** The form in which handles are stored and compared, without the spaces that keyboards and clipboards add. */
export const canonicalForm = (handle: string): string => handle.trim().toLowerCase().normalize('NFC');

/** The canonical form of a handle for a new principal. @throws VALIDATION_ERROR */
export function canonicalHandle(handle: string): string {
  const problem = handleProblem(handle);
  if (problem) throw invalidFields({ path: 'handle', message: problem });
  return canonicalForm(handle);
}

/** Whether a stored principal may have this handle: earlier versions accepted more than `handleProblem` does. */
export function isPossibleHandle(handle: string): boolean {
  return basicProblem(canonicalForm(handle)) === null;
}

/** The problem of a handle for a new principal, or `null`. */
function handleProblem(handle: string): string | null {
  const form = canonicalForm(handle);
  return basicProblem(form) ?? (/^[!-~]+$/.test(form) ? null : lookalikeProblem(form));
}

/** No colon, because HTTP Basic splits there, and no prefix of the provider's own identifiers. */
function basicProblem(form: string): string | null {
  if (form.length < 3 || Buffer.byteLength(form) > 254)
    return 'must be 3 to 254 characters long; characters beyond ASCII count as two to four';
  if (!/^[^\p{C}\p{Z}:]+$/u.test(form)) return 'must contain no colon, space or control character';
  if (/^(cid_|ac_|u_)/.test(form)) return 'must not begin like an identifier of this service';
  return null;
}

/** Characters of the IdentifierClass of PRECIS (RFC 8264 §4.2), which has no symbols or punctuation beyond ASCII. */
const IDENTIFIER = /^[\p{Ll}\p{Lu}\p{Lo}\p{Lm}\p{Nd}\p{Mn}\p{Mc}!-~]+$/u;
/** Characters that are not displayed, and a combining dot above a letter that has a dot. */
const INVISIBLE = /\p{Default_Ignorable_Code_Point}|^\p{M}|\p{Soft_Dotted}\u0307/u;

/** Rejects a handle beyond ASCII that could look like another one. */
function lookalikeProblem(form: string): string | null {
  const isIdentifier = IDENTIFIER.test(form) && form === form.normalize('NFKC');
  if (!isIdentifier || INVISIBLE.test(form)) {
    return 'must consist of letters, digits and ASCII punctuation, without invisible characters or special forms of letters';
  }
  writingSystem ??= oneWritingSystem();
  const digits = new Set(Array.from(form.matchAll(/\p{Nd}/gu), ([digit]) => decimalSystemOf(digit)));
  return writingSystem.test(form) && digits.size <= 1 ? null : 'must not mix scripts';
}

/** The recommended scripts (UAX #31, table 5), and those that one language combines (UTS #39, Highly Restrictive). */
const WRITING_SYSTEMS = [
  ...['Arabic', 'Armenian', 'Bengali', 'Bopomofo', 'Cyrillic', 'Devanagari', 'Ethiopic', 'Georgian', 'Greek'],
  ...['Gujarati', 'Gurmukhi', 'Hangul', 'Han', 'Hebrew', 'Hiragana', 'Kannada', 'Katakana', 'Khmer', 'Lao'],
  ...['Latin', 'Malayalam', 'Myanmar', 'Oriya', 'Sinhala', 'Tamil', 'Telugu', 'Thaana', 'Thai', 'Tibetan'],
  ...['Latin Han Bopomofo', 'Latin Han Hiragana Katakana', 'Latin Han Hangul'],
];

let writingSystem: RegExp | undefined;

/** Built on first use: few handles go beyond ASCII. */
function oneWritingSystem(): RegExp {
  const classes = WRITING_SYSTEMS.map((scripts) =>
    [...scripts.split(' '), 'Common', 'Inherited']
      .map((script) => `\\p{Script_Extensions=${script}}`)
      .join(''),
  );
  return new RegExp(classes.map((characters) => `^[${characters}]+$`).join('|'), 'u');
}

/** The digits of a decimal system are neighbours within 16 code points. */
const decimalSystemOf = (digit: string): number => (digit.codePointAt(0) ?? 0) >> 4;
