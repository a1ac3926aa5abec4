import { type TString, Type } from 'typebox';
import { parseTyped } from '../../core/config/declared-values.js';
import type { AppError } from '../../core/kernel/errors.js';
import type { CustomSettingsService, DescribedSettings } from '../settings/custom.js';

/** The settings that the host declares, as a form. */

const Text = Type.Optional(
  Type.String({
    accepts: 'a text of at most 10,000 characters',
    maxLength: 10_000,
    pattern: '^[^\\0\\p{Cs}]*$',
  }),
);

const inputOf = (name: string) => `value-${name}`;
const removalOf = (name: string) => `remove-${name}`;

/** The body of the form. */
export const customFormSchema = ({ fields }: CustomSettingsService, version: TString) =>
  Type.Object({
    version,
    ...Object.fromEntries(
      fields.flatMap(({ name }) => [
        [inputOf(name), Text],
        [removalOf(name), Text],
      ]),
    ),
  });

/** The values to write: an empty input removes a value, but keeps a secret one. */
export function valuesOf({ fields }: CustomSettingsService, body: Record<string, string | undefined>) {
  const entries = fields.flatMap(({ name, kind, isSecret }): [string, unknown][] => {
    const text = body[inputOf(name)] ?? '';
    if (text !== '') return [[name, parseTyped(text, kind)]];
    return isSecret && body[removalOf(name)] === undefined ? [] : [[name, null]];
  });
  return Object.fromEntries(entries);
}

/** @param rejected the submission that the page shows again, with the values kept except secret ones */
export function customFormView(
  { fields }: CustomSettingsService,
  { version, values, secrets }: DescribedSettings,
  rejected?: { body: Record<string, string | undefined>; error: AppError },
) {
  const problems = new Map((rejected?.error.details ?? []).map(({ path, message }) => [path, message]));
  return {
    version,
    failure: rejected && problems.size === 0 ? rejected.error.message : undefined,
    inputs: fields.map((field) => {
      const { name, label, kind, isSecret } = field;
      const stored = values[name];
      const isDefault = stored === null || stored === field.default;
      const shown = isSecret || isDefault ? '' : String(stored);
      const value = isSecret ? '' : (rejected?.body[inputOf(name)] ?? shown);
      const choices = kind === 'boolean' ? ['true', 'false'] : field.choices;
      return {
        name: inputOf(name),
        label,
        hint: hintOf(field, secrets[name] === true),
        type: isSecret ? 'password' : 'text',
        value,
        maxLength: 10_000,
        problem: problems.get(`values.${name}`),
        isSelect: choices.length > 0,
        isLine: choices.length === 0,
        choices: [
          { value: '', label: field.default === undefined ? 'Not set' : 'Default', isChosen: value === '' },
          ...choices.map((choice) => ({ value: choice, label: choice, isChosen: value === choice })),
        ],
        removal: isSecret && secrets[name] ? { name: removalOf(name), label: `Remove ${label}` } : undefined,
      };
    }),
  };
}

function hintOf(
  { hint, isPublic, isSecret, default: value }: CustomSettingsService['fields'][number],
  isSet: boolean,
): string {
  const secret = isSet ? 'Set. Leave it empty to keep it.' : 'Not set.';
  const sentences = [
    hint?.replace(/\.?$/, '.'),
    isSecret ? `Encrypted, and never shown again. ${secret}` : undefined,
    value === undefined ? undefined : `Default: ${value}.`,
    isPublic ? 'Visible without signing in.' : undefined,
  ];
  return sentences.filter((sentence) => sentence !== undefined).join(' ');
}
