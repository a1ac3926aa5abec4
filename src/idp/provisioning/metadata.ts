import { DisplayName, matchesSchema } from '../../core/http/schemas.js';
import { invalidFields } from '../../core/kernel/errors.js';
import type { Metadata, MetadataValue } from './store.js';

/** What the operator stores about principals, for claims: OIDC Core §5.1 names some, and applications may get others. */

const NAME = /^[a-z][a-z0-9_]{0,39}$/;
const NAME_RULE = 'must be 1 to 40 lower-case letters, digits and underscores, with a letter first';

/** Neither control characters nor lone surrogates, and in lists no commas, with which they are typed. */
const TEXT = /^[^\p{Cc}\p{Cs}]{1,512}$/u;
const ITEM = /^[^\p{Cc}\p{Cs},]{1,128}$/u;

const MAX_ENTRIES = 32;
const MAX_ITEMS = 20;
/** Of the JSON, so that the claims of a token stay small. */
const MAX_BYTES = 4096;

const MAX_CLAIMS = 20;

export const CLAIM_TYPES = ['string', 'number', 'boolean', 'list'] as const;

const isName = (value: unknown) => typeof value === 'string' && matchesSchema(value, DisplayName);

/** The values of the claims that OpenID Connect defines. */
const STANDARD: Readonly<Record<string, readonly [isValid: (value: unknown) => boolean, rule: string]>> = {
  given_name: [isName, 'must be a name'],
  family_name: [isName, 'must be a name'],
  nickname: [isName, 'must be a name'],
  picture: [
    (value) =>
      typeof value === 'string' && /^https:\/\/[\x21-\x7e]{1,500}$/.test(value) && URL.canParse(value),
    'must be an https address',
  ],
  locale: [
    (value) => typeof value === 'string' && /^[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,4}$/.test(value),
    'must be a language like de or de-AT',
  ],
};

function problemOf(name: string, value: unknown): string | undefined {
  if (!NAME.test(name)) return NAME_RULE;
  const [isStandard, rule] = (Object.hasOwn(STANDARD, name) && STANDARD[name]) || [];
  if (isStandard) return isStandard(value) ? undefined : rule;
  if (typeof value === 'boolean' || Number.isSafeInteger(value)) return undefined;
  if (typeof value === 'string' && TEXT.test(value)) return undefined;
  const isList =
    Array.isArray(value) &&
    value.length <= MAX_ITEMS &&
    value.every((item) => typeof item === 'string' && ITEM.test(item));
  return isList
    ? undefined
    : `must be a text of 1 to 512 characters without control characters, a whole number, true or false, or a list of at most ${MAX_ITEMS} texts without commas`;
}

/**
 * The metadata after a change, in which null removes an entry.
 * @throws VALIDATION_ERROR naming every entry that is not possible
 */
export function changeMetadata(before: Metadata, change: Readonly<Record<string, unknown>>): Metadata {
  const given = Object.entries(change);
  const details = given.flatMap(([name, value]) => {
    const message = value === null ? undefined : problemOf(name, value);
    return message === undefined ? [] : [{ path: `metadata.${name.slice(0, 64)}`, message }];
  });
  if (details.length > 0) throw invalidFields(...details.slice(0, MAX_ITEMS));
  const merged = new Map<string, MetadataValue>(Object.entries(before));
  for (const [name, value] of given) {
    if (value === null) merged.delete(name);
    else merged.set(name, value as MetadataValue);
  }
  const after = Object.fromEntries(merged);
  if (merged.size > MAX_ENTRIES || Buffer.byteLength(JSON.stringify(after)) > MAX_BYTES)
    throw invalidFields({
      path: 'metadata',
      message: `must be at most ${MAX_ENTRIES} entries of ${MAX_BYTES} bytes in all`,
    });
  return after;
}

/** An entry as it is typed: `name=text`, or `name:type=value` with another type. @throws VALIDATION_ERROR */
export function parseEntry(text: string): [name: string, value: MetadataValue] {
  const [, name = '', type = 'string', value = ''] = /^([^:=]*)(?::(\w+))?=(.*)$/su.exec(text) ?? [];
  const read: Record<string, () => MetadataValue | undefined> = {
    string: () => value,
    number: () => (/^-?\d{1,15}$/.test(value) ? Number(value) : undefined),
    boolean: () => ({ true: true, false: false })[value],
    list: () => value.split(',').map((item) => item.trim()),
  };
  const parsed = name !== '' && Object.hasOwn(read, type) ? read[type]?.() : undefined;
  if (parsed === undefined)
    throw invalidFields({
      path: 'metadata',
      message: 'must be entries like department=Sales, level:number=3, admin:boolean=true or teams:list=a,b',
    });
  return [name, parsed];
}

/**
 * The claims that an application gets from metadata, as they are stored: `claim:type=name`, separated by commas.
 * @param text the same, where `:string` and the name of the metadata, if it is that of the claim, may be left out
 * @param reserved the claims that the provider itself defines
 * @throws VALIDATION_ERROR
 */
export function parseClaims(text: string, reserved: readonly string[], path: string): string {
  const refuse = (message: string) => invalidFields({ path, message });
  if (text.trim() === '') return '';
  const declared = text.split(',').map((part) => {
    const [, claim = '', type = 'string', from = claim] =
      /^([a-z][a-z0-9_]{0,39})(?::([a-z]{1,9}))?(?:=([a-z][a-z0-9_]{0,39}))?$/.exec(part.trim()) ?? [];
    return { claim, type, from };
  });
  const names = declared.map(({ claim }) => claim);
  const isValid = declared.every(
    ({ claim, type }) => claim !== '' && CLAIM_TYPES.some((known) => known === type),
  );
  if (!isValid || names.length > MAX_CLAIMS || new Set(names).size < names.length)
    throw refuse(
      `must be at most ${MAX_CLAIMS} claims, each once, like department,level:number=grade; types are ${CLAIM_TYPES.join(', ')}`,
    );
  const taken = names.find((name) => reserved.includes(name));
  if (taken !== undefined) throw refuse(`must not contain ${taken}, which the provider itself defines`);
  return declared.map(({ claim, type, from }) => `${claim}:${type}=${from}`).join();
}
