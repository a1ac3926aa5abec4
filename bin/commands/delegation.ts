import { toTimestamp, toTimestampOrNull } from '../../src/core/http/schemas.js';
import type { ActiveDelegation } from '../../src/idp/oidc/delegations/service.js';
import type { CommandLine, CommonOptions } from '../command.js';
import { COMMAND_SOURCE, printList, withProvisioning } from '../provisioning.js';
import { answer, fail } from '../terminal.js';

export function define(group: CommandLine): void {
  group.examples('idp delegation list', 'idp delegation revoke dlg_…');
  group
    .command('list')
    .description('List which agents act for which people, where and until when')
    .examples('idp delegation list --json')
    .action((options: CommonOptions) =>
      printList(options, {
        name: 'delegations',
        columns: ['id', 'person', 'agent', 'resource', 'scopes', 'expires_at'],
        viewOf,
        page: ({ delegations }, after) => delegations.page(after),
      }),
    );
  group
    .command('revoke')
    .description('End a delegation at once, with everything that was issued for it')
    .argument('<id>')
    .examples('idp delegation revoke dlg_…')
    .action((id: string, options: CommonOptions) =>
      withProvisioning({ create: false }, async ({ delegations }) => {
        const isEnded = await delegations.end(id, { ip: COMMAND_SOURCE.ip });
        if (!isEnded) fail(1, `There is no delegation ${id}.`);
        answer(options, { id, revoked: true });
      }),
    );
}

const viewOf = ({ delegation, agent, person }: ActiveDelegation, { json }: CommonOptions) => ({
  id: delegation.id,
  person: person.handle,
  agent: agent.handle,
  resource: delegation.resource,
  scopes: json ? delegation.scopes : delegation.scopes.join(' '),
  client_id: delegation.clientId,
  max_depth: delegation.maxDepth,
  created_at: toTimestamp(delegation.createdAt),
  expires_at: toTimestamp(delegation.expiresAt),
  last_used_at: toTimestampOrNull(delegation.lastUsedAt),
});
