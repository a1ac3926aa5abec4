import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Static, type TObject, Type } from 'typebox';
import { problemsOf } from '../../core/config/options.js';
import { access, type FastifyTypebox } from '../../core/http/routes.js';
import { Envelope, ok } from '../../core/http/schemas.js';
import { AppError, invalidFields } from '../../core/kernel/errors.js';
import type { Operator } from '../../core/ops/audit.js';
import { type Console, ownPath, Parameters, rootOf } from './console.js';
import { registerForms } from './forms.js';
import { namedOperatorOf, type OperatorRole } from './roles.js';

/**
 * A change that the operator makes: `GET` shows what it does and asks for confirmation, `POST` makes it. If the console
 * has an API, it accepts the same fields as JSON.
 */
export interface Action<Target, Fields extends TObject = TObject, Result = unknown> {
  /** The route, relative to the root, without a leading slash: `users/:id/suspend`. Parameters are IDs. */
  path: string;
  /** The entry of the navigation: `users`. */
  section: string;
  title(target: Target): string;
  /** What happens, as sentences. */
  consequences: string | ((target: Target) => Promise<string>);
  /** The label of the button: a verb. */
  button: string;
  /** Whether the change cannot be undone, which the button shows. */
  isDestructive?: boolean;
  /** The role that operators need, where they have roles. Default: `owner`. */
  role?: OperatorRole;
  /** The role that operators need for this target, if it is a higher one. */
  roleOn?(target: Target): OperatorRole | undefined;
  /** The text that the operator has to type, in the page and as `confirm` in the API. */
  typed?(target: Target): string;
  /** The schema of the fields; the form has one input for each of them. */
  fields?: Fields;
  inputs?: readonly Input[];
  /** What the query of the page may contain, if `find` reads it. */
  querystring?: TObject;
  /** @throws NOT_FOUND */
  find(parameters: Record<string, string>, query: Record<string, string>): Promise<Target>;
  /** @throws AppError; errors of the client are shown beside the form */
  run(target: Target, fields: Static<Fields>, by: Operator): Promise<Result>;
  /** The fields of the API from what was typed into the form. Default: the texts. */
  fromForm?(typed: Record<string, string>, target: Target): Static<Fields>;
  /** The values in the form before the operator changes them. */
  values?(target: Target): Record<string, string>;
  /** Shows secrets of the result once, instead of returning to `returnTo`. */
  reveal?(result: Result, target: Target): RevealedSecrets;
  /** What the API answers. Default: the outcome, if there are several. */
  answer?: { schema: TObject; of(result: Result, target: Target): object };
  /** Confirms the change, as a sentence. Several outcomes have one each; `run` then returns the outcome. */
  done: string | Readonly<Record<string, string>>;
  /** How long the change may take, if it calls another system. */
  timeoutMs?: number;
  /** The page to return to, relative to the root. */
  returnTo(target: Target): string;
}

/** Secrets that a page shows once. */
export interface RevealedSecrets {
  title: string;
  /** What the operator does with them, as sentences. */
  note: string;
  secrets: readonly { label: string; value: string }[];
}

/** An input of a form. Values are text; an empty one counts as absent. */
export interface Input {
  name: string;
  label: string;
  hint?: string;
  /** `lines`: several lines of text; `checks`: any of the options, one on each line; `hidden`: what the form was rendered with. */
  type?: 'text' | 'email' | 'date' | 'number' | 'lines' | 'checks' | 'hidden';
  isRequired?: boolean;
  maxLength?: number;
  /** Choices of a select element or check boxes; a function if they change while the process runs. */
  options?: Choices | (() => Choices);
}

/** Check boxes stand below the heading of their group. */
export type Choices = readonly { value: string; label: string; group?: string }[];

/** A change of everything that a search or a filter shows, one by one: each has its own conditions and its own audit record. */
export interface BulkAction<Item, Fields extends TObject = TObject>
  extends Pick<Action<Item, Fields>, 'button' | 'isDestructive' | 'role' | 'roleOn' | 'fields' | 'inputs'> {
  /** The end of the path: `suspend` for `users/all/suspend`. */
  verb: string;
  /** In the menu, and in the title with the number: `Suspend`. */
  label: string;
  /** What happens to each of them, as sentences. */
  consequences: string;
  /** Whether the change applies to an item; others are passed over. */
  applies(item: Item): boolean;
  /** What a message calls an item. */
  nameOf(item: Item): string;
  /** @throws AppError */
  run(item: Item, fields: Static<Fields>, by: Operator): Promise<unknown>;
}

