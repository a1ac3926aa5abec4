/** Reads objects of the payment provider without assuming that fields have the documented types. */

export type Json = Record<string, unknown>;

export const asObject = (value: unknown): Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};

export const asList = (value: unknown): Json[] => (Array.isArray(value) ? value : []).map(asObject);

/** A non-empty string that every storage engine accepts. */
export function asText(value: unknown): string | undefined {
  const isText = typeof value === 'string' && value !== '' && value.length <= 255;
  return isText && value.isWellFormed() && !value.includes('\0') ? value : undefined;
}

/** The ID of an object, whether the provider sent the ID or the expanded object. */
export const idOf = (value: unknown): string | undefined => asText(value) ?? asText(asObject(value)['id']);

/** A Unix time in seconds, converted to milliseconds. */
export function asTime(value: unknown): number | undefined {
  const isTime = typeof value === 'number' && Number.isSafeInteger(value) && value > 0 && value < 1e11;
  return isTime ? value * 1000 : undefined;
}

export const asInteger = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined;

export const asFlag = (value: unknown): boolean | undefined =>
  typeof value === 'boolean' ? value : undefined;

/** An address for people. Only https, because clients use it as a link. */
export const asLink = (value: unknown): string | null =>
  typeof value === 'string' && /^https:\/\//.test(value) ? value : null;
