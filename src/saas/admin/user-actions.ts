import { type Static, Type } from 'typebox';
import { parseTyped } from '../../core/config/declared-values.js';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { OperatedUserFieldsInput, OptionalName, toTimestamp } from '../../core/http/schemas.js';
import { type Clock, DAY } from '../../core/kernel/clock.js';
import { httpErrors, invalidFields } from '../../core/kernel/errors.js';
import type { Operator } from '../../core/ops/audit.js';
import { actionsOn, type Input, registerAction } from '../../shared/console-kit/actions.js';
import { OPERATOR_ROLES, type OperatorRole } from '../../shared/console-kit/roles.js';
import type { FieldInput } from '../auth/users/fields.js';
import type { OperatedUser } from './schemas.js';
import type { AdminServices } from './services.js';

const Roles = Type.String({ accepts: 'roles, separated by commas', pattern: '^[a-z0-9_, -]{0,4096}$' });

const MAX_NOTE_LENGTH = 2000;

const Note = Type.String({
  accepts: `a text of at most ${MAX_NOTE_LENGTH} characters`,
  maxLength: MAX_NOTE_LENGTH,
  pattern: '^(?:[^\\p{Cc}\\p{Cs}]|[\\r\\n])*$',
});

const NoteTime = Type.String({ accepts: 'the time of the note that was read', pattern: '^[\\d:.TZ-]{24}$' });

/** Longer than the provider takes, which is called several times. */
export const PROVIDER_TIMEOUT_MS = 20_000;

