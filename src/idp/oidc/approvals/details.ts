import { DisplayName, matchesSchema } from '../../../core/http/schemas.js';
import { sha256 } from '../../../core/kernel/secrets.js';
import type { ApprovalType } from '../../resources/store.js';
import type { RuleViolation } from '../authorize/rules.js';
import type { Resource, Resources, Target } from '../resources.js';
import type { AuthorizationDetail } from '../store.js';

/** `authorization_details` (RFC 9396): one entry, of a type that the resource has declared. */

const MAX_LENGTH = 4096;

const refuse = (description: string): RuleViolation => ({
  error: 'invalid_authorization_details',
  description,
});

/** The entry of a request, with exactly the declared fields, and the resource that has declared its type. */
export async function readDetails(
  text: string,
  named: readonly string[],
  resources: Resources,
): Promise<{ details: AuthorizationDetail; resource: Resource } | RuleViolation> {
  const entry = parse(text);
  if (!entry)
    return refuse(
      `authorization_details must be a JSON array with one object, of at most ${MAX_LENGTH} characters.`,
    );
  const candidates = named.length > 0 ? await Promise.all(named.map(resources.find)) : await resources.all();
  const found = candidates.flatMap((resource) => {
    const type = resource?.approvals?.find(({ name }) => name === entry['type']);
    return resource && type ? [{ resource, type }] : [];
  });
  const [match, ...others] = found;
  if (!match) return refuse('No resource has declared the type of authorization_details.');
  if (others.length > 0)
    return refuse('Several resources have declared this type. Send the parameter resource.');
  const details = detailsOf(entry, match.type);
  return typeof details === 'string' ? refuse(details) : { details, resource: match.resource };
}

function parse(text: string): Record<string, unknown> | null {
  if (text.length > MAX_LENGTH) return null;
  try {
    const list: unknown = JSON.parse(text);
    const [entry, ...others] = Array.isArray(list) ? list : [];
    const isObject = typeof entry === 'object' && entry !== null && !Array.isArray(entry);
    return isObject && others.length === 0 ? entry : null;
  } catch {
    return null;
  }
}

/** The entry as it is stored, or what is wrong with it. */
function detailsOf(
  entry: Record<string, unknown>,
  { name: type, fields }: ApprovalType,
): AuthorizationDetail | string {
  const unknown = Object.keys(entry).find(
    (name) => name !== 'type' && !fields.some((field) => field.name === name),
  );
  if (unknown !== undefined) return `authorization_details of type ${type} have other fields.`;
  const details: AuthorizationDetail = { type };
  for (const { name, kind, optional } of fields) {
    const value = Object.hasOwn(entry, name) ? entry[name] : undefined;
    if (value === undefined && optional) continue;
    if (!isOfKind(value, kind)) return `${name} in authorization_details must be ${KINDS[kind]}.`;
    details[name] = value;
  }
  return details;
}

const KINDS = {
  text: 'a text of 1 to 200 characters on one line, without invisible ones',
  number: 'a number',
  boolean: 'true or false',
} as const;

function isOfKind(value: unknown, kind: keyof typeof KINDS): value is string | number | boolean {
  if (kind === 'text') return typeof value === 'string' && matchesSchema(value, DisplayName);
  if (kind === 'number') return typeof value === 'number' && Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  return typeof value === 'boolean';
}

/** Whether the resource still has the type of the details, with these fields. */
export const isDeclared = (details: AuthorizationDetail, { approvals = [] }: Resource): boolean => {
  const type = approvals.find(({ name }) => name === details.type);
  return type !== undefined && typeof detailsOf(details, type) !== 'string';
};

/** The sentence about the details: text, and between it values that a page sets apart. */
function sentenceOf(details: AuthorizationDetail, { approvals = [] }: Resource) {
  const { sentence = '' } = approvals.find(({ name }) => name === details.type) ?? {};
  // It has no optional fields.
  return sentence
    .split(/\{(\w+)\}/)
    .map((part, index) => (index % 2 === 1 ? { value: String(details[part]) } : { text: part }));
}

/** What a page shows of a request: the fields in the order of their declaration. */
export function viewOf(details: AuthorizationDetail | undefined, { resource, scopes }: Target) {
  const hasScopes = scopes.length > 0;
  if (!details) return { hasScopes };
  const { type: _, ...fields } = details;
  const shown = Object.entries(fields).map(([name, value]) => ({ name, value: String(value) }));
  return { hasScopes, sentence: sentenceOf(details, resource), fields: shown };
}

/** What the audit says of details that it does not contain. */
export const hashOf = (details: AuthorizationDetail): string => sha256(JSON.stringify(details));
