import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, type TObject, Type } from 'typebox';
import { Envelope, ok } from '../http/schemas.js';
import { access, type Scope } from '../http/scope.js';
import { AppError, invalidFields } from '../kernel/errors.js';
import type { Operator } from '../ops/audit.js';
import { type Console, rootOf } from './console.js';
import { registerForms } from './forms.js';

/**
 * A change that the operator makes: `GET` shows what it does and asks for confirmation, `POST` makes it. If the console
 * has an API, it accepts the same fields as JSON.
 */
export interface Action<Target, Fields extends TObject = TObject> {
  /** The route, relative to the root, without a leading slash: `users/:id/suspend`. Parameters are IDs. */
  path: string;
  /** The entry of the navigation: `users`. */
  section: string;
  title(target: Target): string;
  /** What happens, as sentences. */
  consequences: string;
  /** The label of the button: a verb. */
  button: string;
  /** Whether the change cannot be undone, which the button shows. */
  isDestructive?: boolean;
  /** The text that the operator has to type, in the page and as `confirm` in the API. */
  typed?(target: Target): string;
  /** The schema of the fields in the API; the form has one input for each of them. */
  fields?: Fields;
  inputs?: readonly Input[];
  /** @throws NOT_FOUND */
  find(parameters: Record<string, string>): Promise<Target>;
  /** @throws AppError; errors of the client are shown beside the form */
  run(target: Target, fields: Static<Fields>, by: Operator): Promise<unknown>;
  /** Confirms the change, as a sentence. */
  done: string;
  /** The page to return to, relative to the root. */
  returnTo(target: Target): string;
}

/** An input of a form. Values are text; an empty one counts as absent. */
export interface Input {
  name: string;
  label: string;
  hint?: string;
  type?: 'text' | 'email' | 'date' | 'number';
  isRequired?: boolean;
  maxLength?: number;
  /** Choices of a select element. */
  options?: readonly { value: string; label: string }[];
}

const TEXT = {
  accepts: 'a text of at most 4096 characters without control characters',
  maxLength: 4096,
  pattern: '^[^\\p{Cc}\\p{Cs}]*$',
};

const Parameters = Type.Record(
  Type.String(),
  Type.String({ accepts: 'an ID', maxLength: 256, pattern: '^[^\\p{C}]+$' }),
);

export async function registerAction<Target, Fields extends TObject>(
  scope: Scope,
  console: Console,
  action: Action<Target, Fields>,
): Promise<void> {
  const { path, inputs = [], find, run } = action;
  const notice = path.replace(/\/?:\w+/g, '').replaceAll('/', '-');
  console.addNotice(notice, action.done);

  const execute = async (request: FastifyRequest, target: Target, body: Record<string, unknown>) => {
    const { confirm, ...fields } = body;
    const expected = action.typed?.(target);
    if (expected !== undefined && confirm !== expected) {
      throw invalidFields({ path: 'confirm', message: `must be ${expected}` });
    }
    return run(target, fields as Static<Fields>, console.operatorOf(request));
  };

  const config = console.config;
  scope.get(`/${path}`, { config, schema: { params: Parameters } }, async (request, reply) => {
    const target = await find(request.params as Record<string, string>);
    return sendForm(console, action, { request, reply, target });
  });

  const Form = Type.Object({
    token: Type.String(TEXT),
    confirm: Type.Optional(Type.String(TEXT)),
    ...Object.fromEntries(inputs.map(({ name }) => [name, Type.Optional(Type.String(TEXT))])),
  });
  await registerForms(scope, console.tokensOf, (forms) => {
    forms.post(`/${path}`, { config, schema: { params: Parameters, body: Form } }, async (request, reply) => {
      const { token: _, ...body } = request.body as Record<string, string>;
      const given = Object.fromEntries(Object.entries(body).filter(([, value]) => value !== ''));
      const target = await find(request.params as Record<string, string>);
      try {
        await execute(request, target, given);
      } catch (error) {
        if (!(error instanceof AppError) || error.statusCode >= 500) throw error;
        return sendForm(console, action, {
          request,
          reply: reply.code(error.statusCode),
          target,
          given,
          error,
        });
      }
      return console.redirect(request, reply, action.returnTo(target), notice);
    });
  });

  if (console.api === undefined) return;
  const Body = Type.Object(
    { ...action.fields?.properties, ...(action.typed && { confirm: Type.String(TEXT) }) },
    { additionalProperties: false },
  );
  scope.post(
    `${console.api}/${path}`,
    {
      config: access(console.access),
      schema: { params: Parameters, body: Body, response: { 200: Envelope(Type.Object({})) } },
    },
    async (request) => {
      const target = await find(request.params as Record<string, string>);
      await execute(request, target, request.body as Record<string, unknown>);
      return ok({});
    },
  );
}

interface RenderedForm<Target> {
  request: FastifyRequest;
  reply: FastifyReply;
  target: Target;
  /** The values of a rejected submission, and why it was rejected. */
  given?: Record<string, string>;
  error?: AppError;
}

function sendForm<Target, Fields extends TObject>(
  console: Console,
  action: Action<Target, Fields>,
  { request, reply, target, given = {}, error }: RenderedForm<Target>,
): FastifyReply {
  const { section, inputs = [], button, consequences, isDestructive } = action;
  const typed = action.typed?.(target);
  const all: readonly Input[] = typed === undefined ? inputs : [...inputs, confirmation(typed)];
  const details = new Map((error?.details ?? []).map(({ path, message }) => [path, message]));
  const [path = ''] = request.url.split('?');
  const root = rootOf(request);
  return console.send(request, reply, {
    template: 'console-action',
    section,
    view: {
      title: action.title(target),
      consequences,
      button,
      isDestructive,
      // Relative to the page itself.
      action: path.slice(path.lastIndexOf('/') + 1),
      token: console.tokensOf(request).issue(),
      problems: error && details.size === 0 ? [error.message] : [],
      hasErrors: error !== undefined,
      inputs: all.map(({ options, type = 'text', ...input }) => ({
        ...input,
        type,
        value: given[input.name] ?? '',
        problem: details.get(input.name),
        choices: options?.map((option) => ({ ...option, isChosen: given[input.name] === option.value })),
        isSelect: options !== undefined,
      })),
      backHref: root + action.returnTo(target),
    },
  });
}

const confirmation = (expected: string): Input => ({
  name: 'confirm',
  label: `Type ${expected} to confirm`,
  isRequired: true,
});