export async function userActionsPlugin(fastify: FastifyTypebox, services: AdminServices): Promise<void> {
  const { console, users, auth, secondFactors, passkeys } = services;
  const { directory, suspension, userRoles, userFields } = users;
  const { administration: accounts, update, deleteByOperator } = auth.service;
  const register = actionsOn<OperatedUser>(fastify, console, {
    path: 'users/:id',
    section: 'users',
    find: ({ id = '' }) => directory.findOperated(id),
    returnTo: ({ id }) => `users/${id}`,
    roleOn: onlyOwnersOn,
  });

  await register('rename', {
    title: ({ email }) => `Change the name of ${email}`,
    consequences: 'The name is shown to the user and at the payment provider. An empty one removes it.',
    button: 'Change name',
    role: 'support',
    fields: Type.Object({ name: Type.Optional(OptionalName) }),
    inputs: [{ name: 'name', label: 'New name', maxLength: 200 }],
    values: ({ name }) => ({ name: name ?? '' }),
    run: ({ id }, { name = '' }, by) => directory.changeProfile(id, { name }, by),
    done: 'The name was changed.',
  });

  await register('note', {
    title: ({ email }) => `Edit the note on ${email}`,
    consequences:
      'Operators see it on the page of the user. It is part of the data that the user can export.',
    button: 'Save note',
    role: 'support',
    fields: Type.Object({ note: Type.Optional(Note), replaces: Type.Optional(NoteTime) }),
    inputs: [
      { name: 'replaces', label: 'Note of', type: 'hidden' },
      { name: 'note', label: 'Note', type: 'lines', hint: 'Empty removes it.', maxLength: MAX_NOTE_LENGTH },
    ],
    values: ({ note }) => ({ note: note?.text ?? '', replaces: note?.at ?? '' }),
    // Browsers count a line break as one character and send two.
    fromForm: ({ note, ...rest }) => ({ ...rest, ...(note && { note: note.replaceAll('\r\n', '\n') }) }),
    run: ({ id }, note, by) => directory.setNote(id, note, by),
    done: 'The note was saved.',
  });

  if (userRoles) {
    await register('roles', {
      title: ({ email }) => `Change the roles of ${email}`,
      consequences: 'From the next request on, the user may do what the roles permit in the application.',
      button: 'Change roles',
      fields: Type.Object({ roles: Type.Optional(Roles) }),
      inputs: [{ name: 'roles', label: 'Roles', hint: `Separated by commas: ${userRoles.join(', ')}.` }],
      values: ({ roles = [] }) => ({ roles: roles.join(', ') }),
      run: ({ id }, { roles = '' }, by) => users.setRoles({ id }, roles.match(/[^, ]+/g) ?? [], by),
      done: 'The roles were changed.',
    });
  }

  if (userFields) {
    const { inputs } = userFields;
    const valuesOf = (typed: Record<string, string>) =>
      inputs.map(({ name, kind }) => [name, parseTyped(typed[inputName(name)] ?? '', kind)]);
    await register('fields', {
      title: ({ email }) => `Change the fields of ${email}`,
      consequences: 'The application reads the values from the next request on. An empty one is removed.',
      button: 'Change fields',
      fields: Type.Object({ fields: OperatedUserFieldsInput }),
      inputs: inputs.map(inputFor),
      values: ({ fields = {} }) =>
        Object.fromEntries(Object.entries(fields).map(([name, value]) => [inputName(name), String(value)])),
      fromForm: (typed) => ({ fields: Object.fromEntries(valuesOf(typed)) }),
      run: ({ id }, { fields }, by) => update({ id }, { fields }, by),
      done: 'The fields were changed.',
    });
  }

  await register('operator-role', {
    title: ({ email }) => `Change the role of ${email} in the admin area`,
    consequences:
      'From the next request on, the user may do here what the role permits, after a sign-in with a passkey or a second factor. Without a role, the area is closed to the user; change ADMIN_PASSWORD, too, if the user knows it.',
    button: 'Change role',
    fields: Type.Object({ role: Type.Enum(['none', ...OPERATOR_ROLES]) }),
    inputs: [
      {
        ...{ name: 'role', label: 'Role', isRequired: true },
        hint: 'Read-only sees everything; support helps users; owner may do everything.',
        options: ['none', ...OPERATOR_ROLES].map((value) => ({ value, label: value })),
      },
    ],
    values: ({ operatorRole = 'none' }) => ({ role: operatorRole }),
    run: ({ id }, { role }, by) => users.setOperatorRole({ id }, role === 'none' ? undefined : role, by),
    done: 'The role was changed.',
  });

  await register('suspend', {
    title: ({ email }) => `Suspend ${email}`,
    consequences:
      'From the next request on, the user cannot sign in or call the API. All sessions end, and links in e-mails become invalid. Subscriptions continue.',
    button: 'Suspend',
    isDestructive: true,
    run: ({ id }, _, by) => suspension.suspend({ id }, by),
    done: 'The user is suspended.',
  });

  await register('unsuspend', {
    title: ({ email }) => `Lift the suspension of ${email}`,
    consequences: 'The user can sign in again with the same password. Earlier sessions stay ended.',
    button: 'Lift the suspension',
    run: ({ id }, _, by) => suspension.unsuspend({ id }, by),
    done: 'The suspension was lifted.',
  });

  await register('send-reset', {
    role: 'support',
    title: ({ email }) => `Send a password link to ${email}`,
    consequences: 'The user gets a link by e-mail that sets a new password. Earlier links become invalid.',
    button: 'Send link',
    run: ({ id }, _, by) => accounts.sendReset(id, by),
    done: 'The link will be sent within seconds.',
  });

  await register('send-verification', {
    role: 'support',
    title: ({ email }) => `Send a verification link to ${email}`,
    consequences: 'The user gets a link by e-mail that verifies the address. Earlier links become invalid.',
    button: 'Send link',
    run: ({ id }, _, by) => accounts.sendVerification(id, by),
    done: 'The link will be sent within seconds.',
  });

  await registerPlanActions(register, services, { kind: 'user', nameOf: ({ email }) => email });

  /** Who has found the factor of an operator has a session that it opened. */
  const endSessionsOfOperator = async ({ id, operatorRole }: OperatedUser, by: Operator) => {
    if (operatorRole) await accounts.endSessions(id, by);
  };
  if (secondFactors) {
    await register('remove-second-factor', {
      title: ({ email }) => `Remove the second factor of ${email}`,
      consequences:
        'The password alone is then enough to sign in, and the user gets an e-mail about it. Make sure first that the person who asks for it is the user.',
      button: 'Remove second factor',
      isDestructive: true,
      async run(user, _, by) {
        const isRemoved = await secondFactors.service.remove(user.id, { by: by.name, ip: by.ip });
        if (!isRemoved) throw httpErrors.VALIDATION_ERROR({ message: 'The user has no second factor.' });
        await endSessionsOfOperator(user, by);
      },
      done: 'The second factor was removed.',
    });
  }
  if (passkeys) {
    await register('remove-passkeys', {
      title: ({ email }) => `Remove the passkeys of ${email}`,
      consequences:
        'No passkey of the user can be used to sign in any more, and the user gets an e-mail about it. A user without a password needs a password link to sign in. Make sure first that the person who asks for it is the user.',
      button: 'Remove passkeys',
      isDestructive: true,
      async run(user, _, by) {
        const removed = await passkeys.service.removeAll(user.id, { by: by.name, ip: by.ip });
        if (removed === 0) throw httpErrors.VALIDATION_ERROR({ message: 'The user has no passkey.' });
        await endSessionsOfOperator(user, by);
      },
      done: 'The passkeys were removed.',
    });
  }
  await register('delete', {
    title: ({ email }) => `Delete ${email}`,
    consequences:
      'The account is closed at once, its subscriptions are cancelled at the payment provider, and what is stored about the user is deleted. This cannot be undone.',
    button: 'Delete user',
    isDestructive: true,
    typed: ({ email }) => email,
    timeoutMs: PROVIDER_TIMEOUT_MS,
    run: ({ id }, _, by) => deleteByOperator(id, by),
    done: 'The user was deleted.',
    returnTo: () => 'users',
  });

  await register('end-sessions', {
    role: 'support',
    title: ({ email }) => `End all sessions of ${email}`,
    consequences: 'From the next request on, the user has to sign in again on every device.',
    button: 'End all sessions',
    isDestructive: true,
    run: ({ id }, _, by) => accounts.endSessions(id, by),
    done: 'All sessions have ended.',
  });

  await registerAction(fastify, console, {
    path: 'users/:id/sessions/:session/end',
    section: 'users',
    role: 'support',
    title: ({ id }) => `End session ${id}`,
    consequences: 'From the next request on, the user has to sign in again on this device.',
    button: 'End session',
    isDestructive: true,
    async find({ id: userId = '', session = '' }) {
      const { operatorRole } = await directory.findOperated(userId);
      return { ...(await accounts.findSession(userId, session)), userId, operatorRole };
    },
    run: ({ userId, id }, _, by) => accounts.endSession(userId, id, by),
    done: 'The session has ended.',
    returnTo: ({ userId }) => `users/${userId}`,
    roleOn: ({ operatorRole }) => operatorRole && 'owner',
  });
}

