import { Type } from 'typebox';
import type { FastifyTypebox } from '../../core/http/routes.js';
import { DisplayName } from '../../core/http/schemas.js';
import { invalidFields } from '../../core/kernel/errors.js';
import { defined } from '../../core/kernel/fields.js';
import { actionsOn, type Input } from '../../shared/console-kit/actions.js';
import type { OperatedOrganization } from '../organizations/administration.js';
import type { AdminServices } from './services.js';
import { PROVIDER_TIMEOUT_MS, registerPlanActions } from './user-actions.js';

const Role = Type.String({ accepts: 'the name of a role', maxLength: 32, pattern: '^[a-z][a-z0-9_-]*$' });

/** What operators change of organizations: they need no role, and keep the rules about owners and numbers of members. */
export async function organizationActionsPlugin(
  fastify: FastifyTypebox,
  services: AdminServices,
): Promise<void> {
  const { console, organizations, resolveUser } = services;
  if (!organizations) return;
  const { administration, members, roles } = organizations;
  const { asHost, update, delete: close } = organizations.organizations;
  const register = actionsOn<OperatedOrganization>(fastify, console, {
    path: 'organizations/:id',
    section: 'organizations',
    find: ({ id = '' }) => administration.find(id),
    returnTo: ({ id }) => `organizations/${id}`,
  });
  const roleInput: Input = {
    name: 'role',
    label: 'Role',
    isRequired: true,
    options: roles.names.map((role) => ({ value: role, label: role })),
  };

  await register('rename', {
    title: ({ name }) => `Change the name of ${name}`,
    consequences: 'The members and the payment provider see the new name. Links with the former slug end.',
    button: 'Change name and slug',
    fields: Type.Object({
      name: DisplayName,
      slug: Type.Optional(
        Type.String({ accepts: 'the slug of an organization', maxLength: 48, pattern: '^[a-z0-9-]+$' }),
      ),
    }),
    inputs: [
      { name: 'name', label: 'New name', isRequired: true, maxLength: 200 },
      { name: 'slug', label: 'New slug', hint: 'Empty: as before.', maxLength: 48 },
    ],
    values: ({ name, slug }) => ({ name, slug }),
    run: async ({ id }, { name, slug }, { name: by, ip }) => {
      await update(await asHost(id), { name, ...defined({ slug }) }, { ip, by });
    },
    done: 'The organization was renamed.',
  });

  await register('add-member', {
    title: ({ name }) => `Add a member to ${name}`,
    consequences: 'The user is a member at once, without an invitation. An owner may do everything.',
    button: 'Add member',
    fields: Type.Object({
      user: Type.String({
        accepts: 'the ID or the e-mail address of a user',
        maxLength: 254,
        pattern: '^[^\\p{C}\\s]+$',
      }),
      role: Role,
    }),
    inputs: [
      { name: 'user', label: 'User', hint: 'An ID or an e-mail address.', isRequired: true, maxLength: 254 },
      roleInput,
    ],
    values: () => ({ role: 'member' }),
    async run({ id }, { user, role }, { name: by, ip }) {
      const userId = await resolveUser(user);
      if (userId === undefined)
        throw invalidFields({ path: 'user', message: 'must be the ID or the e-mail address of a user' });
      await members.add(await asHost(id), userId, role, { ip, by });
    },
    done: 'The user is a member.',
  });

  await registerPlanActions(register, services, { kind: 'organization', nameOf: ({ name }) => name });

  await register('delete', {
    title: ({ name }) => `Delete ${name}`,
    consequences:
      'The organization is closed at once, its subscriptions are cancelled at the payment provider, and what is stored about it is deleted. Its members keep their accounts. This cannot be undone.',
    button: 'Delete organization',
    isDestructive: true,
    typed: ({ name }) => name,
    timeoutMs: PROVIDER_TIMEOUT_MS,
    run: async ({ id }, _, { name: by, ip }) => close(await asHost(id), { ip, by }),
    done: 'The organization was deleted.',
    returnTo: () => 'organizations',
  });

  const find = async ({ id = '', user = '' }) => {
    const [{ name }, found] = await Promise.all([administration.find(id), members.find(id, user)]);
    return { ...found, id, organization: name, label: found.email || user };
  };
  const registerOnMember = actionsOn<Awaited<ReturnType<typeof find>>>(fastify, console, {
    path: 'organizations/:id/members/:user',
    section: 'organizations',
    find,
    returnTo: ({ id }) => `organizations/${id}`,
  });
  await registerOnMember('role', {
    title: ({ label, organization }) => `Change the role of ${label} in ${organization}`,
    consequences:
      'The role applies from the next request on. An organization may have several owners: to hand it over, make the new one owner first, then change the role of the former one.',
    button: 'Change role',
    fields: Type.Object({ role: Role }),
    inputs: [roleInput],
    values: ({ role }) => ({ role }),
    run: async ({ id, userId }, { role }, { name: by, ip }) => {
      await members.changeRole(await asHost(id), userId, role, { ip, by });
    },
    done: 'The role was changed.',
  });
  await registerOnMember('remove', {
    title: ({ label, organization }) => `Remove ${label} from ${organization}`,
    consequences:
      'From the next request on, the user has no access to the organization. Invitations that the user has sent become invalid.',
    button: 'Remove member',
    isDestructive: true,
    run: async ({ id, userId }, _, { name: by, ip }) => members.remove(await asHost(id), userId, { ip, by }),
    done: 'The user is no member any more.',
  });
}
