import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { AppError, httpErrors, invalidFields } from '../../core/kernel/errors.js';
import { actionsOn, registerAction } from '../../shared/console-kit/actions.js';
import type { Invitation } from '../provisioning/new-links.js';
import type { MetadataValue, PrincipalDocument } from '../provisioning/store.js';
import { nameOf } from './principals.js';
import {
  type ConsoleServices,
  operatorSource,
  requireCurrent,
  requireName,
  type TextForm,
  wordsIn,
} from './sources.js';

const HANDLE = {
  name: 'handle',
  label: 'User name',
  hint: 'It cannot be changed later and is never reused.',
  isRequired: true,
  maxLength: 254,
} as const;

const NAME = { name: 'name', label: 'Display name', hint: 'Optional.', maxLength: 200 } as const;

const EMAIL = {
  name: 'email',
  label: 'E-mail address',
  hint: 'If the user name is not the address. Optional.',
  type: 'email',
  maxLength: 254,
} as const;

const NOTE_PASSWORD = 'The password is shown only once. Copy it now and give it to the agent.';
const NOTE_LINK =
  'The link is shown only once and can be used once. Copy it now and give it to the person only.';

/** The handle and the name of a form. @throws VALIDATION_ERROR */
function readIdentity({ handle = '', name }: Record<string, string | undefined>) {
  if (name !== undefined) requireName(name);
  return { handle, ...(name !== undefined && { name }) };
}

const writeEntry = ([name, value]: [string, MetadataValue]): string => {
  if (Array.isArray(value)) return `${name}:list=${value.join()}`;
  return typeof value === 'string' ? `${name}=${value}` : `${name}:${typeof value}=${value}`;
};

const revealInvitation = ({ url, expiresAt, sentTo }: Invitation) => ({
  title: 'Invitation',
  note: `${sentTo === undefined ? NOTE_LINK : `The link is sent to ${sentTo}, and is shown only once.`} It expires at ${toTimestamp(expiresAt)}.`,
  secrets: [{ label: 'Invitation link', value: url }],
});

const ENDS_WITH_PERSON =
  'It is treated as unknown from the next request on. Its sessions, tokens and links end, and so does the role of an operator. You can enable it later; then the password works again, but not what has ended.';

/** The form has one field for all entries. */
function failAtField(error: unknown): never {
  if (!(error instanceof AppError) || error.details === undefined) throw error;
  const messages = error.details.map(({ path, message }) => `${path.replace('metadata.', '')} ${message}`);
  throw invalidFields({ path: 'metadata', message: messages.join('; ') });
}

