import type { FastifyTypebox } from '../../core/http/routes.js';
import { toTimestamp } from '../../core/http/schemas.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { actionsOn, registerAction } from '../../shared/console-kit/actions.js';
import { registerList } from '../../shared/console-kit/lists.js';
import type { GroupDocument, MemberDocument } from '../groups/store.js';
import { nameOf } from './principals.js';
import { type ConsoleServices, operatorSource, type TextForm } from './sources.js';

/** The groups, their members and their changes. */
export async function groupsPlugin(
  fastify: FastifyTypebox,
  { console, sources: { groups, principals } }: ConsoleServices,
): Promise<void> {
  const section = 'groups';
  const find = ({ name = '' }: Record<string, string>): Promise<GroupDocument> => groups.get(name);
  const returnTo = ({ name }: Pick<GroupDocument, 'name'>) => `groups/${name}/members`;
  const common = { path: 'groups/:name', section, find, returnTo };
  const register = actionsOn<GroupDocument>(fastify, console, common);

  registerList<GroupDocument>(fastify, console, {
    path: section,
    title: 'Groups',
    intro:
      'Applications get the names with the scope groups, and may admit only the members of some of them.',
    links: [{ path: 'groups/create', label: 'Add a group' }],
    columns: [
      { label: 'Name', text: ({ name }) => name, href: returnTo },
      { label: 'Description', text: ({ description }) => description ?? null },
      { label: 'Changed', text: ({ updatedAt }) => toTimestamp(updatedAt), kind: 'time' },
    ],
    read: ({ after, limit }) => groups.list(after, limit),
    empty: 'There are no groups yet.',
  });

  registerList<MemberDocument & { name: string }>(fastify, console, {
    path: 'groups/:name/members',
    section,
    title: 'Members of the group',
    links: [
      { path: 'groups/:name/add', label: 'Add a member' },
      { path: 'groups/:name/remove', label: 'Remove a member' },
      { path: 'groups/:name/delete', label: 'Remove the group' },
    ],
    columns: [
      {
        label: 'Member',
        text: ({ name }) => name,
        href: ({ kind, member }) => (kind === 'domain' ? null : `principals/${member}`),
      },
      { label: 'Kind', text: ({ kind }) => KINDS[kind] },
      { label: 'Added', text: ({ createdAt }) => toTimestamp(createdAt), kind: 'time' },
    ],
    async read({ parameters: { name = '' }, after, limit }) {
      const { items, next } = await groups.members(name, after, limit);
      const named = items.map(async (member) => {
        const agent = member.kind === 'agent' ? await principals.get(member.member) : null;
        return { ...member, name: agent ? nameOf(agent) : member.handle };
      });
      return { items: await Promise.all(named), next };
    },
    empty: 'The group has no members yet.',
  });

  /** @throws VALIDATION_ERROR */
  const readMember = async (text = '') => {
    if (text.startsWith('@')) return groups.readDomain(text);
    const found = (await principals.get(text)) ?? (await principals.findByName(text));
    if (!found || found.state === 'deleted')
      throw invalidFields({
        path: 'member',
        message: 'must be a user name, an ID or a domain like @example.com',
      });
    return groups.memberOf(found);
  };

  const MEMBER = {
    name: 'member',
    label: 'Member',
    hint: 'A user name, an ID, or a domain like @example.com: all people with a verified e-mail address there.',
    isRequired: true,
    maxLength: 254,
  } as const;

  await registerAction<object, TextForm, GroupDocument>(fastify, console, {
    path: 'groups/create',
    section,
    title: () => 'Add a group',
    consequences: 'Applications know the group by its name, which never changes.',
    button: 'Add the group',
    inputs: [
      {
        name: 'name',
        label: 'Name',
        hint: 'Lower-case letters, digits and . _ : @ + -',
        isRequired: true,
        maxLength: 64,
      },
      { name: 'description', label: 'Description', hint: 'Optional.', maxLength: 200 },
    ],
    find: async () => ({}),
    run: (_, { name = '', description }, by) => groups.add({ name, description }, operatorSource(by)),
    done: 'Group added.',
    returnTo: () => section,
  });

  await register<TextForm>('add', {
    title: ({ name }) => `Add a member to ${name}`,
    consequences: 'Applications see it at the next sign-in or refresh. Agents do not join by domain.',
    button: 'Add the member',
    inputs: [MEMBER],
    run: async ({ name }, { member }, by) =>
      groups.addMember(name, await readMember(member), operatorSource(by)),
    done: 'The member is in the group.',
  });

  await register<TextForm>('remove', {
    title: ({ name }) => `Remove a member from ${name}`,
    consequences: 'Applications see it at the next sign-in or refresh.',
    button: 'Remove the member',
    inputs: [MEMBER],
    run: async ({ name }, { member }, by) => {
      if (!(await groups.removeMember(name, await readMember(member), operatorSource(by))))
        throw invalidFields({ path: 'member', message: 'is not in the group' });
    },
    done: 'The member is removed.',
  });

  await register<TextForm>('delete', {
    title: ({ name }) => `Remove the group ${name}?`,
    consequences:
      'This cannot be undone. Applications that admit only members of this group admit nobody by it any more, and agents for which it answers stop.',
    button: 'Remove permanently',
    isDestructive: true,
    typed: ({ name }) => name,
    run: async ({ name }, _, by) => groups.remove(name, operatorSource(by)),
    done: 'The group is removed.',
    returnTo: () => section,
  });
}

const KINDS: Record<MemberDocument['kind'], string> = {
  human: 'Person',
  agent: 'Agent',
  domain: 'All people with a verified address there',
};