const TEXT = {
  accepts: 'a text of at most 4096 characters without control characters',
  maxLength: 4096,
  pattern: '^[^\\p{Cc}\\p{Cs}]*$',
};

/** The answer of the API. Only changes with several outcomes name it. */
const Outcome = Type.Object({ outcome: Type.Optional(Type.String()) });

const LINES = { ...TEXT, accepts: 'lines of text', pattern: '^(?:[^\\p{Cc}\\p{Cs}]|[\\r\\n])*$' };

/** More check boxes than a form has. */
const MAX_CHECKS = 200;

/** What a browser sends for an input: nothing for check boxes of which none is set, and an array for several. */
const SENT = {
  text: Type.String(TEXT),
  lines: Type.String(LINES),
  checks: Type.Union([Type.String(TEXT), Type.Array(Type.String(TEXT), { maxItems: MAX_CHECKS })]),
};

export async function registerAction<Target, Fields extends TObject, Result = unknown>(
  fastify: FastifyTypebox,
  console: Console,
  action: Action<Target, Fields, Result>,
): Promise<void> {
  const { path, inputs = [], run, querystring, role = 'owner' } = action;
  const parts = { params: Parameters, ...(querystring && { querystring }) };
  const find = (request: FastifyRequest) =>
    action.find(request.params as Record<string, string>, queryOf(request, querystring));
  /** The reply instead of the change, if the operator has to sign in again for this target. */
  const refusal = (request: FastifyRequest, reply: FastifyReply, target: Target) => {
    const needed = action.roleOn?.(target);
    return needed && namedOperatorOf(request)?.demand(needed, reply);
  };
  const notice = path.replace(/\/?:\w+/g, '').replaceAll('/', '-');
  const { done } = action;
  const hasOutcomes = typeof done !== 'string';
  if (hasOutcomes) {
    for (const [outcome, sentence] of Object.entries(done))
      console.addNotice(`${notice}-${outcome}`, sentence);
  } else console.addNotice(notice, done);

  const execute = async (request: FastifyRequest, target: Target, body: Record<string, unknown>) => {
    const { confirm, ...fields } = body;
    const expected = action.typed?.(target);
    if (expected !== undefined && confirm !== expected) {
      throw invalidFields({ path: 'confirm', message: `must be ${expected}` });
    }
    return run(target, fields as Static<Fields>, console.operatorOf(request));
  };

  const config = console.configFor(role);
  const timeout = action.timeoutMs === undefined ? {} : { handlerTimeout: action.timeoutMs };
  fastify.get(`/${path}`, { config, schema: parts }, async (request, reply) => {
    const target = await find(request);
    return refusal(request, reply, target) ?? sendForm(console, action, { request, reply, target });
  });

  const Form = Type.Object({
    token: Type.String(TEXT),
    confirm: Type.Optional(Type.String(TEXT)),
    ...Object.fromEntries(
      inputs.map(({ name, type }) => [
        name,
        Type.Optional(SENT[type === 'lines' || type === 'checks' ? type : 'text']),
      ]),
    ),
  });
  await registerForms(fastify, console.tokensOf, (forms) => {
    const schema = { ...parts, body: Form };
    forms.post(`/${path}`, { config, ...timeout, schema }, async (request, reply) => {
      const { token: _, ...body } = request.body as Record<string, string | string[]>;
      const texts = Object.entries(body).map(([name, sent]) => [name, [sent].flat().join('\n')] as const);
      const given = Object.fromEntries(texts.filter(([, value]) => value !== ''));
      const target = await find(request);
      const refused = refusal(request, reply, target);
      if (refused) return refused;
      const fields: Record<string, unknown> = action.fromForm?.(given, target) ?? given;
      const problems = action.fields ? problemsOf(action.fields, fields) : [];
      let outcome = '';
      try {
        if (problems.length > 0) throw invalidFields(...problems);
        const result = await execute(request, target, fields);
        outcome = hasOutcomes ? `-${result}` : '';
        if (action.reveal) {
          const { secrets, ...revealed } = action.reveal(result, target);
          const values = secrets.map((secret, index) => ({ ...secret, id: `secret-${index}` }));
          const backHref = rootOf(request) + action.returnTo(target);
          const view = { ...revealed, secrets: values, backHref };
          return console.send(request, reply, { template: 'console-secrets', section: action.section, view });
        }
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
      return console.redirect(request, reply, action.returnTo(target), notice + outcome);
    });
  });

  if (console.api === undefined) return;
  const Body = Type.Object(
    { ...action.fields?.properties, ...(action.typed && { confirm: Type.String(TEXT) }) },
    { additionalProperties: false },
  );
  fastify.post(
    `${console.api}/${path}`,
    {
      config: access(console.access, { operatorRole: role }),
      ...timeout,
      schema: {
        ...parts,
        body: Body,
        response: { 200: Envelope(action.answer?.schema ?? Outcome) },
      },
    },
    async (request, reply) => {
      const target = await find(request);
      refusal(request, reply, target);
      const result = await execute(request, target, request.body as Record<string, unknown>);
      if (action.answer) return ok(action.answer.of(result, target));
      return ok(hasOutcomes ? { outcome: String(result) } : {});
    },
  );
}

/** Registers the actions on things of one kind, each by its verb below the path of the thing. */
export const actionsOn =
  <Target>(
    fastify: FastifyTypebox,
    console: Console,
    {
      path,
      ...common
    }: Pick<Action<Target>, 'path' | 'section' | 'find' | 'returnTo' | 'roleOn' | 'timeoutMs'>,
  ) =>
  <Fields extends TObject = TObject, Result = unknown>(
    verb: string,
    action: Omit<Action<Target, Fields, Result>, 'path' | 'section' | 'find' | 'returnTo' | 'roleOn'> & {
      returnTo?(target: Target): string;
    },
  ): Promise<void> =>
    registerAction<Target, Fields, Result>(fastify, console, {
      path: `${path}/${verb}`,
      ...common,
      ...action,
    });

interface RenderedForm<Target> {
  request: FastifyRequest;
  reply: FastifyReply;
  target: Target;
  /** The values of a rejected submission, and why it was rejected. */
  given?: Record<string, string>;
  error?: AppError;
}

async function sendForm<Target, Fields extends TObject, Result>(
  console: Console,
  action: Action<Target, Fields, Result>,
  { request, reply, target, given = action.values?.(target) ?? {}, error }: RenderedForm<Target>,
): Promise<FastifyReply> {
  const { section, inputs = [], button, consequences, isDestructive } = action;
  const typed = action.typed?.(target);
  const all: readonly Input[] = typed === undefined ? inputs : [...inputs, confirmation(typed)];
  const details = new Map((error?.details ?? []).map(({ path, message }) => [path, message]));
  const root = rootOf(request);
  const query = new URLSearchParams(queryOf(request, action.querystring));
  return console.send(request, reply, {
    template: 'console-action',
    section,
    view: {
      title: action.title(target),
      consequences: typeof consequences === 'string' ? consequences : await consequences(target),
      button,
      isDestructive,
      action: ownPath(request) + (query.size > 0 ? `?${query}` : ''),
      token: console.tokensOf(request).issue(),
      problems: error && details.size === 0 ? [error.message] : [],
      hasFieldErrors: details.size > 0,
      hidden: all
        .filter(({ type }) => type === 'hidden')
        .map(({ name }) => ({ name, value: given[name] ?? '' })),
      inputs: all
        .filter(({ type }) => type !== 'hidden')
        .map((input) => inputView(input, given[input.name] ?? '', details.get(input.name))),
      backHref: root + action.returnTo(target),
    },
  });
}

/** The view of the partial `_console-input`. */
function inputView({ options, type = 'text', ...input }: Input, value: string, problem: string | undefined) {
  const isChecks = type === 'checks';
  const chosen = isChecks ? value.split(/\s+/) : [value];
  const choices = (typeof options === 'function' ? options() : options)?.map((option) => ({
    ...option,
    isChosen: chosen.includes(option.value),
  }));
  return {
    ...input,
    type,
    value,
    problem,
    choices,
    groups: isChecks && groupsOf(choices ?? []),
    isChecks,
    isSelect: options !== undefined && !isChecks,
    isLines: type === 'lines',
    isLine: options === undefined && type !== 'lines',
  };
}

/** Choices by their group, in their order. */
const groupsOf = (choices: Choices) =>
  [...new Set(choices.map(({ group = '' }) => group))].map((heading) => ({
    heading,
    choices: choices.filter(({ group = '' }) => group === heading),
  }));

/** The declared part of the query of a page: nothing else that a client has sent is repeated in its form and links. */
function queryOf({ query }: FastifyRequest, querystring: TObject | undefined): Record<string, string> {
  const names = Object.keys(querystring?.properties ?? {});
  const texts = query as Record<string, string | undefined>;
  return Object.fromEntries(names.flatMap((name) => (texts[name] ? [[name, texts[name]]] : [])));
}

const confirmation = (expected: string): Input => ({
  name: 'confirm',
  label: `Type ${expected} to confirm`,
  isRequired: true,
});