/** The changes of principals, invitations and sessions. */
export async function principalActionsPlugin(
  fastify: FastifyTypebox,
  { console, sources }: ConsoleServices,
): Promise<void> {
  const { principals, agents, links, sessions, delegations, audit } = sources;
  const section = 'principals';
  const find = principals.require;
  const returnTo = ({ id }: { id: string }) => `principals/${id}`;
  const endsWithAgent = async ({ id }: PrincipalDocument): Promise<string> => {
    const [acts, uses] = await Promise.all([delegations.list({ agent: id }), agents.usesOf(id)]);
    const people = acts.map(({ person, delegation }) => `${person.handle} at ${delegation.resource}`);
    const places = uses.map(({ resource }) => resource);
    return [
      'It is treated as unknown from the next request on. At once end:',
      `its tokens${places.length > 0 ? ` (so far for ${places.join(', ')})` : ''};`,
      `its delegations: ${people.length > 0 ? people.join(', ') : 'none'};`,
      'and what it has handed on to other agents. You can enable it later, with its permissions, but what has ended stays ended.',
    ].join(' ');
  };
  const common = { path: 'principals/:sub', section, find, returnTo };
  const register = actionsOn<PrincipalDocument>(fastify, console, common);

  await register('disable', {
    title: (principal) => `${principal.kind === 'agent' ? 'Stop' : 'Disable'} ${nameOf(principal)}?`,
    consequences: async (principal) =>
      principal.kind === 'agent' ? endsWithAgent(principal) : ENDS_WITH_PERSON,
    button: 'Disable',
    run: async ({ id }, _, by) => requireCurrent(await principals.disable(id, operatorSource(by))),
    done: 'Disabled.',
  });

  await register('enable', {
    title: (principal) => `Enable ${nameOf(principal)}?`,
    consequences:
      'It can sign in with its password again. A person who was never active needs a new invitation.',
    button: 'Enable',
    run: async ({ id }, _, by) => requireCurrent(await principals.enable(id, operatorSource(by))),
    done: 'Enabled.',
  });

  await register<TextForm>('metadata', {
    title: (principal) => `Change metadata of ${nameOf(principal)}`,
    consequences:
      'Applications get given_name, family_name, nickname, picture and locale with the scope profile, and others that are declared for them.',
    button: 'Save',
    inputs: [
      {
        name: 'metadata',
        label: 'Metadata',
        hint: 'One entry on each line, like given_name=Ada, level:number=3, admin:boolean=true or teams:list=core,web. An entry that is left out is removed.',
        type: 'lines',
      },
    ],
    values: ({ metadata = {} }) => ({ metadata: Object.entries(metadata).map(writeEntry).join('\n') }),
    run: async ({ id, metadata = {} }, { metadata: text = '' }, by) => {
      const lines = text.split(/\r?\n/).filter((line) => line.trim() !== '');
      const removed = Object.keys(metadata).map((name) => [name, null] as const);
      const change = Object.fromEntries([...removed, ...lines.map(principals.parseMetadata)]);
      return requireCurrent(
        await principals.changeMetadata(id, change, operatorSource(by)).catch(failAtField),
      );
    },
    done: 'Saved.',
  });

  await register<TextForm>('email', {
    title: (principal) => `Change the e-mail address of ${nameOf(principal)}`,
    consequences:
      'The address is not confirmed until the person follows a link that is sent there, or asks for it on the account page. Until then, no link for a forgotten password is sent. Links that were sent to the previous address end.',
    button: 'Save',
    inputs: [{ ...EMAIL, hint: 'Empty: the user name, if it is an address.' }],
    values: ({ email = '' }) => ({ email }),
    run: async ({ id }, { email = '' }, by) =>
      requireCurrent(await principals.changeEmail(id, email, operatorSource(by))),
    done: 'Saved.',
  });

  await register('delete', {
    title: (principal) => `Delete ${nameOf(principal)}?`,
    consequences:
      'This cannot be undone. Everything but the user name is deleted; the user name stays reserved and cannot be used again.',
    button: 'Delete permanently',
    isDestructive: true,
    typed: ({ handle }) => handle,
    run: async ({ id }, _, by) => requireCurrent(await principals.delete(id, operatorSource(by))),
    done: 'Deleted.',
  });

  await register<TextForm, { url: string; expiresAt: number }>('reset', {
    title: (principal) => `Create a reset link for ${nameOf(principal)}?`,
    consequences:
      'With the link, this person chooses a new password, once, within a day. The old password works until then. Anyone with the link can sign in as this person.',
    button: 'Create the link',
    run: async (person, _, by) => requireCurrent(await links.reset(person, operatorSource(by))),
    reveal: ({ url, expiresAt }, { handle }) => ({
      title: `Reset link for ${handle}`,
      note: `${NOTE_LINK} It expires at ${toTimestamp(expiresAt)}.`,
      secrets: [{ label: 'Reset link', value: url }],
    }),
    done: 'Link created.',
  });

  await register<TextForm, string>('rotate', {
    title: (principal) => `Rotate the password of ${nameOf(principal)}?`,
    consequences: 'The agent gets a new password. The old one and all its tokens end at once.',
    button: 'Rotate the password',
    run: async (agent, _, by) => requireCurrent(await principals.rotate(agent, operatorSource(by))),
    reveal: (password, { handle }) => ({
      title: `Password of ${handle}`,
      note: NOTE_PASSWORD,
      secrets: [{ label: 'Password', value: password }],
    }),
    done: 'Password rotated.',
  });

  await registerAction<{ id: string; sid: string }, TextForm, unknown>(fastify, console, {
    path: 'principals/:sub/sessions/:sid/end',
    section,
    title: () => 'End this session?',
    consequences:
      'The browser has to sign in again at the provider. Applications keep their own sessions and tokens; disable the principal to end these.',
    button: 'End the session',
    find: async ({ sub = '', sid = '' }) => {
      const principal = await find({ sub });
      const session = (await sessions.list(principal)).find(({ id }) => id === sid);
      if (!session) throw httpErrors.NOT_FOUND();
      return { id: sub, sid };
    },
    run: ({ id, sid }, _, { name, ip }) =>
      sessions.end(sid, audit.entry({ event: 'session.ended', subject: id, by: name, ip, detail: sid })),
    done: 'The session has ended.',
    returnTo: ({ id }) => `${returnTo({ id })}?tab=sessions`,
  });

  await registerAction<{ id: string; delegation: string }, TextForm, unknown>(fastify, console, {
    path: 'principals/:sub/delegations/:id/end',
    section,
    title: () => 'End this delegation?',
    consequences:
      'The agent can no longer act for the person at this API, and its access tokens end. The application may ask the person again.',
    button: 'End the delegation',
    find: async ({ sub = '', id = '' }) => {
      const { kind } = await find({ sub });
      const given = await delegations.list(kind === 'agent' ? { agent: sub } : { person: sub });
      if (!given.some(({ delegation }) => delegation.id === id)) throw httpErrors.NOT_FOUND();
      return { id: sub, delegation: id };
    },
    run: ({ delegation }, _, { name, ip }) => delegations.end(delegation, { by: name, ip }),
    done: 'The delegation has ended.',
    returnTo,
  });

  await registerAction<object, TextForm, { agent: PrincipalDocument; password: string }>(fastify, console, {
    path: 'agents/create',
    section,
    title: () => 'Create an agent',
    consequences: 'An agent signs in without a browser. Its password is generated and shown once.',
    button: 'Create the agent',
    inputs: [HANDLE, NAME],
    find: async () => ({}),
    run: (_, fields, by) => principals.mintAgent(readIdentity(fields), operatorSource(by)),
    reveal: ({ agent, password }) => ({
      title: `Agent ${agent.handle}`,
      note: NOTE_PASSWORD,
      secrets: [
        { label: 'User name', value: agent.handle },
        { label: 'Password', value: password },
      ],
    }),
    done: 'Agent created.',
    returnTo: () => section,
  });

  await registerAction<object, TextForm, Invitation>(fastify, console, {
    path: 'invitations/create',
    section: 'invitations',
    title: () => 'Invite a person',
    consequences:
      'The person chooses a password with a link that is shown once. A second invitation of the same person ends the first link.',
    button: 'Create the invitation',
    inputs: [
      HANDLE,
      EMAIL,
      NAME,
      {
        name: 'application',
        label: 'Application',
        hint: 'Where the person continues: its name or ID. Optional.',
      },
      { name: 'groups', label: 'Groups', hint: 'Names, separated by commas. Optional.' },
      { name: 'days', label: 'Days until the link expires', hint: '1 to 30; 7 by default.', type: 'number' },
    ],
    find: async () => ({}),
    run: (_, fields, by) => {
      const { days, email, application } = fields;
      const groups = wordsIn(fields['groups']);
      const given = { email, application, groups, ...(days !== undefined && { days: Number(days) }) };
      const input = { ...readIdentity(fields), ...given, delivery: 'if-possible' } as const;
      return links.invite(input, operatorSource(by));
    },
    reveal: revealInvitation,
    done: 'Invitation created.',
    returnTo: () => 'invitations',
  });

  await registerAction<PrincipalDocument, TextForm, Invitation>(fastify, console, {
    path: 'invitations/:sub/resend',
    section: 'invitations',
    title: (principal) => `Create a new link for ${nameOf(principal)}?`,
    consequences:
      'The older link ends, and the new one is valid for 7 days. With a mail server, it is sent to the address of the person.',
    button: 'Create the link',
    find,
    run: ({ handle }, _, by) =>
      links.invite({ handle, isRepeated: true, delivery: 'if-possible' }, operatorSource(by)),
    reveal: revealInvitation,
    done: 'Link created.',
    returnTo: () => 'invitations',
  });

  await registerAction<PrincipalDocument, TextForm>(fastify, console, {
    path: 'invitations/:sub/withdraw',
    section: 'invitations',
    title: (principal) => `Withdraw the invitation of ${nameOf(principal)}?`,
    consequences: 'The link ends, and the user name is free again. You can invite the person again.',
    button: 'Withdraw',
    find,
    run: async ({ id }, _, by) => requireCurrent(await links.withdraw(id, operatorSource(by))),
    done: 'The invitation is withdrawn.',
    returnTo: () => 'invitations',
  });
}