/** Nobody but an owner changes the account of an operator, and so gets nearer to its role. */
export const onlyOwnersOn = ({ operatorRole }: { operatorRole?: OperatorRole | undefined }) =>
  operatorRole && ('owner' as const);

/** As errors name it. */
const inputName = (name: string): string => `fields.${name}`;

function inputFor({ name, label, hint, kind, choices, maxLength }: FieldInput): Input {
  const values = kind === 'boolean' ? ['true', 'false'] : choices;
  return {
    name: inputName(name),
    label,
    ...(hint !== undefined && { hint }),
    ...(maxLength !== undefined && { maxLength }),
    ...(values.length > 0 && {
      options: ['', ...values].map((value) => ({ value, label: value || 'Not set' })),
    }),
  };
}

/** The actions on what an owner of subscriptions holds: a user or an organization. */
export async function registerPlanActions<Owner extends Pick<OperatedUser, 'id' | 'granted'>>(
  register: ReturnType<typeof actionsOn<Owner>>,
  { billing: { grants, plans }, provider, clock }: AdminServices,
  { kind, nameOf }: { kind: 'user' | 'organization'; nameOf(owner: Owner): string },
): Promise<void> {
  await register('grant', {
    title: (owner) => `Grant a plan to ${nameOf(owner)}`,
    consequences: `The ${kind} has access to the plan in addition to purchased ones. The payment provider is not involved. An earlier grant is replaced.`,
    ...grantForm(plans.names),
    values: ({ granted }) => ({
      plan: granted?.plan ?? '',
      until: granted?.until ? toTimestamp(Date.parse(granted.until) - 1).slice(0, 10) : '',
    }),
    run: ({ id }, given, by) => grants.grant(id, grantOf(given, clock), by),
    done: 'The plan was granted.',
  });

  await register('revoke-grant', {
    title: (owner) => `Withdraw the granted plan of ${nameOf(owner)}`,
    consequences: `The ${kind} keeps purchased plans only.`,
    button: 'Withdraw plan',
    isDestructive: true,
    run: ({ id }, _, by) => grants.revoke(id, by),
    done: 'The granted plan was withdrawn.',
  });

  if (provider) {
    await register('resync', {
      role: 'support',
      title: (owner) => `Sync with the payment provider: ${nameOf(owner)}`,
      consequences: `The subscriptions of the ${kind} are read from the payment provider and replace the stored ones.`,
      button: 'Sync',
      timeoutMs: PROVIDER_TIMEOUT_MS,
      run: ({ id }, _, by) => provider.resync(id, by),
      done: 'The subscriptions are those of the payment provider.',
    });
  }
}

export const DayInput = Type.String({
  accepts: 'a date, like 2027-01-31',
  pattern: '^\\d{4}-\\d{2}-\\d{2}$',
});

const GrantFields = Type.Object({
  plan: Type.String({ accepts: 'the name of a plan', maxLength: 100, pattern: '^[\\w .-]+$' }),
  until: Type.Optional(DayInput),
});

/** The form that grants a plan. */
export const grantForm = (plans: ReadonlySet<string> | undefined) => ({
  button: 'Grant plan',
  fields: GrantFields,
  inputs: [
    {
      name: 'plan',
      label: 'Plan',
      isRequired: true,
      maxLength: 100,
      ...(plans && { options: [...plans].map((plan) => ({ value: plan, label: plan })) }),
    },
    {
      name: 'until',
      label: 'Last day',
      type: 'date',
      hint: 'In UTC. Empty: until you withdraw the plan.',
    },
  ] satisfies Input[],
});

/** @throws VALIDATION_ERROR */
export const grantOf = ({ plan, until }: Static<typeof GrantFields>, clock: Clock) => ({
  plan,
  ...(until !== undefined && { until: endOf(until, clock.now()) }),
});

/** The end of a day (UTC). @throws VALIDATION_ERROR if there is no such day, or it has ended */
export function endOf(date: string, now: number): number {
  const end = Date.parse(`${date}T00:00:00Z`) + DAY;
  const isDate = Number.isFinite(end) && toTimestamp(end - DAY).startsWith(date);
  if (!isDate || end <= now) {
    throw invalidFields({ path: 'until', message: 'must be today or a later date, like 2027-01-31' });
  }
  return end;
}
