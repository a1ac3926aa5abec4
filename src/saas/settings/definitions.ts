import type { Static, TSchema } from 'typebox';
import { choicesOf, kindOf, type ValueKind, valueProblem } from '../../core/config/declared-values.js';
import type { CustomValue } from './store.js';

/** A setting that the host declares and the operator changes in the admin area. */
export interface CustomSetting {
  /** `Type.String`, `Type.Integer`, `Type.Number`, `Type.Boolean`, or `Type.Enum` of texts. */
  schema: TSchema;
  /** The value until the operator sets one. A setting without it is `undefined` until then. */
  default?: CustomValue;
  /** Shown in the admin area. Default: the name. */
  label?: string;
  /** Whether `GET /settings/public` contains it. */
  public?: boolean;
  /** Whether it is encrypted in the store and never shown again. Texts only. */
  secret?: boolean;
}

/** The settings of the host by name. */
export type CustomSettings = Readonly<Record<string, CustomSetting>>;

/** The values of settings. */
export type CustomSettingsValues<D extends CustomSettings> = {
  -readonly [Name in keyof D]:
    | Static<D[Name]['schema']>
    | (D[Name] extends { default: CustomValue } ? never : undefined);
};

const NAME = /^[a-z]\w{0,63}$/i;

/** A setting as the admin area edits it. */
export interface SettingField {
  name: string;
  label: string;
  /** The `description` of the schema. */
  hint: string | undefined;
  kind: ValueKind;
  choices: readonly string[];
  default: CustomValue | undefined;
  isPublic: boolean;
  isSecret: boolean;
}

export function fieldOf(name: string, definition: CustomSetting): SettingField {
  const { schema, label = name, default: value } = definition;
  const { description } = schema as { description?: string };
  return {
    name,
    label,
    hint: description,
    kind: kindOf(schema) ?? 'text',
    choices: choicesOf(schema) ?? [],
    default: value,
    isPublic: definition.public === true,
    isSecret: definition.secret === true,
  };
}

/** The problems of the host's declarations, as sentences. */
export function customSettingsProblems(definitions: CustomSettings, hasKey: boolean): string[] {
  const problems = Object.entries(definitions).flatMap(([name, definition]) => {
    const problem = definitionProblem(name, definition);
    return problem === undefined ? [] : [`customSettings.${name} ${problem}`];
  });
  const secrets = Object.keys(definitions).filter((name) => definitions[name]?.secret);
  return secrets.length === 0 || hasKey
    ? problems
    : [
        ...problems,
        `SETTINGS_ENCRYPTION_KEY is not set, but customSettings has secret settings: ${secrets.join(', ')}. Generate one: openssl rand -base64 48`,
      ];
}

function definitionProblem(name: string, definition: CustomSetting): string | undefined {
  if (!NAME.test(name)) return 'must have a name of letters, digits and underscores, like supportEmail.';
  const kind = kindOf(definition.schema);
  if (kind === undefined) return 'must have a schema of a text, number, boolean or enum of texts.';
  const { secret, default: value } = definition;
  if (secret && definition.public) return 'cannot be both secret and public.';
  if (secret && kind !== 'text') return 'is secret, so its schema must be a text.';
  if (secret && value !== undefined) return 'is secret, so it cannot have a default.';
  const problem = value === undefined ? undefined : valueProblem(definition.schema, value);
  return problem === undefined ? undefined : `has a default that ${problem}.`;
}
