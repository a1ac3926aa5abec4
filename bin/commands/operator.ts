import { toTimestamp } from '../../src/core/http/schemas.js';
import type { PrincipalDocument } from '../../src/idp/provisioning/store.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { displayName } from '../options.js';
import { COMMAND_SOURCE, noPrincipal, printList, withPrincipal, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

type InviteOptions = CommonOptions & { name?: string };

const GROUP = `Operators manage people, agents and applications in the console at /admin. Only these commands grant the \
role; no request and no token does.`;

const INVITE = `Print a link with which a new person creates an account and becomes an operator. The link works once, for \
one hour.`;

const REVOKE = `End the role. Open pages of the console stop working with the next request; the account stays.`;

export function define(group: CommandLine): void {
  group.description(GROUP).examples('idp operator invite ada@example.com', 'idp operator list');
  group
    .command('grant')
    .description('Make a person with an account an operator')
    .argument('<handle>')
    .examples('idp operator grant ada@example.com')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async (person, { operators }) => {
        if (person.kind === 'agent') fail(1, `${person.handle} is an agent. Only people can be operators.`);
        if (person.state !== 'active') fail(1, explainState(person));
        const operator = await operators.grant(person.id, COMMAND_SOURCE);
        answer(options, viewOf(operator ?? noPrincipal(handle)));
      }),
    );
  group
    .command('revoke')
    .summary('End the role of an operator')
    .description(REVOKE)
    .argument('<handle>')
    .examples('idp operator revoke ada@example.com')
    .action((handle: string, options: CommonOptions) =>
      withPrincipal(handle, async ({ id }, { operators }) => {
        const person = await operators.revoke(id, COMMAND_SOURCE);
        answer(options, viewOf(person ?? noPrincipal(handle)));
      }),
    );
  group
    .command('invite')
    .summary('Print a link with which a new person becomes an operator')
    .description(INVITE)
    .argument('<handle>', 'Name that the person signs in with, like ada@example.com')
    .option('--name <text>', 'Display name')
    .examples('idp operator invite ada@example.com --name "Ada Lovelace"')
    .action(invite);
  group
    .command('list')
    .description('List the operators')
    .examples('idp operator list', 'idp operator list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'operators',
        columns: ['handle', 'state', 'sub', 'operator_since'],
        viewOf,
        page: ({ operators }, after) => operators.list(after),
      }),
    );
}

const viewOf = ({ handle, id, state, operatorSince }: PrincipalDocument) => ({
  handle,
  sub: id,
  state,
  operator: operatorSince !== undefined,
  ...(operatorSince !== undefined && { operator_since: toTimestamp(operatorSince) }),
});

function explainState({ handle, state }: PrincipalDocument): string {
  if (state === 'invited')
    return `${handle} has no password yet. Print a link for an operator: idp operator invite ${handle}`;
  if (state === 'deleted') return `${handle} is deleted.`;
  return `${handle} is disabled. Enable the account first: idp principal enable ${handle}`;
}

async function invite(handle: string, options: InviteOptions, command: CommandLine): Promise<void> {
  const name = displayName(command, options);
  await withProvisioning({ create: true }, async ({ links, directory }) => {
    const known = await directory.findByName(handle);
    if (known?.state === 'active') {
      fail(1, `${known.handle} has an account. Make it an operator: idp operator grant ${known.handle}`);
    }
    const { principal, url, expiresAt } = await links.inviteOperator({ handle, ...name }, COMMAND_SOURCE);
    answer(options, { handle: principal.handle, operator_url: url, expires_at: toTimestamp(expiresAt) });
  });
}
