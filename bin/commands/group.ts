import type { ProvisioningAdministration } from '../../src/idp/administration.js';
import { groupView, memberView } from '../../src/idp/groups/schemas.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { COMMAND_SOURCE, findPrincipal, printList, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

const GROUP = `Groups of people and agents. Applications get their names with the scope groups, and may admit only some of them \
(idp client update --admit-groups).`;

const MEMBER = `A member is a person or an agent, by handle or sub, or a domain like @example.com: all people with a verified \
e-mail address there. Agents do not join by domain.`;

export function define(group: CommandLine): void {
  group
    .description(GROUP)
    .examples('idp group add admins', 'idp group member add admins ada@example.com', 'idp group list');
  group
    .command('add')
    .description('Add a group')
    .argument('<name>', 'Lower-case letters, digits and . _ : @ + -; it never changes')
    .option('--description <text>', 'What the group is for')
    .examples('idp group add admins --description "May change everything"')
    .action((name: string, options: CommonOptions & { description?: string }) =>
      withProvisioning({ create: true }, async ({ groups }) => {
        const { description } = options;
        answer(options, groupView(await groups.add({ name, description }, COMMAND_SOURCE)));
      }),
    );
  group
    .command('remove')
    .description('Remove a group; applications that admit only its members admit nobody by it any more')
    .argument('<name>')
    .examples('idp group remove admins')
    .action((name: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ groups }) => {
        answer(options, groupView(await groups.remove(name, COMMAND_SOURCE)));
      }),
    );
  group
    .command('list')
    .description('List all groups')
    .examples('idp group list', 'idp group list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'groups',
        columns: ['name', 'description', 'updated_at'],
        viewOf: groupView,
        page: ({ groups }, after) => groups.list(after),
      }),
    );
  defineMembers(group.command('member').description('Manage the members of a group: add, remove, list'));
}

function defineMembers(member: CommandLine): void {
  member
    .command('add')
    .description(`Put members into a group. ${MEMBER}`)
    .argument('<group>')
    .argument('<members...>')
    .examples('idp group member add admins ada@example.com', 'idp group member add staff @example.com')
    .action(change('addMember'));
  member
    .command('remove')
    .description('Take members out of a group; applications see it at the next sign-in or refresh')
    .argument('<group>')
    .argument('<members...>')
    .examples('idp group member remove admins ada@example.com')
    .action(change('removeMember'));
  member
    .command('list')
    .description('List the members of a group')
    .argument('<group>')
    .examples('idp group member list admins', 'idp group member list admins --json')
    .action((name: string, options: CommonOptions) =>
      printList(options, {
        name: 'members',
        columns: ['handle', 'kind', 'member', 'added_at'],
        viewOf: memberView,
        page: ({ groups }, after) => groups.members(name, after),
      }),
    );
}

const change =
  (verb: 'addMember' | 'removeMember') => (name: string, names: string[], options: CommonOptions) =>
    withProvisioning({ create: false }, async (administration) => {
      const { groups } = administration;
      await groups.get(name);
      // All of them are found before the first is changed.
      const members = [];
      for (const one of names) members.push(await findMember(administration, one));
      let changed = 0;
      for (const one of members) if (await groups[verb](name, one, COMMAND_SOURCE)) changed += 1;
      answer(options, { group: name, [verb === 'addMember' ? 'added' : 'removed']: changed });
    });

async function findMember(administration: ProvisioningAdministration, name: string) {
  const { groups, directory } = administration;
  if (name.startsWith('@')) return groups.readDomain(name);
  const principal = (await directory.get(name)) ?? (await findPrincipal(administration, name));
  if (principal.state === 'deleted') fail(1, `${principal.handle} is deleted.`);
  return groups.memberOf(principal);
}
