import { parseTyped } from '../../core/config/declared-values.js';
import { type Localized, message } from '../../core/http/messages.js';
import type { Page } from '../../core/http/pages.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import type { NewUserFields } from '../../core/http/user-metadata.js';
import { AppError } from '../../core/kernel/errors.js';
import type { FieldInput, UserFieldRules } from '../auth/users/fields.js';
import type { PageContext } from './context.js';
import { OptionalTyped, ownForm } from './schemas.js';

/** The fields of users that the host declares, in forms. */
export type FieldForm = ReturnType<typeof createFieldForm>;

/** The values by the names of the fields: those of a user, or what was typed. */
type Values = Readonly<Record<string, unknown>>;

const inputName = ({ name }: FieldInput): string => `fields.${name}`;

export function createFieldForm(rules: UserFieldRules | undefined) {
  const inputs = (rules?.inputs ?? []).filter(({ isReadOnly }) => !isReadOnly);

  return {
    inputs,

    /** The properties of the body of a form with the fields. */
    body: Object.fromEntries(inputs.map((input) => [inputName(input), OptionalTyped])),

    /** What was typed into a form; undefined without fields. A box that is not ticked is false. */
    read(body: Values): { fields?: NewUserFields } {
      const typedFor = (input: FieldInput): unknown => {
        const text = body[inputName(input)];
        if (input.kind === 'boolean') return text !== undefined;
        return typeof text === 'string' ? parseTyped(text, input.kind) : null;
      };
      const typed = inputs.map((input) => [input.name, typedFor(input)]);
      return inputs.length === 0 ? {} : { fields: Object.fromEntries(typed) };
    },

    /** What is wrong with fields; undefined if the error is about something else. */
    problemsIn(error: unknown): ReadonlySet<string> | undefined {
      const paths = error instanceof AppError ? (error.details ?? []).map(({ path }) => path) : [];
      const found = new Set(inputs.map(inputName).filter((path) => paths.includes(path)));
      return found.size > 0 ? found : undefined;
    },

    /** The inputs for the partial `_fields`. @param wrong those whose values were refused */
    view(values: Values = {}, wrong: ReadonlySet<string> = new Set()) {
      const [first] = wrong;
      return inputs.map((input) => {
        const name = inputName(input);
        return {
          ...viewOf(input, values[input.name] ?? '', wrong.has(name)),
          ...(name === first && { isFirst: true }),
        };
      });
    },
  };
}

function viewOf(input: FieldInput, value: unknown, hasProblem: boolean) {
  const { name, label, kind, choices, isRequired, maxLength, minimum, maximum } = input;
  const id = `field-${name}`;
  const isCheckbox = kind === 'boolean';
  const hint = hintOf(input);
  const described = [hint && `${id}-hint`, hasProblem && `${id}-problem`].filter(Boolean).join(' ');
  return {
    ...{ id, inputName: inputName(input), label, hint, isRequired, value: String(value) },
    problem: hasProblem ? problemOf(input, value) : undefined,
    describedBy: described || undefined,
    isCheckbox,
    isChecked: value === true,
    isSelect: kind === 'choice',
    isText: kind !== 'choice' && !isCheckbox,
    type: kind === 'text' ? 'text' : 'number',
    choices: choices.map((choice) => ({ choice, isChosen: choice === value })),
    attributes: attributesOf({ maxlength: maxLength, min: minimum, max: maximum, step: stepOf(kind) }),
  };
}

const stepOf = (kind: FieldInput['kind']): string | undefined =>
  ({ integer: '1', number: 'any' })[kind as 'integer' | 'number'];

/** Those of an input that have a value. */
const attributesOf = (given: Record<string, string | number | undefined>) =>
  Object.entries(given).flatMap(([attribute, limit]) => (limit === undefined ? [] : [{ attribute, limit }]));

function hintOf({ hint, kind, isRequired }: FieldInput): Localized | undefined {
  const isOptional = !isRequired && kind !== 'boolean';
  if (!isOptional) return hint === undefined ? undefined : () => hint;
  const optional = message('account.name-optional');
  return (catalogue) => (hint === undefined ? '' : `${hint.replace(/[.?!]?$/, '.')} `) + optional(catalogue);
}

/** Why a value was refused, in the language of the reader. */
function problemOf({ label, kind, isRequired, maxLength = 0 }: FieldInput, value: unknown): Localized {
  if (isRequired && (kind === 'boolean' || String(value).trim() === ''))
    return message('user-details.required', { label });
  if (kind === 'text' && String(value).length > maxLength)
    return message('user-details.too-long', { label, maximum: String(maxLength) });
  return message('user-details.not-possible', { label });
}

/** The page on which users change the fields that the host has declared. */
export async function detailsPlugin(
  fastify: FastifyTypebox,
  options: PageContext & { fieldForm: FieldForm },
): Promise<void> {
  const { identityOf, pages, path, fieldForm, changeProfile } = options;
  const config = access('person', { page: true });

  fastify.get('/details', { config }, (request, reply) =>
    pages.send(reply, pageOf(identityOf(request).user.fields)),
  );

  fastify.post('/details', { config, schema: { body: ownForm(fieldForm.body) } }, async (request, reply) => {
    const { fields } = fieldForm.read(request.body as Values);
    pages.keepForm(request, pageOf(fields));
    try {
      await changeProfile(identityOf(request).user.id, { fields });
    } catch (error) {
      const wrong = fieldForm.problemsIn(error);
      if (!wrong) throw error;
      return pages.send(reply.code(422), pageOf(fields, wrong));
    }
    return reply.redirect(`${path()}?done=details-saved`, 303);
  });

  const pageOf = (values: Values | undefined, wrong?: ReadonlySet<string>): Page => ({
    template: 'user-details',
    view: { action: `${path()}/details`, fields: fieldForm.view(values, wrong) },
  });
}
