import { invalid } from './errors.js';

/** The form in which handles are stored and compared. */
export const canonicalForm = (handle: string): string => handle.toLowerCase().normalize('NFC');

/** The canonical form of a handle that somebody is to have. @throws VALIDATION_ERROR */
export function canonicalHandle(handle: string): string {
  const problem = handleProblem(handle);
  if (problem) throw invalid({ path: 'handle', message: problem });
  return canonicalForm(handle);
}

/** No colon, because HTTP Basic splits there; nothing that looks like one of our own identifiers. */
export function handleProblem(handle: string): string | null {
  const form = canonicalForm(handle);
  if (form.length < 3 || Buffer.byteLength(form) > 254) return 'must be 3 to 254 bytes long';
  if (!/^[^\p{C}\p{Z}:]+$/u.test(form)) return 'must hold no colon, space or control character';
  if (/^(cid_|ac_|u_)/.test(form)) return 'must not begin like an identifier of this service';
  return null;
}
