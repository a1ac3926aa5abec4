import type {
  MetadataPatch,
  PrivateMetadata,
  PublicMetadata,
  UserFieldsPatch,
} from '../../../core/http/user-metadata.js';
import { invalidFields } from '../../../core/kernel/errors.js';

/**
 * The metadata of users. It is stored as text, so that every JSON object is the same on every engine: a document of MongoDB
 * cannot have every key.
 */

/** The maximum of each kind, as JSON in UTF-8. */
const MAX_METADATA_BYTES = 8 * 1024;

/** What a host can give for a new user, or change. */
export interface MetadataInput {
  /** The user reads it in `GET /auth/me`; at most 8 KiB of JSON. A key is set as a whole; `null` removes it. */
  publicMetadata?: MetadataPatch<PublicMetadata>;
  /** Only the host reads it, and the export of the user's data contains it; at most 8 KiB of JSON. Changes as above. */
  privateMetadata?: MetadataPatch<PrivateMetadata>;
  /** Values of the fields of the option `userFields`, also those that the user cannot write; `null` removes one. */
  fields?: UserFieldsPatch;
}

export const METADATA_KINDS = ['publicMetadata', 'privateMetadata'] as const;

/** As in documents. */
export type StoredMetadata = Partial<Record<(typeof METADATA_KINDS)[number], string>>;

export function publicMetadataOf({ publicMetadata }: StoredMetadata): {
  publicMetadata?: PublicMetadata;
} {
  return publicMetadata === undefined ? {} : { publicMetadata: JSON.parse(publicMetadata) };
}

export function privateMetadataOf({ privateMetadata }: StoredMetadata): {
  privateMetadata?: PrivateMetadata;
} {
  return privateMetadata === undefined ? {} : { privateMetadata: JSON.parse(privateMetadata) };
}

/** What is wrong with a change, whatever is stored; null: nothing. */
export function metadataProblem(patch: unknown): string | null {
  if (patch === undefined) return null;
  try {
    // A value with `toJSON`, such as a date, may become no object.
    const written: unknown = isObject(patch) && JSON.parse(JSON.stringify(patch) ?? 'null');
    return isObject(written) ? sizeProblem(mergedText(undefined, written)) : NO_OBJECT;
  } catch {
    return NO_OBJECT;
  }
}

const NO_OBJECT = 'must be an object that JSON can represent';
const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** What is stored after a change. @throws VALIDATION_ERROR if it is too large */
export function mergeMetadata(stored: StoredMetadata, input: MetadataInput): StoredMetadata {
  const merged: StoredMetadata = {};
  for (const kind of METADATA_KINDS) {
    const patch = input[kind];
    const text = patch === undefined ? stored[kind] : mergedText(stored[kind], patch);
    const message = sizeProblem(text);
    if (message) throw invalidFields({ path: kind, message });
    if (text !== undefined) merged[kind] = text;
  }
  return merged;
}

/**
 * The text after a change; undefined if nothing is left. A value replaces that of its key as a whole, and `null` removes the key, as
 * at the top level of JSON Merge Patch (RFC 7396).
 */
function mergedText(stored: string | undefined, patch: object): string | undefined {
  // Entries, because an assignment to `__proto__` is not a property.
  const before = Object.entries(JSON.parse(stored ?? '{}') as object);
  const given = Object.entries(JSON.parse(JSON.stringify(patch)) as object);
  const merged = [...new Map([...before, ...given])].filter(([, value]) => value !== null);
  return merged.length === 0 ? undefined : JSON.stringify(Object.fromEntries(merged));
}

function sizeProblem(text = ''): string | null {
  const bytes = Buffer.byteLength(text);
  if (bytes <= MAX_METADATA_BYTES) return null;
  return `must have at most ${MAX_METADATA_BYTES} bytes of JSON in all; it would have ${bytes}`;
}
